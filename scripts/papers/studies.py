"""A paper's trained figures and tables: runs over seeds, a CSV each, table, picture.

A study's CSV has a row a run, lies in docs/results/<paper>/, and is all that its table
in the docs is made from (`result_tables`). Its picture is drawn from the runs.
"""

import dataclasses
import pathlib
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from scripts.papers import ends, presets
from scripts.papers.kept_curves import Run, keep
from scripts.papers.result_files import RESULTS, ROOT, read
from scripts.papers.result_tables import embed, table
from scripts.parts import sweep_runs, sweep_tables
from scripts.parts.sweep_job import Job
from tff_hdp import systems
from tff_hdp.errors import FileError
from tff_hdp.files import alone_in, write_text
from tff_hdp.simulation.config import RunConfig

FIGURES = ROOT / "docs" / "figures"
# Columns that a CSV has of its study, not of its runs.
_FRONT = ("printed", "metric", "within", "printed_loss", "also")


def _key(values: Iterable[Any]) -> tuple[str, ...]:
    """Values as text, a number the same whether it is one or a CSV's text of it."""
    return tuple(_number_or_text(value) for value in values)


def _number_or_text(value: Any) -> str:
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return str(value)


@dataclasses.dataclass(frozen=True)
class Line:
    """What a line of a figure or a row of a table says, and the run that tells.

    Attributes:
      label: What sets it apart, by column.
      preset: <paper>/<preset>, the run's settings.
      changes: Settings to have instead of the preset's.
      printed: What the paper prints for it; None where it prints nothing.
      printed_loss: How far below the study's first line the paper prints it.
    """

    label: Mapping[str, Any]
    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    printed: float | None = None
    printed_loss: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The label's values as text."""
        return _key(self.label.values())


@dataclasses.dataclass(frozen=True)
class Study:
    """A figure or table that needs training.

    Attributes:
      paper: The folder in scripts/papers/.
      name: Of its CSV.
      lines: What it shows.
      config_class: Whose settings the presets hold.
      varied: Settings that labels tell lines apart by, which none can have for all.
      metric: The column of metrics.csv that is shown.
      within: How far from what is printed still counts as reproduced.
      also: Other columns that the table shows.
      against: Columns of metrics.csv that pictures have the metric over besides rounds.
      measure: Columns of a finished run's row, of its folder, besides those of the
        last row of its metrics.csv, or instead of them.
      derived: What else is made of all rows: CSVs of their own, by what is added to
        the study's name.
    """

    paper: str
    name: str
    lines: Sequence[Line]
    config_class: type[RunConfig]
    varied: Sequence[str] = ()
    metric: str = "accuracy"
    within: float = 0.03
    also: Sequence[str] = ()
    against: Sequence[str] = ()
    measure: Callable[[pathlib.Path], Mapping[str, Any]] = lambda path: {}
    derived: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = dataclasses.field(
        default_factory=dict
    )

    def at(self, scale: str, changes: Mapping[str, Any]) -> "Study":
        """The study at another scale than its presets'.

        Args:
          scale: Becomes part of the name.
          changes: Settings of all lines, instead of theirs but for `varied`.
        """

        def at_scale(line: Line) -> Line:
            kept = {k: v for k, v in line.changes.items() if k in self.varied}
            return dataclasses.replace(
                line, changes={**line.changes, **changes, **kept}
            )

        return dataclasses.replace(
            self,
            name=f"{self.name}_{scale}",
            lines=[at_scale(line) for line in self.lines],
        )

    @property
    def judged(self) -> str:
        """The column of metrics.csv that the metric is of."""
        return self.metric.removeprefix("best_")

    def csv(self, results: pathlib.Path) -> pathlib.Path:
        """The CSV in a folder of the papers' folders."""
        return results / self.paper / f"{self.name}.csv"

    def jobs(
        self, seeds: Sequence[int], folder: pathlib.Path, changes: Mapping[str, Any]
    ) -> list[Job]:
        """A run of every line for every seed.

        Args:
          seeds: Each decides partition, cohorts and initial weights, never the noise.
          folder: Of the run folders.
          changes: Settings to have instead of the lines'.
        """
        return [
            self._job(line, seed, folder, changes)
            for line in self.lines
            for seed in seeds
        ]

    def write(self, jobs: Sequence[Job], results: pathlib.Path) -> pathlib.Path:
        """Writes the CSV of the finished runs.

        Rows that are there already stay, if they are of the same settings and of a line
        and seed that no finished run is of: their folders may lie elsewhere, and other
        programs write them beside this one.

        Args:
          jobs: All of `jobs`, to whose settings rows are held; some are finished.
          results: The folder of the papers' folders.

        Returns:
          The CSV's path.

        Raises:
          FileError: If what is there is no such CSV.
        """
        path = self.csv(results)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Who runs other seeds beside this would lose them to rows read before.
        with alone_in(path.parent):
            self._write(path, jobs)
        return path

    def _write(self, path: pathlib.Path, jobs: Sequence[Job]) -> None:
        frame = self._in_order(
            pd.concat([self._measured(jobs), self._rows_before(path, jobs)])
        )
        by_key = {line.key: line for line in self.lines}
        lines = [by_key[key] for key in self._keys(frame)]
        names = list(self.lines[0].label)
        front = {
            **{name: frame[name] for name in names},
            "printed": [line.printed for line in lines],
            "metric": self.metric,
            "within": self.within,
        }
        if any(line.printed_loss is not None for line in lines):
            front["printed_loss"] = [line.printed_loss for line in lines]
        if self.also:
            front["also"] = ";".join(self.also)
        whole = pd.DataFrame(front).join(frame.drop(columns=names))
        _write(whole, path)
        for name, make in self.derived.items():
            _write(make(whole), path.with_name(f"{self.name}_{name}.csv"))

    def _measured(self, jobs: Sequence[Job]) -> pd.DataFrame:
        """A row a finished run."""
        frame = sweep_tables.table(jobs)
        for at, folder in enumerate(frame["folder"]):
            for name, value in self.measure(pathlib.Path(folder)).items():
                frame.loc[at, name] = value
        return frame.drop(columns="folder")

    def _rows_before(self, path: pathlib.Path, jobs: Sequence[Job]) -> pd.DataFrame:
        """Rows of a CSV, if there is one, that no finished run replaces."""
        if not path.exists():
            return pd.DataFrame()
        # Some digests could be read as numbers.
        old = read(path, {"digest": str}).drop(columns=list(_FRONT), errors="ignore")
        if lacking := {*self.lines[0].label, "digest", "seed"} - {*old}:
            raise FileError(path, f"lacks columns {', '.join(sorted(lacking))}")
        digests = {_key(self._label(job)): job.digest for job in jobs}
        new = {(_key(self._label(j)), j.config.seed) for j in jobs if j.is_finished}
        rows = zip(self._keys(old), old["digest"], old["seed"], strict=True)
        return old[
            [
                digests.get(key) == digest and (key, seed) not in new
                for key, digest, seed in rows
            ]
        ]

    def _label(self, job: Job) -> list[Any]:
        return [job.settings[name] for name in self.lines[0].label]

    def _keys(self, frame: pd.DataFrame) -> list[tuple[str, ...]]:
        """The key of every row's line."""
        rows = frame[list(self.lines[0].label)].itertuples(index=False, name=None)
        return [_key(row) for row in rows]

    def _in_order(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows as the lines go, and by seed."""
        order = [line.key for line in self.lines]
        at = [order.index(key) for key in self._keys(frame)]
        ordered = frame.assign(_line=at).sort_values(["_line", "seed"], kind="stable")
        return ordered.drop(columns="_line").reset_index(drop=True)

    def config(self, line: Line, changes: Mapping[str, Any]) -> RunConfig:
        """The settings of a line's run."""
        given = {**line.changes, **changes}
        return presets.read(line.preset, self.config_class, **given)

    def _job(
        self, line: Line, seed: int, folder: pathlib.Path, changes: Mapping[str, Any]
    ) -> Job:
        named = sweep_runs.folder_name({k: str(v) for k, v in line.label.items()})
        out = str(folder / self.name / f"{named},seed={seed}")
        config = self.config(line, {**changes, "seed": seed, "out": out})
        shown = systems.command_of(config).replace("\\\n", "")
        _, program, *flags = shlex.split(shown)
        return Job(
            settings={**line.label, "seed": seed},
            config=config,
            command=[sys.executable, str(ROOT / program), *flags],
        )


def _write(frame: pd.DataFrame, path: pathlib.Path) -> None:
    # pandas itself gives no format to numbers in a column that has text too.
    mixed = frame.select_dtypes(object).map(
        lambda value: f"{value:.6g}" if isinstance(value, float) else value,
        na_action="ignore",
    )
    text = frame.assign(**mixed).to_csv(index=False, float_format="%.6g")
    write_text(path, text)


# Draws a study's picture of its runs into a file.
Draw = Callable[[Study, Sequence[Run], pathlib.Path], None]


def run(
    studies: Sequence[Study],
    *,
    seeds: Sequence[int],
    folder: pathlib.Path,
    changes: Mapping[str, Any],
    at_once: int,
    results: pathlib.Path,
    pages: Sequence[pathlib.Path],
    draw: Draw | None = None,
    wanted: Callable[[Mapping[str, Any]], bool] | None = None,
) -> int:
    """Runs or resumes studies, several runs side by side, and writes what came of it.

    Interrupted, it writes what came of the runs that ended.

    Args:
      studies: Which.
      seeds: See `Study.jobs`.
      folder: Of the run folders.
      changes: See `Study.jobs`.
      at_once: How many runs at a time.
      results: Where the CSVs go, in a folder for each paper.
      pages: Whose tables follow `RESULTS`.
      draw: Draws their pictures, beside those of the docs if `results` are the docs'.
      wanted: Which labels to run; None is all. What is finished is in the CSV in any
        case.

    Returns:
      How many runs failed; their last lines are printed.

    Raises:
      FileError: If a study's CSV or run is damaged; the other studies are written.
    """
    jobs = {study.name: study.jobs(seeds, folder, changes) for study in studies}
    asked = [
        job
        for each in jobs.values()
        for job in each
        if wanted is None or wanted(job.settings)
    ]
    try:
        return len(sweep_runs.run_jobs(asked, at_once))
    finally:
        # Also where somebody lost patience.
        damaged = []
        for study in studies:
            try:
                if _tabulate(study, jobs[study.name], results):
                    _picture(study, folder, changes, results, draw)
            except FileError as error:
                damaged.append(error)
        for page in pages if results == RESULTS else ():
            embed(page)
        if damaged:
            raise damaged[0]


def _tabulate(study: Study, jobs: Sequence[Job], results: pathlib.Path) -> bool:
    """Writes and prints what came of the runs that ended; False if none did."""
    if not any(job.is_finished for job in jobs):
        return False
    path = study.write(jobs, results)
    print(f"{study.name}\n{table(path)}\n{path}\n")
    return True


def _picture(
    study: Study,
    folder: pathlib.Path,
    changes: Mapping[str, Any],
    results: pathlib.Path,
    draw: Draw | None,
) -> None:
    """Keeps the curves of runs that ended; draws those of all rows, or their ends."""
    # Also of seeds that others ran.
    seeds = sorted(set(read(study.csv(results))["seed"].astype(int)))
    runs = keep(study, study.jobs(seeds, folder, changes), results)
    if draw is None or not runs:
        return
    pictures = FIGURES if results == RESULTS else folder
    picture = pictures / f"{study.paper}_{study.name}.png"
    lacking = sum(run.curve is None for run in runs)
    if not lacking:
        draw(study, runs, picture)
    else:
        print(f"{study.name}: {lacking} of {len(runs)} curves are lost\n")
    # A page that shows ends keeps to its table.
    if lacking or ends.path_of(picture).exists():
        ends.draw(read(study.csv(results)), ends.path_of(picture))
