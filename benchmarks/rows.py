"""What a measurement is reported as: one flat object per subject."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(kw_only=True)
class Row:
    """Seconds a round (of E, a whole run; of G, of processor time) of one subject.

    In F a round is one of the whole loop, with test and checkpoint.

    Attributes:
      work: A to G, or a neighbour system.
      runtime: Where TFF computations ran, or the peer's name.
      program: `fed_avg` is unmodified TFF; `stacked` this project with a TFF client
        for each chunk of clients, `alone` with one for each, `loop` as `stacked` with
        the next round's data prepared beside it; else the peer's name.
      privacy: Who adds noise: none, cdp, hdp or ldp.
      clients: Cohort.
      registered: In F and G how many clients there are, of whom cohorts are drawn.
      task: In F whose clients they are.
      rounds: How many were measured.
      seconds_median: Of a round.
      seconds_min: Of a round.
      seconds_max: Of a round.
      ratio_to_native: Median of the baseline on TFF's native runtime over this
        median: of `fed_avg` in A and B, `stacked` in C and D, `alone` in E; of a
        neighbour system, `alone` in process. None where that was not run.
      ratio_to_native_min: Least of the same ratio, taken turn by turn.
      ratio_to_native_max: Largest of it.
      floor_seconds: Direct float32 arithmetic at the measured SGEMM rate.
      ratio_to_floor: seconds_median over it.
      sgemm_gflops: That rate, measured in the same run.
      rounds_per_second: In F all measured rounds over all their time.
      accuracy: In F on the test set after the last round, the mean of the runs.
      parts: In F the median seconds of what a round consists of, where known.
      peak_rss_mb: Resident memory in the measured rounds, each process of the
        subject at its own peak, summed.
      notes: What differs from the work, and what was checked.
      preset: Of a neighbour system, in scripts/papers/.
      preset_rounds: Of a run of it.
    """

    work: str
    runtime: str
    program: str
    privacy: str = "cdp"
    clients: int
    registered: int | None = None
    task: str | None = None
    rounds: int
    seconds_median: float
    seconds_min: float
    seconds_max: float
    ratio_to_native: float | None = None
    ratio_to_native_min: float | None = None
    ratio_to_native_max: float | None = None
    floor_seconds: float | None = None
    ratio_to_floor: float | None = None
    sgemm_gflops: float | None = None
    rounds_per_second: float | None = None
    accuracy: float | None = None
    parts: dict[str, float] | None = None
    peak_rss_mb: float
    notes: str = ""
    preset: str | None = None
    preset_rounds: int | None = None


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """The fields of a row that its times alone decide."""
    return {
        "rounds": len(seconds),
        "seconds_median": statistics.median(seconds),
        "seconds_min": min(seconds),
        "seconds_max": max(seconds),
    }


def compare(row: Row, own: Sequence[float], baseline: Sequence[float] | None) -> None:
    """Fills in how many times as fast as the baseline a row is.

    Args:
      row: To fill in.
      own: Its times, turn by turn.
      baseline: Times of the baseline in the same turns; None if it was not run.
    """
    if baseline is None:
        return
    turns = [b / a for a, b in zip(own, baseline, strict=True)]
    row.ratio_to_native = statistics.median(baseline) / statistics.median(own)
    row.ratio_to_native_min, row.ratio_to_native_max = min(turns), max(turns)


def print_row(row: Row) -> None:
    """One line on stdout."""
    ratio, floor = row.ratio_to_native, row.ratio_to_floor
    print(
        f"{row.work} {row.task or row.privacy:6} {row.clients:5} clients  "
        f"{row.program:8} {row.runtime:10} "
        f"median {row.seconds_median:7.3f} s "
        f"({row.seconds_min:.3f}..{row.seconds_max:.3f})"
        + (f"  baseline / this {ratio:6.2f}" if ratio else "")
        + (f"  this / floor {floor:6.2f}" if floor else "")
        + (f"  {row.rounds_per_second:.3g} rounds/s" if row.rounds_per_second else "")
        + f"  peak {row.peak_rss_mb:6.0f} MB",
        flush=True,
    )
