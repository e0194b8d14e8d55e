"""One thread within an operation beside a thread a core."""

import dataclasses
import os
import time

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")


def test_processor_seconds_are_those_of_all_threads():
    import lanes

    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    # In ticks of a hundredth of a second, user and system apart.
    assert lanes.processor_seconds(os.getpid()) == pytest.approx(
        time.process_time(), abs=0.05
    )


@pytest.mark.slow
@pytest.mark.usefixtures("every_core")
def test_each_number_of_threads_has_a_row():
    import lanes
    import works

    work = dataclasses.replace(works.WORKS["A"], clients=4)
    rows = lanes.timed(work, rounds=2)
    assert [row["threads"] for row in rows] == [1, len(os.sched_getaffinity(0))]
    assert all(row["seconds"] > 0 for row in rows)
    assert all(row["processor seconds"] > 0 for row in rows)
    assert "TF_NUM_INTRAOP_THREADS" not in os.environ
