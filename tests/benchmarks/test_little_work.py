"""The timing of little work: rounds both ways, and how much it is."""

import pandas as pd


def test_a_row_has_both_ways_and_the_work(run_program, tmp_path):
    file = tmp_path / "rows.csv"
    done = run_program(
        "benchmarks/little_work.py",
        *("--cases=digits:softmax:3:2", "--rounds=2", f"--csv={file}"),
    )
    assert done.returncode == 0, done.stderr
    (row,) = pd.read_csv(file).to_dict("records")
    # 1,437 examples among 400 clients, four at most, in two passes; 65 weights a digit.
    assert row["examples times weights"] == 3 * 4 * 2 * 650
    assert row["quarter"] <= row["together / apart"] <= row["three quarters"]
    assert row["seconds apart"] > 0 < row["seconds together"]


def test_other_cases_are_refused_in_one_line(run_program):
    done = run_program("benchmarks/little_work.py", "--cases=digits:softmax:0:2")
    assert done.returncode == 2
    assert "cases is digits:softmax:0:2; allowed: task:model:clients" in done.stderr
