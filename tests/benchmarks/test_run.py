"""benchmarks/run.py from its flags to its JSON, on tiny cohorts and without peers."""

import json

import pytest

FIELDS = {
    "work",
    "runtime",
    "seconds_median",
    "seconds_min",
    "seconds_max",
    "ratio_to_native",
    "peak_rss_mb",
}
SCRIPT = "benchmarks/run.py"


@pytest.fixture
def measured(run_program, tmp_path):
    """Runs benchmarks/run.py and returns the rows that it wrote."""

    def run(*arguments):
        path = tmp_path / "rows.json"
        result = run_program(SCRIPT, f"--json={path}", *arguments, timeout=None)
        assert result.returncode == 0, result.stderr
        found = json.loads(path.read_text())
        assert len(result.stdout.splitlines()) == len(found)
        for row in found:
            assert set(row) >= FIELDS
            assert 0 < row["seconds_min"] <= row["seconds_median"] <= row["seconds_max"]
            assert 50 < row["peak_rss_mb"] < 20_000
        return found

    return run


@pytest.mark.slow
def test_work_a(measured):
    found = measured("--runtimes=in_process", "--clients=3", "--rounds=2")
    assert [row["program"] for row in found] == ["fed_avg", "stacked"]
    for row in found:
        assert (row["work"], row["clients"], row["rounds"]) == ("A", 3, 2)
        assert row["ratio_to_native"] is None
        floor = 3 * 500 * (4 * 784 * 200 + 6 * 2000) / (row["sgemm_gflops"] * 1e9)
        assert row["floor_seconds"] == pytest.approx(floor)
        assert row["ratio_to_floor"] == pytest.approx(row["seconds_median"] / floor)


@pytest.mark.slow
def test_work_a_against_native_and_on_a_cluster(measured):
    found = measured(
        "--runtimes=native,in_process,cluster", "--clients=3", "--rounds=3"
    )
    native = found[0]
    assert (native["program"], native["runtime"]) == ("fed_avg", "native")
    assert native["ratio_to_native"] == 1.0
    assert {row["runtime"] for row in found} == {"native", "in_process", "cluster"}
    for row in found:
        ratio = native["seconds_median"] / row["seconds_median"]
        assert row["ratio_to_native"] == pytest.approx(ratio)
        assert row["ratio_to_native_min"] <= row["ratio_to_native_max"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "size", "field", "values"),
    [
        ("B", ["--clients=2", "--rounds=1"], "program", ["fed_avg", "stacked"]),
        (
            "C",
            ["--clients=10", "--rounds=1"],
            "privacy",
            ["none", "cdp", "hdp", "ldp"],
        ),
        ("D", ["--cohorts=2,25", "--rounds=1"], "clients", [2, 25]),
        (
            "E",
            ["--training_rounds=2", "--accuracy=0", "--runs=1"],
            "program",
            ["stacked"],
        ),
        (
            "F",
            ["--tasks=digits", "--loop_rounds=3", "--runs=1"],
            "task",
            ["digits"],
        ),
    ],
)
def test_works_b_to_f(measured, work, size, field, values):
    found = measured(f"--work={work}", "--runtimes=in_process", *size)
    assert [row["work"] for row in found] == [work] * len(values)
    assert [row[field] for row in found] == values


@pytest.mark.slow
def test_work_f_against_native(measured):
    native, ours = measured(
        "--work=F", "--tasks=digits", "--loop_rounds=20", "--runs=1"
    )
    assert (native["program"], native["runtime"]) == ("fed_avg", "native")
    assert (ours["program"], ours["runtime"]) == ("stacked", "in_process")
    assert native["parts"] is None
    assert set(ours["parts"]) == {"round", "evaluation", "all else"}
    assert 0 < ours["parts"]["round"] < ours["seconds_max"]
    for row in (native, ours):
        assert (row["task"], row["clients"], row["registered"]) == ("digits", 25, 200)
        assert row["rounds"] == 20
        slowest, fastest = 1 / row["seconds_max"], 1 / row["seconds_min"]
        assert slowest <= row["rounds_per_second"] <= fastest
    ratio = native["seconds_median"] / ours["seconds_median"]
    assert ours["ratio_to_native"] == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--work=Z"], ["--work", "Z", "A, B, cnn_small, lenet, C, D, E, F, G"]),
        (["--work="], ["--work", "A, B, cnn_small, lenet, C, D, E, F, G"]),
        (["--runtimes=gpu"], ["--runtimes", "gpu", "in_process"]),
        (["--peers=magic"], ["--peers", "magic", "flower"]),
        (["--rounds=0"], ["--rounds", "0", "positive"]),
        (["--work=F", "--tasks=cifar10"], ["--tasks", "cifar10", "digits, mnist"]),
        (["--work=F", "--runtimes=cluster"], ["--runtimes", "cluster", "native"]),
        (["--work=E", "--runtimes=cluster"], ["--runtimes", "cluster", "--work=E"]),
        (["--work=F", "--loop_rounds=0"], ["--loop_rounds", "0", "positive"]),
        (["--cohorts=10,-1"], ["--cohorts", "10,-1", ">= 1"]),
        (["--work=C", "--clients=15"], ["--clients", "15", "multiple of 10"]),
        (["extra"], ["extra", "flags only"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(assert_refused, arguments, words):
    assert_refused(SCRIPT, arguments, words)
