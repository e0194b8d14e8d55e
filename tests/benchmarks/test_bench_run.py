"""benchmarks/run.py from its flags to its JSON, on tiny cohorts and without peers."""

import json
import subprocess
import sys

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


def bench(repository, *arguments):
    return subprocess.run(
        [sys.executable, "benchmarks/run.py", *arguments],
        capture_output=True,
        text=True,
        cwd=repository,
    )


def measured(repository, tmp_path, *arguments):
    path = tmp_path / "rows.json"
    result = bench(repository, f"--json={path}", *arguments)
    assert result.returncode == 0, result.stderr
    found = json.loads(path.read_text())
    assert len(result.stdout.splitlines()) == len(found)
    for row in found:
        assert set(row) >= FIELDS
        assert 0 < row["seconds_min"] <= row["seconds_median"] <= row["seconds_max"]
        assert 50 < row["peak_rss_mb"] < 20_000
    return found


def test_work_a(repository, tmp_path):
    found = measured(
        repository, tmp_path, "--runtimes=in_process", "--clients=3", "--rounds=2"
    )
    assert [row["program"] for row in found] == ["fed_avg", "stacked"]
    for row in found:
        assert (row["work"], row["clients"], row["rounds"]) == ("A", 3, 2)
        assert row["ratio_to_native"] is None
        floor = 3 * 500 * (4 * 784 * 200 + 6 * 2000) / (row["sgemm_gflops"] * 1e9)
        assert row["floor_seconds"] == pytest.approx(floor)
        assert row["ratio_to_floor"] == pytest.approx(row["seconds_median"] / floor)


@pytest.mark.slow
def test_work_a_against_native_and_on_a_cluster(repository, tmp_path):
    found = measured(
        repository,
        tmp_path,
        "--runtimes=native,in_process,cluster",
        "--clients=3",
        "--rounds=3",
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
def test_work_b(repository, tmp_path):
    found = measured(
        repository,
        tmp_path,
        "--work=B",
        "--runtimes=in_process",
        "--clients=2",
        "--rounds=1",
    )
    assert [row["program"] for row in found] == ["fed_avg", "stacked"]


@pytest.mark.slow
def test_work_c(repository, tmp_path):
    found = measured(
        repository,
        tmp_path,
        "--work=C",
        "--runtimes=in_process",
        "--clients=10",
        "--rounds=1",
    )
    assert [row["privacy"] for row in found] == ["none", "cdp", "hdp", "ldp"]


@pytest.mark.slow
def test_work_d(repository, tmp_path):
    found = measured(
        repository,
        tmp_path,
        "--work=D",
        "--runtimes=in_process",
        "--cohorts=2,25",
        "--rounds=1",
    )
    assert [row["clients"] for row in found] == [2, 25]


@pytest.mark.slow
def test_work_e(repository, tmp_path):
    found = measured(
        repository,
        tmp_path,
        "--work=E",
        "--runtimes=in_process",
        "--training_rounds=2",
        "--accuracy=0",
        "--runs=1",
    )
    assert [(row["work"], row["program"]) for row in found] == [("E", "stacked")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--work=Z"], ["--work", "Z", "A, B, C, D, E"]),
        (["--work="], ["--work", "A, B, C, D, E"]),
        (["--runtimes=gpu"], ["--runtimes", "gpu", "in_process"]),
        (["--peers=magic"], ["--peers", "magic", "flower"]),
        (["--rounds=0"], ["--rounds", "0", ">= 1"]),
        (["--cohorts=10,-1"], ["--cohorts", "10,-1", ">= 1"]),
        (["--work=C", "--clients=15"], ["--clients", "15", "multiple of 10"]),
        (["extra"], ["extra", "flags only"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(repository, arguments, words):
    result = bench(repository, *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert all(word in result.stderr for word in words), result.stderr
