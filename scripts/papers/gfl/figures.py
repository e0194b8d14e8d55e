"""The pictures of the GFL paper's studies."""

import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scripts.papers.gfl import rates
from scripts.papers.kept_curves import Run, by_label
from scripts.papers.studies import Study
from scripts.parts import curves

_LABELS = {"none": "no privacy", "iid": "iid noise", "hybrid": "hybrid"}
_STEP, _SHOWN = 0.1, (0.2, 1.0)


def draw(study: Study, runs: Sequence[Run], path: pathlib.Path) -> None:
    """The MSD over iterations and its rates, or accuracy over iterations."""
    if study.metric != "msd":
        lines = curves_of(runs, "accuracy")
        panel = curves.Panel(lines, "MNIST by writer, 10 servers", "iteration")
        curves.draw([panel], path, ylabel="test accuracy", limits=(0, 1))
        return
    at_step = [run for run in runs if np.isclose(run.config.mu, _STEP)]
    panels = [
        curves.Panel(
            curves_of([r for r in at_step if r.config.sigma_g in (0, noise)], "msd"),
            f"sigma_g = {noise:g}",
            "iteration",
        )
        for noise in _SHOWN
    ]
    curves.draw(panels, path, ylabel="MSD of the centroid", log=True)
    rates.draw(
        pd.DataFrame([run.row for run in runs]),
        path.with_name(f"{path.stem}_rates.png"),
    )


def curves_of(runs: Sequence[Run], metric: str) -> dict[str, list[pd.Series]]:
    """A metric over iterations by scheme, a series a seed."""
    return by_label(runs, lambda run: _LABELS[run.config.scheme], metric)
