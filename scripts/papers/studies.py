"""A paper's trained figures and tables: runs over seeds, a CSV each, and its table.

A study's CSV has a row a run, and is all that its table in the docs is made from. It
lies in docs/results/<paper>/, and its table between the page's markers
`<!-- results <paper>/<study> -->` and `<!-- /results -->`.
"""

import dataclasses
import math
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scripts import sweep_runs
from scripts.papers import presets
from tff_hdp import systems
from tff_hdp.simulation.config import RunConfig

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
_NAMES = {"super_node": "own super-node", "released_model": "released model"}
_MARKED = re.compile(r"<!-- results (\S+) -->\n(.*?)<!-- /results -->", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Line:
    """What a line of a figure or a row of a table says, and the run that tells.

    Attributes:
      label: What sets it apart, by column.
      preset: <paper>/<preset>, the run's settings.
      changes: Settings to have instead of the preset's.
      printed: What the paper prints for it; None where it prints nothing.
    """

    label: Mapping[str, Any]
    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    printed: float | None = None


@dataclasses.dataclass(frozen=True)
class Study:
    """A figure or table that needs training.

    Attributes:
      paper: The folder in scripts/papers/.
      name: As `--what` takes it.
      lines: What it shows.
      config_class: Whose settings the presets hold.
      metric: The column of metrics.csv that is shown.
      within: How far from what is printed still counts as reproduced.
    """

    paper: str
    name: str
    lines: Sequence[Line]
    config_class: type[RunConfig]
    metric: str = "accuracy"
    within: float = 0.03

    def jobs(
        self, seeds: Sequence[int], folder: pathlib.Path, changes: Mapping[str, Any]
    ) -> list[sweep_runs.Job]:
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

    def write(
        self, jobs: Sequence[sweep_runs.Job], results: pathlib.Path
    ) -> pathlib.Path:
        """Writes the CSV of the finished runs, and the table into its page.

        Args:
          jobs: Of `jobs`.
          results: The folder of the papers' folders.

        Returns:
          The CSV's path.
        """
        frame = sweep_runs.table(jobs)
        printed = {tuple(line.label.values()): line.printed for line in self.lines}
        names = list(self.lines[0].label)
        keys = frame[names].itertuples(index=False, name=None)
        at = frame.columns.get_loc("digest")
        frame.insert(at, "printed", [printed[key] for key in keys])
        frame.insert(at + 1, "metric", self.metric)
        frame.insert(at + 2, "within", self.within)
        frame = frame[[*names, *(c for c in frame.columns if c not in names)]]
        path = results / self.paper / f"{self.name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.drop(columns="folder").to_csv(path, index=False, float_format="%.6g")
        return path

    def _job(
        self, line: Line, seed: int, folder: pathlib.Path, changes: Mapping[str, Any]
    ) -> sweep_runs.Job:
        named = sweep_runs.folder_name({k: str(v) for k, v in line.label.items()})
        out = folder / self.name / f"{named},seed={seed}"
        given = {**line.changes, **changes, "seed": seed, "out": str(out)}
        program = {v: k for k, v in systems.PROGRAMS.items()}[self.config_class.system]
        command = [sys.executable, str(ROOT / "scripts" / f"{program}.py")]
        command.append(f"--flagfile={presets.FOLDER / f'{line.preset}.flags'}")
        command += [f"--{name}={_flag(value)}" for name, value in given.items()]
        return sweep_runs.Job(
            settings={**line.label, "seed": seed},
            config=presets.read(line.preset, self.config_class, **given),
            command=command,
        )


def _flag(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def run(
    studies: Sequence[Study],
    *,
    seeds: Sequence[int],
    folder: pathlib.Path,
    changes: Mapping[str, Any],
    at_once: int,
    results: pathlib.Path,
    pages: Sequence[pathlib.Path],
) -> int:
    """Runs or resumes studies, several runs side by side, and writes what came of it.

    Args:
      studies: Which.
      seeds: See `Study.jobs`.
      folder: Of the run folders.
      changes: See `Study.jobs`.
      at_once: How many runs at a time.
      results: Where the CSVs go, in a folder for each paper.
      pages: Whose tables follow `RESULTS`.

    Returns:
      How many runs failed; their last lines are printed.
    """
    jobs = {study.name: study.jobs(seeds, folder, changes) for study in studies}
    failed = sweep_runs.run_jobs(
        [job for each in jobs.values() for job in each], at_once
    )
    for study in studies:
        if any(job.is_finished for job in jobs[study.name]):
            path = study.write(jobs[study.name], results)
            print(f"{study.name}\n{table(path)}\n{path}\n")
    if results == RESULTS:
        for page in pages:
            embed(page)
    return len(failed)


def table(path: pathlib.Path) -> str:
    """A study's CSV as Markdown: mean and spread over seeds beside what is printed.

    An epsilon is the largest of all clients', by the tighter of RDP and PLD; what
    epsilons rest on is said below.
    """
    frame = pd.read_csv(path)
    metric = frame["metric"][0]
    labels = list(frame.columns[: frame.columns.get_loc("printed")])
    seen = observers(frame)
    is_printed = frame["printed"].notna().any()
    header = [*labels, "runs", *["printed"] * is_printed, f"{metric}, mean ± sd"]
    header += [_NAMES.get(name, name.replace("_", " ")) for name in seen]
    header += ["verdict"] * is_printed
    lines = [_row(header), _row(["---"] * len(header))]
    said: dict[str, None] = {}
    for key, group in frame.groupby(labels, sort=False, dropna=False):
        mean, spread = group[metric].mean(), group[metric].std()
        shown = f"{mean:.3f}" + ("" if math.isnan(spread) else f" ± {spread:.3f}")
        printed = group["printed"].iloc[0]
        cells = [*map(str, key), len(group), *[_number(printed)] * is_printed, shown]
        for name in seen:
            epsilon, basis = _epsilon(group, seen[name])
            cells.append(epsilon)
            if basis:
                said[f"{_NAMES.get(name, name)} {basis}"] = None
        within = group["within"].iloc[0]
        cells += [_verdict(mean, printed, within)] * is_printed
        lines.append(_row(cells))
    if said:
        lines += ["", f"Epsilon at delta {frame['delta'][0]:g}; {'; '.join(said)}."]
    return "\n".join(lines)


def observers(frame: pd.DataFrame) -> dict[str, list[str]]:
    """By observer, what the columns of its epsilons begin with; fellows left out."""
    found: dict[str, list[str]] = {}
    for column in frame:
        stem, dot, field = column.rpartition(".")
        name = stem.partition(".")[0]
        if dot and field == "epsilon_pld" and not name.startswith("fellow_"):
            found.setdefault(name, []).append(stem)
    return found


def _epsilon(group: pd.DataFrame, stems: Sequence[str]) -> tuple[str, str]:
    """The largest epsilon against an observer, and what it rests on."""
    worst, basis = -math.inf, ""
    for stem in stems:
        if group[f"{stem}.neighbours"].isna().all():
            continue  # no such clients here
        sound = group[[f"{stem}.epsilon_rdp", f"{stem}.epsilon_pld"]].min(axis=1)
        if sound.isna().any():
            return "none", ""
        if sound.max() > worst:
            first = group.iloc[0]
            worst = sound.max()
            words = first[f"{stem}.neighbours"], first[f"{stem}.sampling"]
            basis = f"{words[0]} neighbours, {words[1]}"
    return ("none", "") if worst < 0 else (f"{worst:.4g}", basis)


def _verdict(mean: float, printed: float, within: float) -> str:
    if math.isnan(printed):
        return "not printed"
    if abs(mean - printed) <= within:
        return "reproduced"
    away = f"{abs(mean - printed):.3f} {'above' if mean > printed else 'below'}"
    return f"not: {away}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def embed(page: pathlib.Path) -> None:
    """Puts the table of its CSV between each pair of a page's markers."""
    page.write_text(
        _MARKED.sub(
            lambda match: (
                f"<!-- results {match[1]} -->\n"
                f"{table(RESULTS / f'{match[1]}.csv')}\n<!-- /results -->"
            ),
            page.read_text(),
        )
    )


def embedded(page: pathlib.Path) -> dict[str, str]:
    """The tables that a page holds, by what they are of."""
    return {
        match[1]: match[2].rstrip("\n") for match in _MARKED.finditer(page.read_text())
    }
