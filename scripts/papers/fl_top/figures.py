"""The pictures of the FL-TOP paper's studies: accuracy over rounds, and Figure 1."""

import itertools
import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.fl_top.weights import weights_figure
from scripts.papers.kept_curves import Run
from scripts.papers.studies import Study
from scripts.parts import curves
from tff_hdp.systems.fl_top.results import WEIGHTS_FILE, name_of

_KNOWN = ("r", "scheme", "seed")


def draw(study: Study, runs: Sequence[Run], path: pathlib.Path) -> None:
    """The metric over rounds, a panel a ratio, and Figure 1 of the first pair.

    None of the sweep: 48 curves tell nobody anything.
    """
    if study.name.startswith("sweep"):
        return
    panels: dict[float, dict[str, list[pd.Series]]] = {}
    for run in runs:
        panel = panels.setdefault(run.config.ratio, {})
        # What sets a line apart besides ratio and scheme.
        more = [str(v) for k, v in run.settings.items() if k not in _KNOWN]
        label = ", ".join([name_of(run.config.scheme), *more])
        panel.setdefault(label, []).append(run.series(study.judged))
    curves.draw(
        [curves.Panel(lines, f"r = {ratio:.1%}") for ratio, lines in panels.items()],
        path,
        ylabel=f"test {study.judged.replace('_', ' ')}",
        limits=(0, 1),
    )
    by_scheme = {
        scheme: [run for run in runs if run.config.scheme == scheme]
        for scheme in ("fl_std", "fl_top")
    }
    drawn = itertools.chain(*by_scheme.values())
    at_hand = all((run.path / WEIGHTS_FILE).exists() for run in drawn)
    if all(by_scheme.values()) and at_hand and study.name.startswith("table"):
        least = min(run.config.ratio for run in by_scheme["fl_top"])
        weights_figure(
            [run.path for run in by_scheme["fl_std"]],
            [run.path for run in by_scheme["fl_top"] if run.config.ratio == least],
            path.with_name(f"{path.stem}_weights.png"),
        )
