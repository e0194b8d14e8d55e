"""Runs subjects turn by turn, after checking that they compute the same thing."""

import contextlib
import dataclasses
import functools
import logging
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import children
import numpy as np
import rows
import works

# The noise on the released average, in l2 norm, over that of the round's update: it
# costs what any noise costs, and is small enough to see the update through.
NOISE_SHARE = 0.01
# Of the noise's standard deviation over all coordinates, of which there are 1e5 or
# more. An update off by e of its norm raises it to sqrt(1 + (e / NOISE_SHARE)^2), so
# this finds an update that is off by 0.2 %.
NOISE_TOLERANCE = 0.02
# Of the update's norm, where there is no noise: float32 sums in another order over
# some 25 steps of a network with ReLUs.
TOLERANCE = 1e-3

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
    subjects: Sequence[Subject], work: Any
) -> Iterator[dict[int, children.Child]]:
    """Children of all subjects, by index; they start at the same time."""
    with contextlib.ExitStack() as stack:
        yield {
            i: stack.enter_context(_child(subject, work))
            for i, subject in enumerate(subjects)
        }


@contextlib.contextmanager
def _child(subject: Subject, work: Any) -> Iterator[children.Child]:
    child = children.Child(
        subject.module, work, python=subject.python, **subject.options
    )
    try:
        yield child
    finally:
        child.close()


@dataclasses.dataclass(frozen=True)
class Reference:
    """What a round of a work must come to.

    Attributes:
      work: Which, with its `name` and `rounding`.
      weights: After one round from the initial weights, without noise.
      update_norm: The l2 norm of how far the round went.
    """

    work: Any
    weights: list[np.ndarray]
    update_norm: float

    @classmethod
    def of(cls, work: works.Work) -> "Reference":
        """Runs the reference program."""
        with _child(Subject("", "", "programs.reference"), work) as child:
            child.build()
            child.round()
            weights = child.weights()
        return cls(work, weights, distance(weights, works.initial_weights(work)))

    @property
    def noise_multiplier(self) -> float:
        """The server's z that makes its noise `NOISE_SHARE` of the update."""
        noise_norm = self.work.noise_stddev(1.0) * self.work.num_parameters**0.5
        return NOISE_SHARE * self.update_norm / noise_norm

    def check(self, weights: Sequence[np.ndarray], name: str, *, noisy: bool) -> None:
        """Checks what a subject came to in one round.

        Args:
          weights: After it.
          name: Of the subject.
          noisy: Whether there is to be noise as of `noise_multiplier`.

        Raises:
          CheckError: If the update or the noise is another one.
        """
        away = distance(weights, self.weights) / self.update_norm
        least, most = 0.0, TOLERANCE
        if noisy:
            least = NOISE_SHARE * (1 - NOISE_TOLERANCE)
            most = NOISE_SHARE * (1 + NOISE_TOLERANCE)
        most = math.hypot(most, self.work.rounding)
        allowed = f"{least:.4g}..{most:.4g}"
        if not least <= away <= most:
            raise CheckError(
                f"{name} on work {self.work.name}: its weights are {away:.4g} of "
                f"the update's norm {self.update_norm:.3g} from the reference; "
                f"allowed: {allowed}"
            )


def warm_up(
    child: children.Child, name: str, reference: Reference | None, **options: Any
) -> None:
    """Builds a subject, runs its first round, and checks it.

    Args:
      child: The subject.
      name: Of it.
      reference: What to check against; None to check nothing.
      **options: Of the build; without noise if `noise_multiplier` is 0.
    """
    built = child.build(**options)
    first = child.round()
    _LOG.info("%s: built in %.1f s, first round %.1f s", name, built, first)
    if reference is not None:
        reference.check(child.weights(), name, noisy=options["noise_multiplier"] > 0)


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


@functools.cache
def sgemm_flops() -> float:
    """FLOP/s of float32 matrix products on this machine, measured once a run."""
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
    work: Any,
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
      work: On what, with its `name`, `clients` and `flops`.
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


def distance(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    """The l2 norm of the difference of two models' weights."""
    differences = [np.asarray(x, np.float64) - y for x, y in zip(a, b, strict=True)]
    return float(np.sqrt(sum(np.sum(np.square(d)) for d in differences)))
