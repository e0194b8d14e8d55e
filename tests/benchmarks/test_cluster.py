"""Clusters are timed on the same rounds, and what they are sent is counted."""

import os

import pandas as pd
import pytest


@pytest.mark.slow
def test_the_command_has_a_row_a_case(run_program, tmp_path):
    file = tmp_path / "rows.csv"
    done = run_program(
        "benchmarks/cluster.py",
        *("--what=data", "--clients=4", "--turns=2", f"--csv={file}"),
    )
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(file)
    assert rows["kept"].tolist() == ["yes", "no"]
    assert (rows["quarter"] <= rows["seconds"]).all()
    # 100 examples of 784 numbers a client, in float32, and the model to each worker.
    assert (rows["first MB"] > 4 * 0.3136).all()
    assert rows["last MB"][1] > 4 * 0.3136
    assert rows["machine"].str.contains("CPU only").all()


def test_a_part_that_is_not_there_is_one_line(run_program):
    done = run_program("benchmarks/cluster.py", "--what=all")
    assert done.returncode == 2
    assert "--what" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("every_core")
def test_workers_are_one_and_one_a_core(run_program, tmp_path):
    file = tmp_path / "rows.csv"
    done = run_program(
        "benchmarks/cluster.py",
        *("--what=workers", "--clients=11", "--turns=1", f"--csv={file}"),
    )
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(file)
    cores = len(os.sched_getaffinity(0))
    assert rows["workers"].tolist() == [1, cores]
    # Eleven clients are two stacks; each worker that has one is sent the model.
    model = 4 * 2.15649
    assert rows["last MB"][0] > model
    assert rows["last MB"][1] > min(2, cores) * model
