"""The timing of whole rounds: parts that add up, of rounds that were run."""

import pandas as pd
import pytest


@pytest.mark.slow
def test_parts_add_up(run_program, tmp_path):
    file = tmp_path / "rows.csv"
    done = run_program(
        "benchmarks/hierarchy.py",
        *("--task=digits", "--clients=60", "--cohorts=12", "--zones=2", "--rounds=2"),
        f"--csv={file}",
    )
    assert done.returncode == 0, done.stderr
    (row,) = pd.read_csv(file).to_dict("records")
    assert (row["n"], row["k"], row["rounds"]) == (60, 12, 2)
    # Of two rounds a median is the mean, and adds up.
    parts = row["elections"] + row["secure sums"] + row["training"]
    assert row["seconds"] == pytest.approx(parts, rel=1e-2)
    assert 0 < row["elections, critical path"] < row["elections"]
    assert 0 < row["secure sums, critical path"] < row["secure sums"]
    assert row["training"] > 0
    assert row["quarter"] <= row["seconds"] <= row["three quarters"]
