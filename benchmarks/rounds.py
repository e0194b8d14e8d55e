"""Works A to D: seconds a round, by program and runtime."""

import dataclasses
from collections.abc import Sequence

import children
import environments
import measure
import rows
import works
from measure import Subject

PRIVACY = ("none", "cdp", "hdp", "ldp")


def _ours(program: str, runtime: str) -> Subject:
    if program == "fed_avg":
        return Subject(
            runtime, program, "programs.fed_avg", options={"runtime": runtime}
        )
    return Subject(
        runtime,
        program,
        "programs.hdp",
        options={"runtime": runtime, "stacked": program == "stacked"},
    )


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
    subjects += [environments.peer_subject(peer) for peer in peers]
    expected = measure.reference_weights(work)
    rate = measure.sgemm_flops()
    stddev = work.noise_stddev(measure.NOISE_MULTIPLIER)
    with measure.started(subjects, work) as running:
        for i, subject in enumerate(subjects):
            name = f"{subject.program} on {subject.runtime}"
            measure.check_round(running[i], name, work, expected)
            measure.check_noise(running[i], name, expected, stddev)
        seconds, peaks = measure.take_turns(running, rounds)
    baseline = _baseline(subjects, "fed_avg")
    return measure.make_rows(
        subjects, work, seconds, peaks, rate=rate, baseline=baseline
    )


def privacy_modes(
    work: works.Work, runtimes: Sequence[str], rounds: int
) -> list[rows.Row]:
    """Work C: zones, with noise at no level, the server, the zones, the clients."""
    subjects = [_ours("stacked", runtime) for runtime in runtimes]
    if "native" in runtimes:
        subjects.insert(0, _ours("hdp", "native"))
    clipped = measure.reference_weights(work)
    # Without noise nothing is clipped.
    unclipped = measure.reference_weights(
        dataclasses.replace(work, clip_norm=float("inf"))
    )
    rate = measure.sgemm_flops()
    result = []
    with measure.started(subjects, work) as running:
        for privacy in PRIVACY:
            for i, subject in enumerate(subjects):
                name = f"{subject.program} on {subject.runtime} with {privacy}"
                _check_mode(running[i], name, work, privacy, clipped, unclipped)
            seconds, peaks = measure.take_turns(running, rounds)
            result += measure.make_rows(
                subjects,
                work,
                seconds,
                peaks,
                rate=rate,
                baseline=_baseline(subjects, "hdp"),
                privacy=privacy,
            )
    return result


def _check_mode(
    child: children.Child,
    name: str,
    work: works.Work,
    privacy: str,
    clipped: list,
    unclipped: list,
) -> None:
    """Checks the mean in mode none, and in the others the noise on it."""
    if privacy == "none":
        measure.check_round(child, name, work, unclipped, privacy=privacy)
        return
    # z S / k at the server; s zones of k/s clients noise sums of which the server
    # takes the mean; k clients noise their own.
    share = {"cdp": 1, "hdp": work.zones, "ldp": work.clients}[privacy] ** 0.5
    stddev = share * work.noise_stddev(measure.NOISE_MULTIPLIER)
    measure.check_noise(child, name, clipped, stddev, privacy=privacy)


def cohort_sizes(
    work: works.Work, runtimes: Sequence[str], cohorts: Sequence[int], rounds: int
) -> list[rows.Row]:
    """Work D: the stacked process over cohorts of several sizes.

    Checked at the smallest cohort; the others differ in the number of chunks.
    """
    subjects = [_ours("stacked", runtime) for runtime in runtimes]
    smallest = dataclasses.replace(work, clients=min(cohorts))
    expected = measure.reference_weights(smallest)
    rate = measure.sgemm_flops()
    result = []
    with measure.started(subjects, work) as running:
        for i, subject in enumerate(subjects):
            measure.check_round(
                running[i],
                f"stacked on {subject.runtime}",
                smallest,
                expected,
                clients=smallest.clients,
            )
        for clients in cohorts:
            for child in running.values():
                child.build(noise_multiplier=measure.NOISE_MULTIPLIER, clients=clients)
                child.round()
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
