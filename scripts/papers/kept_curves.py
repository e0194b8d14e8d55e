"""The curves of a study's runs: kept in a CSV, of which its picture is drawn.

docs/results/<paper>/curves/<study>.csv has a row a run and round of a test. Digest and
seed tell which row of the study's own CSV is of that run; there stands what an epsilon
rests on.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from scripts.papers.result_files import read
from scripts.parts.sweep_job import Job
from tff_hdp.errors import FileError
from tff_hdp.files import alone_in, write_text
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.report import read_run

if TYPE_CHECKING:
    from scripts.papers.studies import Study

_TEXT = {"digest": str}


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as a picture shows it.

    Attributes:
      settings: Its line's label, and its seed.
      config: What it ran with.
      row: Its row of the study's CSV.
      curve: A row a round in which it was tested; None if it was not kept.
      path: Its folder, which may be gone.
    """

    settings: Mapping[str, Any]
    config: RunConfig
    row: Mapping[str, Any]
    curve: pd.DataFrame | None
    path: pathlib.Path

    def series(self, metric: str, by: str = "round") -> pd.Series:
        """What was measured, by another column."""
        assert self.curve is not None
        return self.curve.set_index(by)[metric].dropna()


def keep(study: "Study", jobs: Sequence[Job], results: pathlib.Path) -> list[Run]:
    """Writes the curves of finished runs beside those kept; rows' runs.

    Args:
      study: Whose CSV is written.
      jobs: Of the rows of that CSV; some are finished.
      results: See `Study.write`.

    Returns:
      Those of `jobs` that have a row, in their order.

    Raises:
      FileError: If the CSV of curves is damaged.
    """
    path = results / study.paper / "curves" / f"{study.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        # Of rows read before, curves that others have kept since would be lost.
        frame = read(study.csv(results), _TEXT)
        runs = zip(frame["digest"], frame["seed"].astype(int), strict=True)
        rows = {run: row for run, (_, row) in zip(runs, frame.iterrows(), strict=True)}
        kept = _read(path) if path.exists() else {}
        kept |= {_key(job): _curve(study, job) for job in jobs if job.is_finished}
        # Beside a row that was replaced a curve is of another run than the table.
        found = [kept[run] for run in rows if run in kept]
        if found:
            write_text(path, pd.concat(found).to_csv(index=False, float_format="%.5g"))
    return [
        Run(job.settings, job.config, rows[key], kept.get(key), job.path)
        for job, key in zip(jobs, map(_key, jobs), strict=True)
        if key in rows
    ]


def by_label(
    runs: Sequence[Run], label_of: Callable[[Run], str], metric: str, by: str = "round"
) -> dict[str, list[pd.Series]]:
    """`Run.series`, by the label of the line that a run is of."""
    found: dict[str, list[pd.Series]] = {}
    for run in runs:
        found.setdefault(label_of(run), []).append(run.series(metric, by))
    return found


def _key(job: Job) -> tuple[str, int]:
    return job.digest, job.config.seed


def _read(path: pathlib.Path) -> dict[tuple[str, int], pd.DataFrame]:
    """The curves of a CSV, by run."""
    frame, by = read(path, _TEXT), ["digest", "seed"]
    if lacking := {*by} - {*frame}:
        raise FileError(path, f"lacks columns {', '.join(sorted(lacking))}")
    return dict(list(frame.groupby(by, sort=False)))


def _curve(study: "Study", job: Job) -> pd.DataFrame:
    """A finished run's rounds in which it was tested."""
    tested = read_run(job.path).metrics.dropna(subset=study.judged)
    told = {**job.settings, "seed": job.config.seed, "digest": job.digest}
    columns = ["round", study.judged, *study.against]
    # Without noise there is no epsilon.
    return tested.reindex(columns=columns).assign(**told)[[*told, *columns]]
