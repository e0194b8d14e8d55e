"""The page that measurements are written into, and the arithmetic of a profile."""

import json
import pathlib
import types

import pandas as pd
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"

PAGE = """# Title

<!-- measurements -->
old
<!-- /measurements -->

between

<!-- profile -->
old
<!-- /profile -->
"""


def row(**changes):
    values = {
        "work": "A",
        "runtime": "native",
        "program": "fed_avg",
        "privacy": "cdp",
        "clients": 100,
        "task": None,
        "rounds": 5,
        "seconds_median": 2.0,
        "seconds_min": 1.5,
        "seconds_max": 2.5,
        "ratio_to_native": 1.0,
        "ratio_to_native_min": 1.0,
        "ratio_to_native_max": 1.0,
        "floor_seconds": 0.16,
        "ratio_to_floor": 12.5,
        "sgemm_gflops": 203.0,
        "peak_rss_mb": 1234.5,
        "notes": "",
        "machine": "2 cores of a CPU (AVX2), CPU only",
    }
    return values | changes


@pytest.fixture
def report(run_program):
    """Runs benchmarks/report.py on a page and files of measurements."""

    def run(*given):
        options = [path for path in given if str(path).startswith("--")]
        page, *paths = [path for path in given if path not in options]
        return run_program("benchmarks/report.py", f"--page={page}", *options, *paths)

    return run


def test_tables_and_figure_replace_what_was_there(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    fast = row(
        runtime="in_process",
        program="stacked",
        seconds_median=0.1,
        seconds_min=0.09,
        seconds_max=0.2,
        ratio_to_native=20.0,
        ratio_to_native_min=12.5,
        ratio_to_native_max=25.0,
        ratio_to_floor=0.625,
    )
    zoned = row(work="C", privacy="ldp", ratio_to_native=None)
    zoned |= {"ratio_to_native_min": None, "ratio_to_native_max": None}
    times, shares = tmp_path / "times.json", tmp_path / "shares.json"
    times.write_text(json.dumps([row(notes="as it comes"), fast, zoned]))
    shares.write_text(
        json.dumps(
            [{"work": "A", "program": "stacked", "shares": {"matrix products": 0.4}}]
        )
    )
    result = report(page, times, shares)
    assert result.returncode == 0, result.stderr
    text = page.read_text()
    assert "old" not in text
    assert "between" in text
    fast_line = (
        "| stacked | in_process | 0.1 | 0.09..0.2 | 20.00 | 12.50..25.00 | 0.62 | "
    )
    assert fast_line in text
    assert "| ldp | fed_avg | native | 2 | 1.5..2.5 | - | - |" in text
    assert "Floor 0.16 s at 203 GFLOP/s. fed_avg: as it comes." in text
    assert "| matrix products | 40% |" in text
    figure = tmp_path / "figures" / "benchmarks_rounds.png"
    assert figure.stat().st_size > 1000
    rows = pd.read_csv(
        tmp_path / "results" / "benchmarks" / "rounds_2_cores_of_a_cpu_avx2.csv"
    )
    assert list(rows["seconds_median"]) == [2.0, 0.1, 2.0]
    assert report(page, times, shares).returncode == 0
    assert page.read_text() == text


def test_loops_have_their_rounds_a_second_and_their_parts(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    loop = {
        "work": "F",
        "task": "digits",
        "floor_seconds": None,
        "ratio_to_floor": None,
        "accuracy": 0.875,
    }
    native = row(**loop, rounds_per_second=0.5, parts=None, notes="as TFF has it")
    ours = row(
        **loop,
        runtime="in_process",
        program="stacked",
        rounds_per_second=60.25,
        parts={"round": 0.01, "evaluation": 0.002, "all else": 0.003},
    )
    times = tmp_path / "times.json"
    times.write_text(json.dumps([native, ours]))
    result = report(page, times)
    assert result.returncode == 0, result.stderr
    text = page.read_text()
    assert "### F: whole training loops" in text
    assert "| digits | fed_avg | native | 2 | 1.5..2.5 | 1.00 |" in text
    assert "| 60.25 | 0.88 | 1234 |" in text
    assert "| of a round, in ms | round | evaluation | all else |" in text
    assert "| stacked, digits | 10.0 | 2.0 | 3.0 | 30.0% |" in text
    rows = pd.read_csv(tmp_path / "results/benchmarks/rounds_2_cores_of_a_cpu_avx2.csv")
    parts = rows.loc[rows["program"] == "stacked", rows.columns.str.contains(",")]
    assert parts.iloc[0].to_dict() == {
        "seconds, round": 0.01,
        "seconds, evaluation": 0.002,
        "seconds, all else": 0.003,
    }
    assert "fed_avg: as TFF has it." in text
    assert "figures" not in text


def test_rows_of_a_task_that_is_not_measured_again_stay(report, tmp_path):
    page, times = tmp_path / "page.md", tmp_path / "times.json"
    page.write_text(PAGE)
    csv = tmp_path / "results/benchmarks/rounds_2_cores_of_a_cpu_avx2.csv"

    def measured(*tasks, seconds):
        given = {"work": "F", "rounds_per_second": 1.0, "accuracy": 0.5, "parts": None}
        rows = [row(task=t, seconds_median=seconds, **given) for t in tasks]
        times.write_text(json.dumps([*rows, row(seconds_median=seconds)]))
        assert report("--rows_only", page, times).returncode == 0
        found = pd.read_csv(csv)
        return set(zip(found["task"].fillna(""), found["seconds_median"], strict=True))

    first = measured("digits", "mnist", seconds=2.0)
    assert first == {("", 2.0), ("digits", 2.0), ("mnist", 2.0)}
    again = measured("digits", seconds=1.5)
    assert again == {("", 1.5), ("digits", 1.5), ("mnist", 2.0)}


def test_neighbour_systems_have_a_table_and_one_of_whole_runs(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    alone = row(work="gfl", runtime="in_process", program="alone", clients=1000)
    alone |= {"preset": "gfl/figure2_hybrid", "preset_rounds": 1500}
    stacked = alone | {"program": "stacked", "seconds_median": 0.5}
    loop = stacked | {"program": "loop"}
    longer = loop | {"work": "udp_alg", "preset": "udp_alg/2a"}
    longer |= {"preset_rounds": 7500, "seconds_median": 1.0}
    times = tmp_path / "times.json"
    times.write_text(json.dumps([row(), alone, stacked, loop, longer]))
    result = report(page, times)
    assert result.returncode == 0, result.stderr
    text = page.read_text()
    assert "| gfl | 1000 | stacked | 0.5 | 1.5..2.5 | 1.00 | 1.00..1.00 | 0.16" in text
    assert "| gfl/figure2_hybrid | 1,500 | 0.5 | 12.5 min |" in text
    assert "| udp_alg/2a | 7,500 | 1 | 2.1 h |" in text
    assert text.count("gfl/figure2_hybrid") == 1
    assert "### A: 100 clients" in text


def test_kinds_of_cpu_stand_side_by_side(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    times = tmp_path / "times.json"
    spread = {"seconds_min": 0.1, "seconds_max": 2.0}
    ours = spread | {
        "runtime": "in_process",
        "program": "stacked",
        "ratio_to_floor": 1.25,
    }
    others = [
        row(**spread, runtime=name, program=name, seconds_median=seconds)
        for name, seconds in (("flower", 1.0), ("fedjax", 0.6), ("pfl", 0.7))
    ]
    times.write_text(json.dumps([row(), row(**ours, seconds_median=0.1), *others]))
    assert report("--rows_only", page, times).returncode == 0
    loop = {"work": "F", "task": "digits", "rounds_per_second": 2.0, "accuracy": 0.9}
    loop |= {"machine": "2 cores of Another (AMX), CPU only"}
    fast = row(**loop, **ours) | {"seconds_median": 0.5}
    times.write_text(json.dumps([row(**loop), fast]))
    assert report("--rows_only", page, times).returncode == 0
    # Of what a GPU computed the machine's CPUs say nothing.
    times.write_text(json.dumps([row(**ours) | {"machine": "2 cores with a GPU"}]))
    assert report("--rows_only", page, times).returncode == 0
    assert page.read_text() == PAGE
    found = pd.read_csv(tmp_path / "results" / "benchmarks" / "fast.csv", index_col=0)
    avx2, other = "2 cores of a CPU (AVX2)", "2 cores of Another (AMX)"
    assert set(found) == {avx2, other}
    assert found[avx2].to_dict() == {
        "100 clients, dense: faster than native TFF": "20 times",
        "100 clients, dense: faster than the fastest peer": "6 times (FedJAX)",
        "100 clients, dense: against the floor": "1.25 times its time",
        "whole loop on digits: faster than TFF's own": "not measured",
    }
    assert list(found[other]) == ["not measured"] * 3 + ["4 times"]


def test_in_brief_a_work_has_its_range_over_machines(report, tmp_path):
    page, times = tmp_path / "page.md", tmp_path / "times.json"
    page.write_text(PAGE)
    ours = {"runtime": "in_process", "program": "stacked", "ratio_to_floor": 1.25}
    loop = {"work": "F", "task": "digits"}
    for cpu, seconds, peer in (("One", 0.1, "fedjax"), ("Two", 0.4, "pfl")):
        rows = [
            row(),
            row(**ours, seconds_median=seconds),
            row(runtime=peer, program=peer, seconds_median=0.6),
        ]
        if cpu == "Two":
            rows.append(row(**loop, **ours, seconds_median=0.5))
        machine = {"machine": f"2 cores of {cpu} (AMX), CPU only"}
        times.write_text(json.dumps([found | machine for found in rows]))
        assert report("--rows_only", page, times).returncode == 0
    found = pd.read_csv(tmp_path / "results" / "benchmarks" / "brief.csv")
    assert found.to_dict("records") == [
        {
            "the same work": "100 clients, dense",
            "times as fast as TFF": "5 to 20",
            "times as fast as the fastest peer": "1.5 to 6 (FedJAX, pfl-research)",
            "machines": 2,
        },
    ]


@pytest.mark.parametrize(
    "said, name",
    [
        (
            "2 cores of An M(R) @ 2.5GHz (AMX), CPU only",
            "rounds_2_cores_of_an_m_2_5ghz_amx",
        ),
        (
            "2 cores of An M (AMX, oneDNN held to AVX2), CPU only",
            "rounds_2_cores_of_an_m_amx_onednn_held_to_avx2",
        ),
        (
            "2 cores of An M (AMX) with A G, driver 5",
            "gpu_rounds_2_cores_of_an_m_amx_with_a_g_driver_5",
        ),
    ],
)
def test_every_machine_has_a_file_of_its_own(monkeypatch, said, name):
    """So rows of one with a GPU do not take the place of its CPU's."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import side_by_side

    assert side_by_side.file_name(said) == f"{name}.csv"


def test_a_work_measured_again_leaves_other_works_rows(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    times = tmp_path / "times.json"
    other = row(work="B", seconds_median=2.25, accuracy=0.5)
    times.write_text(json.dumps([row(), other]))
    assert report(page, times).returncode == 0
    text = page.read_text()
    times.write_text(json.dumps([row(seconds_median=2.125, accuracy=None)]))
    result = report(page, times)
    assert result.returncode == 2
    assert "page.md: has B: 20 clients, two convolutions too" in result.stderr
    assert page.read_text() == text
    rows = tmp_path / "results" / "benchmarks" / "rounds_2_cores_of_a_cpu_avx2.csv"
    before = pd.read_csv(rows)
    assert before.set_index("work")["seconds_median"].to_dict() == {"A": 2.0, "B": 2.25}
    with rows.open() as file:
        result = report("--rows_only", page, times)
        assert (result.returncode, result.stderr) == (0, "")
        # Who reads it meanwhile reads the old one to its end.
        assert pd.read_csv(file)["seconds_median"].tolist() == [2.0, 2.25]
    after = pd.read_csv(rows)
    assert after.set_index("work")["seconds_median"].to_dict() == {
        "A": 2.125,
        "B": 2.25,
    }
    assert [*after] == [*before]


def test_a_profile_alone_leaves_the_times(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    profile = {"program": "stacked", "shares": {"matrix products": 0.4}}
    shares = tmp_path / "shares.json"
    shares.write_text(json.dumps([profile | {"work": "A"}, profile | {"work": "B"}]))
    assert report(page, shares).returncode == 0
    text = page.read_text()
    assert text.count("old") == 1 and "| matrix products | 40% | 40% |" in text
    shares.write_text(json.dumps([profile | {"work": "A"}]))
    result = report(page, shares)
    assert result.returncode == 2 and "has B, stacked too" in result.stderr
    assert page.read_text() == text


@pytest.mark.parametrize(
    "rows, said",
    [
        ([], "files with measurements"),
        ([row(), row(machine="Another")], "files of one machine, not of 2 cores of a"),
    ],
)
def test_files_that_say_nothing_or_of_two_machines(report, tmp_path, rows, said):
    page, times = tmp_path / "page.md", tmp_path / "times.json"
    page.write_text(PAGE)
    times.write_text(json.dumps(rows))
    result = report(page, times)
    assert result.returncode == 2 and said in result.stderr
    assert page.read_text() == PAGE


def test_a_work_that_native_tff_did_not_run_is_compared_with_the_rest(report, tmp_path):
    page, times = tmp_path / "page.md", tmp_path / "times.json"
    page.write_text(PAGE)
    ours = row(runtime="in_process", program="stacked")
    times.write_text(json.dumps([ours]))
    result = report(page, times)
    assert result.returncode == 0, result.stderr
    found = pd.read_csv(tmp_path / "results" / "benchmarks" / "fast.csv", index_col=0)
    assert list(found.index) == ["100 clients, dense: against the floor"]


@pytest.mark.parametrize("page", ["no markers", PAGE.replace("<!-- /meas", "<!-- ")])
def test_a_page_without_markers_is_refused(report, tmp_path, page):
    path = tmp_path / "page.md"
    path.write_text(page)
    times = tmp_path / "times.json"
    times.write_text(json.dumps([row()]))
    result = report(path, times)
    assert result.returncode == 2
    assert "page.md: lacks the markers <!-- measurements -->" in result.stderr
    assert path.read_text() == page


def test_no_file_is_refused(report, tmp_path):
    result = report(tmp_path / "page.md")
    assert result.returncode == 2
    assert "FILE is None; allowed: files" in result.stderr


def test_time_in_an_operation_alone(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import profile_round

    names = {1: "while:While", 2: "body/MatMul:MatMul", 3: "ExecutorState::Process"}

    def event(kind, start, length):
        return types.SimpleNamespace(
            metadata_id=kind, offset_ps=start, duration_ps=length
        )

    # A loop of 100 with two products, one of them beneath the executor's event.
    events = [
        event(2, 70, 10),
        event(1, 0, 100),
        event(3, 10, 50),
        event(2, 20, 30),
        event(2, 120, 5),
    ]
    found = list(profile_round._own_times(events, names))
    assert sorted(found) == [
        ("MatMul", 5),
        ("MatMul", 10),
        ("MatMul", 30),
        ("While", 40),
    ]
    assert profile_round._kind("BatchMatMulV2") == "matrix products"
    assert profile_round._kind("_MklFusedMatMul") == "matrix products"
    assert profile_round._kind("_MklNativeConv2DBackpropInput") == "convolutions"
    assert profile_round._kind("Relu") == "element by element, and the rest"
