"""Many runs side by side: none lost, none twice, all told. The runs are stubs."""

import dataclasses
import itertools
import json
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from scripts.parts import sweep_runs, sweep_tables
from scripts.parts.sweep_job import Job
from tff_hdp import systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import PoissonSampling, account, configurations
from tff_hdp.systems.hdp.config import HdpConfig

# Writes what a run writes. It stops after a round the first time that a file `killed`
# says so, and fails where there is a file `broken`.
STUB = """
import json, pathlib, sys
out, given = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
with open(out.parent / "started", "a") as log:
    print(out.name, file=log)
print("working")
if (out.parent / "broken").exists():
    sys.exit("error: cannot")
rounds = given["flags"]["rounds"]
stop = out.parent / "killed"
done = 1 if stop.exists() else rounds
seed = given["flags"]["seed"]
# A column named like a setting: what came of it.
rows = [f"{r},{r / 10 + seed / 100},{seed + r / 7}" for r in range(1, done + 1)]
header = "round,accuracy,noise_multiplier"
(out / "metrics.csv").write_text("\\n".join([header, *rows]) + "\\n")
(out / "config.json").write_text(json.dumps(given))
if stop.exists():
    stop.unlink()
    sys.exit(9)
(out / "privacy.json").write_text(json.dumps(given["privacy"]))
(out / "journal.jsonl").touch()
(out / "model" / "last").mkdir(parents=True)
card = {"metric": "accuracy", "round": rounds, "value": 0.5}
(out / "model" / "last" / "card.json").write_text(json.dumps(card))
"""
PLAN = configurations.c2(
    zone_sizes=(5, 5), sampling=PoissonSampling((0.5,) * 2), noise_multiplier=1.0
)


@pytest.fixture
def jobs(tmp_path):
    """Two settings, two seeds."""
    rows = [row.to_dict() for row in account(PLAN, 3, 1e-5, ("rdp",))]
    made = []
    for z, seed in itertools.product(("1", "2"), ("0", "1")):
        settings = {"noise_multiplier": z, "seed": seed}
        out = tmp_path / sweep_runs.folder_name(settings)
        config = HdpConfig(
            noise_multiplier=float(z), seed=int(seed), rounds=3, out=str(out)
        )
        given = {
            "flags": config.to_dict(),
            "git_commit": "abc",
            "privacy": {
                "last_round": 3,
                "journal": [0, None],
                "privacy": "hdp",
                "notes": [],
                "accounts": rows,
            },
        }
        command = [sys.executable, "-S", "-c", STUB, str(out), json.dumps(given)]
        made.append(Job(settings, config, command))
    return made


def started(tmp_path):
    return (tmp_path / "started").read_text().split()


def test_grids_are_products_and_add_up():
    found = sweep_runs.combinations(["privacy=none", "privacy=cdp,hdp;rounds=3,4"])
    assert found == [
        {"privacy": "none"},
        {"privacy": "cdp", "rounds": "3"},
        {"privacy": "cdp", "rounds": "4"},
        {"privacy": "hdp", "rounds": "3"},
        {"privacy": "hdp", "rounds": "4"},
    ]
    assert sweep_runs.combinations([""]) == [{}]


@pytest.mark.parametrize("program", systems.PROGRAMS)
def test_a_job_runs_the_program_that_it_names(program, tmp_path):
    needs = {"train": "--privacy=none", "udp_hypernet": "--privacy=none"}
    given = [needs.get(program, "--seed=3")]
    command = sweep_runs.job_of(program, given, {}, tmp_path / "run").command
    file = pathlib.Path(command[1])
    assert file.is_file() and file.parent.name == "scripts" and file.stem == program
    assert command[2:] == [*given, f"--out={tmp_path / 'run'}"]


@pytest.mark.parametrize(
    "grids", [["a"], ["a=1,"], ["=1"], ["a=1;a=2"], ["a=1,1"], ["a=1", "a=1"]]
)
def test_a_bad_grid_is_named(grids):
    with pytest.raises(ArgumentError, match="grid is "):
        sweep_runs.combinations(grids)


def test_every_run_has_its_row_and_finished_ones_are_left_alone(jobs, tmp_path, capsys):
    assert sweep_runs.run_jobs(jobs, 2) == []
    # No bar where no terminal is: at most a line for each run.
    said = capsys.readouterr().err
    assert said.endswith("sweep: 4/4 runs, 0 before, 0 failed, 00:00 left\n")
    assert "\r" not in said and said.count("\n") <= 4
    assert all(re.search(r" \d\d:\d\d left$", line) for line in said.splitlines())
    assert sorted(started(tmp_path)) == sorted(job.path.name for job in jobs)
    assert sweep_runs.run_jobs(jobs, 2) == []
    assert len(started(tmp_path)) == 4
    frame = sweep_tables.table(jobs)
    assert frame["noise_multiplier"].tolist() == ["1", "1", "2", "2"]
    found = frame["noise_multiplier in the run"].tolist()
    assert found == pytest.approx([3 / 7, 1 + 3 / 7] * 2)
    assert sweep_tables.measured(jobs[0]) == ["accuracy"]
    assert frame["seed"].tolist() == [0, 1, 0, 1]
    assert frame["accuracy"].tolist() == pytest.approx([0.3, 0.31, 0.3, 0.31])
    assert frame["digest"].nunique() == 2
    # Every epsilon with all it rests on, in full.
    for row in account(PLAN, 3, 1e-5, ("rdp",)):
        level = f".level{row.level}" if row.observer == "super_node" else ""
        name = f"{row.observer}{level}.hdp"
        assert frame[f"{name}.assumptions"].tolist() == [row.assumptions] * 4
        assert frame[f"{name}.neighbours"].tolist() == [row.neighbours] * 4
        if row.epsilon_rdp is not None:
            assert frame[f"{name}.epsilon_rdp"].tolist() == [row.epsilon_rdp] * 4
    assert frame["delta"].tolist() == [1e-5] * 4
    summed = sweep_tables.summary(frame, ["noise_multiplier"], "accuracy")
    assert summed["count"].tolist() == [2, 2]
    assert summed["mean"].tolist() == pytest.approx([0.305, 0.305])
    assert summed["std"].tolist() == pytest.approx([0.01 / 2**0.5] * 2)
    sweep_tables.draw(jobs, ["noise_multiplier"], "accuracy", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("file", "lacks"),
    [("model/best/card.json", "metric, value, round"), ("config.json", "git_commit")],
)
def test_a_finished_run_of_which_something_is_gone_is_one_line(jobs, file, lacks):
    assert sweep_runs.run_jobs(jobs, 2) == []
    path = jobs[1].path / file
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept.pop("git_commit", None)
    path.write_text(json.dumps(kept))
    with pytest.raises(FileError, match=f"{file}: is not .*: no {lacks}$"):
        sweep_tables.table(jobs)


def test_what_a_run_measured_is_no_setting_of_another_grids(jobs):
    """Two grids: z as given, and another flag, beside which z is what came of it."""
    for i, job in enumerate(jobs[2:], 2):
        others = {"clipping": "adaptive", "seed": job.settings["seed"]}
        jobs[i] = dataclasses.replace(job, settings=others)
    assert sweep_runs.run_jobs(jobs, 2) == []
    frame = sweep_tables.table(jobs)
    assert frame["noise_multiplier"].tolist()[:2] == ["1", "1"]
    summed = sweep_tables.summary(frame, ["noise_multiplier", "clipping"], "accuracy")
    assert summed["noise_multiplier"].tolist() == ["1", "-"]
    assert summed["clipping"].tolist() == ["-", "adaptive"]
    assert summed["count"].tolist() == [2, 2]


def test_a_killed_run_is_started_again_by_the_next_sweep(jobs, tmp_path):
    (tmp_path / "killed").touch()
    failed = sweep_runs.run_jobs(jobs, 1)
    assert failed == jobs[:1]
    assert jobs[0].rounds_done == 1
    assert len(sweep_tables.table(jobs)) == 3
    assert sweep_runs.run_jobs(jobs, 1) == []
    assert started(tmp_path).count(jobs[0].path.name) == 2
    assert len(started(tmp_path)) == 5


def test_what_a_failing_run_says_is_kept(jobs, tmp_path):
    (tmp_path / "broken").touch()
    assert sweep_runs.run_jobs(jobs, 4) == jobs
    assert jobs[0].log.read_text().split("\n")[:2] == ["working", "error: cannot"]
    assert sweep_tables.table(jobs).empty


def test_what_an_attempt_said_is_kept_by_the_next(jobs, tmp_path, capsys):
    """It was gone once the run was begun again, if only to be refused."""
    (tmp_path / "broken").touch()
    sweep_runs.run_jobs(jobs[:1], 1)
    (tmp_path / "broken").unlink()
    (tmp_path / "killed").touch()
    capsys.readouterr()
    sweep_runs.run_jobs(jobs[:1], 1)
    said = jobs[0].log.read_text().splitlines()
    assert said == ["working", "error: cannot", "sweep: run again", "working"]
    says_nothing = [sys.executable, "-c", "raise SystemExit(1)"]
    silent = dataclasses.replace(jobs[0], command=says_nothing)
    sweep_runs.run_jobs([silent], 1)
    assert f"failed: {silent.path}: sweep: run again\n" in capsys.readouterr().err


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_metric_that_no_run_measures_costs_one_run(jobs, tmp_path, at_once):
    """It was refused once all had trained."""
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"metric is foo; allowed: accuracy$"):
            sweep_runs.run_jobs(jobs, at_once, "foo")
        # The second time none is begun.
        assert len(started(tmp_path)) <= at_once
    assert sweep_runs.run_jobs(jobs, at_once, "accuracy") == []


def test_a_folder_of_other_settings_is_not_taken_for_finished(jobs):
    sweep_runs.run_jobs(jobs[:1], 1)
    longer = HdpConfig(noise_multiplier=1.0, seed=0, rounds=4, out=jobs[0].config.out)
    assert jobs[0].is_finished
    assert not Job(jobs[0].settings, longer, []).is_finished


def test_a_run_that_was_tested_otherwise_is_not_taken_for_finished(jobs, capsys):
    """Its best round is another, under the settings of the one that is asked for."""
    folder = jobs[0].config.out
    seldom = HdpConfig(
        noise_multiplier=1.0, seed=0, rounds=3, evaluate_every=2, out=folder
    )
    given = json.loads(jobs[0].command[-1]) | {"flags": seldom.to_dict()}
    command = [*jobs[0].command[:-1], json.dumps(given)]
    job = Job(jobs[0].settings, seldom, command)
    assert sweep_runs.run_jobs([job], 1) == [job]
    assert "has tests of other rounds than its settings" in capsys.readouterr().err
    rows = pathlib.Path(folder, "metrics.csv")
    first = rows.read_text().splitlines()[1]
    rows.write_text(rows.read_text().replace(first, "1,,0.14"))
    assert job.is_finished and not jobs[0].is_finished


@pytest.mark.parametrize(
    "name", ["config.json", "model/last/card.json", "privacy.json"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"3", b"\xff", None])
def test_a_damaged_folder_is_not_taken_for_finished(jobs, name, content):
    sweep_runs.run_jobs(jobs[:1], 1)
    assert jobs[0].is_finished
    file = jobs[0].path / name
    if content is None:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(content)
    assert not jobs[0].is_finished


def test_an_open_quote_in_long_metrics_is_no_finished_run(jobs):
    """A field beyond 131,072 bytes is an error of the reader's own kind."""
    sweep_runs.run_jobs(jobs[:1], 1)
    file = jobs[0].path / "metrics.csv"
    file.write_text(file.read_text() + '"' + "x" * 140_000)
    assert not jobs[0].is_finished


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_children_end_with_the_sweep(tmp_path, assert_ends, end):
    code = f"""
    import pathlib, sys
    from scripts.parts import sweep_runs
    from scripts.parts.sweep_job import Job
    from tff_hdp.systems.hdp.config import HdpConfig
    stub = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); " \\
        "time.sleep(60)"
    jobs = []
    for seed in (1, 2):
        path = {str(tmp_path)!r} + f"/run{{seed}}"
        config = HdpConfig(noise_multiplier=1.0, seed=seed, out=path)
        command = [sys.executable, "-S", "-c", stub, path + ".pid"]
        jobs.append(Job({{"seed": str(seed)}}, config, command))
    sweep_runs.run_jobs(jobs, 2)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pids = [tmp_path / f"run{seed}.pid" for seed in (1, 2)]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all(map(_written, pids)):
        time.sleep(0.05)
    process.send_signal(end)
    assert process.wait(30) != 0
    for path in pids:
        assert_ends(int(path.read_text()))


def test_what_starts_runs_and_tells_of_them_imports_no_tensorflow():
    """Each run imports it; a sweep that did too began ten seconds later."""
    code = """
    import sys
    from scripts.parts import sweep_runs, sweep_tables
    from tff_hdp.systems.hdp.config import HdpConfig
    assert "tensorflow" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def _written(path: pathlib.Path) -> bool:
    return path.exists() and bool(path.read_text())
