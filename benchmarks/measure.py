"""Runs subjects turn by turn, after checking that they compute the same thing."""

import contextlib
import dataclasses
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import children
import numpy as np
import rows
import works

# Of a round's whole update, in its l2 norm: float32 sums in another order, over
# some 25 steps of a network with ReLUs, and a noise of CHECK_MULTIPLIER.
TOLERANCE = 1e-3
# Every program clips only where it also noises; this noise is lost in float32.
CHECK_MULTIPLIER = 1e-6
NOISE_MULTIPLIER = 1.0
# Its standard deviation over all coordinates; 1e5 of them know it to 0.3 %.
NOISE_TOLERANCE = 0.02


_LOG = logging.getLogger("tff_hdp_bench")


class CheckError(RuntimeError):
    """A subject computed something else than the work."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is timed.

    Attributes:
      runtime: See `rows.Row`.
      program: See `rows.Row`.
      module: The program, as in `python -m`.
      python: Interpreter that runs it.
      options: Entries of its spec.
      notes: For its row.
    """

    runtime: str
    program: str
    module: str
    python: str = sys.executable
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: str = ""


@contextlib.contextmanager
def started(
    subjects: Sequence[Subject], work: works.Work
) -> Iterator[dict[int, children.Child]]:
    """Children of all subjects, by index; they start at the same time."""
    with contextlib.ExitStack() as stack:
        yield {
            i: stack.enter_context(_child(subject, work))
            for i, subject in enumerate(subjects)
        }


@contextlib.contextmanager
def _child(subject: Subject, work: works.Work) -> Iterator[children.Child]:
    child = children.Child(
        subject.module, work, python=subject.python, **subject.options
    )
    try:
        yield child
    finally:
        child.close()


def reference_weights(work: works.Work) -> list[np.ndarray]:
    """The work's weights after one round without noise."""
    with _child(Subject("", "", "programs.reference"), work) as child:
        child.build()
        child.round()
        return child.weights()


def check_round(
    child: children.Child,
    name: str,
    work: works.Work,
    expected: Sequence[np.ndarray],
    **options: Any,
) -> None:
    """Checks one round without noise against the reference.

    Raises:
      CheckError: If the update is another one.
    """
    built = child.build(noise_multiplier=CHECK_MULTIPLIER, **options)
    first = child.round()
    _LOG.info("%s: built in %.1f s, first round %.1f s", name, built, first)
    actual = child.weights()
    update = _norm(expected, works.initial_weights(work))
    error = _norm(actual, expected) / update
    if not error <= TOLERANCE:
        raise CheckError(
            f"{name} on work {work.name}: its update is off by {error:.2g} of its "
            f"norm {update:.3g}; allowed: {TOLERANCE:g}"
        )


def check_noise(
    child: children.Child,
    name: str,
    expected: Sequence[np.ndarray],
    stddev: float,
    **options: Any,
) -> None:
    """Checks one round's noise; leaves the federation built with it, and warm.

    Raises:
      CheckError: If its standard deviation is another one than `stddev`.
    """
    child.build(noise_multiplier=NOISE_MULTIPLIER, **options)
    child.round()
    noise = [a - e for a, e in zip(child.weights(), expected, strict=True)]
    found = float(np.std(np.concatenate([n.ravel() for n in noise])))
    if not abs(found / stddev - 1) <= NOISE_TOLERANCE:
        raise CheckError(
            f"{name}: its noise has standard deviation {found:.3g}; allowed: within "
            f"{NOISE_TOLERANCE:.0%} of {stddev:.3g}"
        )


def take_turns(
    running: Mapping[int, children.Child], rounds: int
) -> tuple[dict[int, list[float]], dict[int, float]]:
    """Measures warm, built children: one round each, `rounds` times over.

    Returns:
      By index the seconds of each round, and the peak resident memory in MB.
    """
    for child in running.values():
        child.reset_peak()
    seconds: dict[int, list[float]] = {i: [] for i in running}
    for _ in range(rounds):
        for i, child in running.items():
            seconds[i].append(child.round())
    return seconds, {i: child.peak_rss_mb() for i, child in running.items()}


def sgemm_flops() -> float:
    """FLOP/s of float32 matrix products on this machine now."""
    result = subprocess.run(
        [sys.executable, "-m", "programs.sgemm"],
        cwd=children.FOLDER,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(result.stdout)


def make_rows(
    subjects: Sequence[Subject],
    work: works.Work,
    seconds: Mapping[int, Sequence[float]],
    peaks: Mapping[int, float],
    *,
    rate: float,
    baseline: int | None,
    privacy: str = "cdp",
) -> list[rows.Row]:
    """Rows of one turn-taking, which are also printed.

    Args:
      subjects: What was measured.
      work: On what.
      seconds: From `take_turns`.
      peaks: From `take_turns`.
      rate: FLOP/s of the machine.
      baseline: Index of the subject that others are compared with.
      privacy: Who added noise.
    """
    floor = work.flops / rate
    result = []
    for i, subject in enumerate(subjects):
        row = rows.Row(
            work=work.name,
            runtime=subject.runtime,
            program=subject.program,
            privacy=privacy,
            clients=work.clients,
            floor_seconds=floor,
            sgemm_gflops=rate / 1e9,
            peak_rss_mb=peaks[i],
            notes=subject.notes,
            **rows.summary(seconds[i]),
        )
        row.ratio_to_floor = row.seconds_median / floor
        known = None if baseline is None else seconds[baseline]
        rows.compare(row, seconds[i], known)
        rows.print_row(row)
        result.append(row)
    return result


def _norm(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    differences = [np.asarray(x, np.float64) - y for x, y in zip(a, b, strict=True)]
    return float(np.sqrt(sum(np.sum(np.square(d)) for d in differences)))
