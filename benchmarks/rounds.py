"""Works A to D: seconds a round, by program and runtime."""

import dataclasses
from collections.abc import Sequence

import environments
import measure
import rows
import works
from measure import Subject


def _ours(program: str, runtime: str) -> Subject:
    module = {"fed_avg": "programs.fed_avg", "stacked": "programs.stacked"}[program]
    return Subject(runtime, program, module, options={"runtime": runtime})


def _baseline(subjects: Sequence[Subject], program: str) -> int | None:
    """Index of `program` on the native runtime; None if it is not measured."""
    for i, subject in enumerate(subjects):
        if (subject.runtime, subject.program) == ("native", program):
            return i
    return None


def one_cohort(
    work: works.Work, runtimes: Sequence[str], peers: Sequence[str], rounds: int
) -> list[rows.Row]:
    """Works A and B: unmodified TFF and this project on every runtime, and peers."""
    subjects = [
        _ours(program, runtime)
        for program in ("fed_avg", "stacked")
        for runtime in runtimes
    ]
    subjects += environments.round_subjects(peers)
    reference = measure.Reference.of(work)
    rate = measure.sgemm_flops()
    with measure.started(subjects, work) as running:
        for i, subject in enumerate(subjects):
            measure.warm_up(
                running[i],
                f"{subject.program} on {subject.runtime}",
                reference,
                noise_multiplier=reference.noise_multiplier,
            )
        seconds, peaks = measure.take_turns(running, rounds)
    baseline = _baseline(subjects, "fed_avg")
    return measure.make_rows(
        subjects, work, seconds, peaks, rate=rate, baseline=baseline
    )


def privacy_modes(
    work: works.Work, runtimes: Sequence[str], rounds: int
) -> list[rows.Row]:
    """Work C: zones, with noise at no level, the server, the zones, the clients."""
    clipped = measure.Reference.of(work)
    # Without noise nothing is clipped.
    unclipped = measure.Reference.of(dataclasses.replace(work, clip_norm=1e9))
    # The server's noise is z S / k. In the mean of s zones' or k clients' noises
    # that is on their own sums the same z comes to sqrt(s) or sqrt(k) times as much.
    multipliers = {
        "none": 0.0,
        "cdp": clipped.noise_multiplier,
        "hdp": clipped.noise_multiplier / work.zones**0.5,
        "ldp": clipped.noise_multiplier / work.clients**0.5,
    }
    modes = [(privacy, runtime) for privacy in multipliers for runtime in runtimes]
    subjects = [_ours("stacked", runtime) for _, runtime in modes]
    rate = measure.sgemm_flops()
    with measure.started(subjects, work) as running:
        for i, (privacy, runtime) in enumerate(modes):
            measure.warm_up(
                running[i],
                f"stacked on {runtime} with {privacy}",
                unclipped if privacy == "none" else clipped,
                noise_multiplier=multipliers[privacy],
                privacy=privacy,
            )
        seconds, peaks = measure.take_turns(running, rounds)
    result = []
    for privacy in multipliers:
        own = [i for i, mode in enumerate(modes) if mode[0] == privacy]
        same = [subjects[i] for i in own]
        result += measure.make_rows(
            same,
            work,
            {place: seconds[i] for place, i in enumerate(own)},
            {place: peaks[i] for place, i in enumerate(own)},
            rate=rate,
            baseline=_baseline(same, "stacked"),
            privacy=privacy,
        )
    return result


def cohort_sizes(
    work: works.Work, runtimes: Sequence[str], cohorts: Sequence[int], rounds: int
) -> list[rows.Row]:
    """Work D: the stacked process over cohorts of several sizes.

    Checked at the smallest; the others differ in the number of chunks.
    """
    subjects = [_ours("stacked", runtime) for runtime in runtimes]
    smallest = dataclasses.replace(work, clients=min(cohorts))
    reference = measure.Reference.of(smallest)
    rate = measure.sgemm_flops()
    result = []
    with measure.started(subjects, work) as running:
        for clients in cohorts:
            for i, subject in enumerate(subjects):
                measure.warm_up(
                    running[i],
                    f"stacked on {subject.runtime}, {clients} clients",
                    reference if clients == smallest.clients else None,
                    noise_multiplier=reference.noise_multiplier,
                    clients=clients,
                )
            seconds, peaks = measure.take_turns(running, rounds)
            result += measure.make_rows(
                subjects,
                dataclasses.replace(work, clients=clients),
                seconds,
                peaks,
                rate=rate,
                baseline=_baseline(subjects, "stacked"),
            )
    return result
