"""The works of the neighbour systems: stacked, client by client, and their floors."""

import measure
import neighbour_works
import rows
from measure import Subject
from neighbour_works import Neighbour

_PROGRAMS = ("alone", "stacked")
_RUNTIME = "in_process"


def measured(work: Neighbour, rounds: int) -> list[rows.Row]:
    """Seconds a round of a neighbour system, with each client alone and as it comes.

    Args:
      work: Which.
      rounds: Of each, after warm-up.

    Raises:
      CheckError: If without noise the two come to different models.
      ProgramError: If one of them fails.
    """
    neighbour_works.use_made_up_examples()
    done = work.round
    subjects = [
        Subject(_RUNTIME, program, "programs.neighbour", options={"program": program})
        for program in _PROGRAMS
    ]
    rate = measure.sgemm_flops()
    with measure.started(subjects, work) as running:
        reference = None
        for i, subject in enumerate(subjects):
            name = f"{subject.program} on {work.name}"
            child = running[i]
            child.build(noisy=False)
            start = child.weights()
            child.round()
            found = child.weights()
            if reference is None:
                norm = measure.distance(found, start)
                reference = measure.Reference(work, found, norm)
            reference.check(found, name, noisy=False)
            measure.warm_up(child, name, None, noisy=True)
        seconds, peaks = measure.take_turns(running, rounds)
    config = work.config(noisy=True)
    result = measure.make_rows(
        subjects, done, seconds, peaks, rate=rate, baseline=_PROGRAMS.index("alone")
    )
    for row in result:
        row.preset, row.preset_rounds = work.preset, config.rounds
    return result
