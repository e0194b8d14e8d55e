"""What a run's log has, and what its program's handlers get."""

import contextlib
import logging

import pytest

from tff_hdp.simulation.run_log import logging_to

RUNS = logging.getLogger("tff_hdp.simulation")


@pytest.fixture
def library():
    """The library's logger in a program that sets no level for it."""
    found = logging.getLogger("tff_hdp")
    before = found.level
    found.setLevel(logging.NOTSET)
    yield found
    found.setLevel(before)


def test_a_run_from_python_has_a_log_of_its_own(library, tmp_path):
    """Programs set a level for what the library says; who calls it need not."""
    for level, said in ((logging.NOTSET, True), (logging.ERROR, False)):
        library.setLevel(level)
        with logging_to(tmp_path / f"{level}.log") as path:
            RUNS.info("round 2 of 2")
        assert library.level == level
        assert ("round 2 of 2" in path.read_text()) == said


def test_the_programs_handlers_get_what_they_would_without_a_run(
    library, tmp_path, caplog
):
    """Those of the root had a run's lines too, and importing TFF puts one there."""
    with logging_to(tmp_path / "run.log") as path:
        RUNS.info("round 1 of 2")
        RUNS.warning("a disk is full")
        with caplog.at_level(logging.INFO, RUNS.name):
            RUNS.info("round 2 of 2")
    assert caplog.messages == ["a disk is full", "round 2 of 2"]
    said = [line.split(maxsplit=3)[3] for line in path.read_text().splitlines()]
    assert said == ["round 1 of 2", "a disk is full", "round 2 of 2"]
    caplog.clear()
    with caplog.at_level(logging.INFO, library.name), logging_to(path):
        RUNS.info("asked for")
    assert caplog.messages == ["asked for"]


def test_a_run_that_goes_on_keeps_its_log_where_another_ends(library, tmp_path, caplog):
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(logging_to(tmp_path / "first.log"))
        path = second.enter_context(logging_to(tmp_path / "second.log"))
        first.close()
        RUNS.info("round 2 of 2")
        assert "round 2 of 2" in path.read_text()
    RUNS.info("nobody asked for this")
    RUNS.warning("once")
    assert caplog.messages == ["once"]
