"""The secure sums that are timed beside each other are sums of the same updates."""

import numpy as np
import pandas as pd
import pytest

from tff_hdp import runtime

CLIENTS, ZONES, SIZE = 6, 2, 40


@pytest.fixture(scope="module")
def calls():
    from benchmarks import secure_aggregators

    runtime.set_context("in_process")
    return secure_aggregators.methods(SIZE, CLIENTS, ZONES)


def test_all_sum_the_same_updates(calls):
    """TFF's mean, and this project's, whose zones' sums the protocols take alike."""
    theirs, intrinsic, *protocols = (call() for call in calls.values())
    mean = np.asarray(intrinsic.result)
    assert np.linalg.norm(mean) > 0.1
    # TFF's grid is of 32 bits of a range that it adapts, from 1 per coordinate on.
    np.testing.assert_allclose(np.asarray(theirs.result), mean, atol=1e-4)
    for found in protocols:
        summed = found.vectors[:, :-1].sum(axis=0)
        assert found.vectors[:, -1].tolist() == [CLIENTS // ZONES] * ZONES
        np.testing.assert_allclose(
            summed / np.linalg.norm(summed), mean / np.linalg.norm(mean), atol=1e-6
        )


@pytest.mark.slow
def test_the_command_has_a_row_a_size_and_method(run_program, tmp_path):
    file = tmp_path / "rows.csv"
    done = run_program(
        "benchmarks/secure_aggregators.py",
        *("--sizes=30,50", "--clients=4", "--zones=2", "--turns=2", f"--csv={file}"),
    )
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(file)
    assert rows["coordinates"].tolist() == [30] * 4 + [50] * 4
    assert (rows["quarter"] <= rows["seconds"]).all()
    assert (rows["seconds"] <= rows["three quarters"]).all()
    assert rows["machine"].str.contains("CPU only").all()
