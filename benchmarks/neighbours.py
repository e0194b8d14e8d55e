"""The works of the neighbour systems: stacked, client by client, and in a loop."""

from collections.abc import Mapping

import children
import measure
import neighbour_works
import rows
from measure import Subject
from neighbour_works import Neighbour

_COMPARED = ("alone", "stacked")
_PROGRAMS = (*_COMPARED, "loop")
_RUNTIME = "in_process"


def measured(work: Neighbour, rounds: int) -> list[rows.Row]:
    """Seconds a round of a neighbour system, by program, and its floor.

    Args:
      work: Which.
      rounds: Of each, after warm-up.

    Raises:
      CheckError: If without noise the clients alone and stacked come to different
        models.
      ProgramError: If a program fails.
    """
    neighbour_works.use_made_up_examples()
    done, config = work.round, work.config(noisy=True)
    subjects = [
        Subject(_RUNTIME, program, "programs.neighbour", options={"program": program})
        for program in _PROGRAMS
    ]
    rate = measure.sgemm_flops()
    with measure.started(subjects, work) as running:
        _check(work, running)
        for i, subject in enumerate(subjects):
            name = f"{subject.program} on {work.name}"
            measure.warm_up(running[i], name, None, noisy=True)
        seconds, peaks = measure.take_turns(running, rounds)
    result = measure.make_rows(
        subjects, done, seconds, peaks, rate=rate, baseline=_PROGRAMS.index("alone")
    )
    for row in result:
        row.preset, row.preset_rounds = work.preset, config.rounds
    return result


def _check(work: Neighbour, running: Mapping[int, children.Child]) -> None:
    """Compares a round without noise, clients alone and stacked."""
    alone, stacked = (running[_PROGRAMS.index(name)] for name in _COMPARED)
    for child in (alone, stacked):
        child.build(noisy=False)
    start = alone.weights()
    for child in (alone, stacked):
        child.round()
    right = alone.weights()
    norm = measure.distance(right, start)
    reference = measure.Reference(work, right, norm)
    reference.check(stacked.weights(), "stacked", noisy=False)
