"""The pictures of the FL-TOP paper's studies: accuracy over rounds, and Figure 1."""

import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.fl_top.weights import weights_figure
from scripts.papers.studies import Study
from scripts.parts import curves, sweep_runs
from tff_hdp.systems.fl_top.results import name_of

_KNOWN = ("r", "scheme", "seed")


def draw(study: Study, jobs: Sequence[sweep_runs.Job], path: pathlib.Path) -> None:
    """The metric over rounds, a panel a ratio, and Figure 1 of the first pair.

    None of the sweep: 48 curves tell nobody anything.
    """
    if study.name.startswith("sweep"):
        return
    judged = study.metric.removeprefix("best_")
    panels: dict[float, dict[str, list[pd.Series]]] = {}
    for job in jobs:
        panel = panels.setdefault(job.config.ratio, {})
        # What sets a line apart besides ratio and scheme.
        more = [str(v) for k, v in job.settings.items() if k not in _KNOWN]
        label = ", ".join([name_of(job.config.scheme), *more])
        panel.setdefault(label, []).append(sweep_runs.series(job, judged))
    curves.draw(
        [curves.Panel(lines, f"r = {ratio:.1%}") for ratio, lines in panels.items()],
        path,
        ylabel=f"test {judged.replace('_', ' ')}",
        limits=(0, 1),
    )
    by_scheme = {
        scheme: [job for job in jobs if job.config.scheme == scheme]
        for scheme in ("fl_std", "fl_top")
    }
    if all(by_scheme.values()) and study.name.startswith("table"):
        least = min(job.config.ratio for job in by_scheme["fl_top"])
        weights_figure(
            [job.path for job in by_scheme["fl_std"]],
            [job.path for job in by_scheme["fl_top"] if job.config.ratio == least],
            path.with_name(f"{path.stem}_weights.png"),
        )
