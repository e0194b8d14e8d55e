"""The pictures of the GFL paper's studies."""

import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scripts.papers.gfl import rates
from scripts.papers.studies import Study
from scripts.parts import curves, sweep_runs

_LABELS = {"none": "no privacy", "iid": "iid noise", "hybrid": "hybrid"}
_STEP, _SHOWN = 0.1, (0.2, 1.0)


def draw(study: Study, jobs: Sequence[sweep_runs.Job], path: pathlib.Path) -> None:
    """The MSD over iterations and its rates, or accuracy over iterations."""
    if study.metric != "msd":
        lines = curves_of(jobs, "accuracy")
        panel = curves.Panel(lines, "MNIST by writer, 10 servers", "iteration")
        curves.draw([panel], path, ylabel="test accuracy", limits=(0, 1))
        return
    at_step = [job for job in jobs if np.isclose(job.config.mu, _STEP)]
    panels = [
        curves.Panel(
            curves_of([j for j in at_step if j.config.sigma_g in (0, noise)], "msd"),
            f"sigma_g = {noise:g}",
            "iteration",
        )
        for noise in _SHOWN
    ]
    curves.draw(panels, path, ylabel="MSD of the centroid", log=True)
    runs = pd.DataFrame({**job.settings, **study.measure(job.path)} for job in jobs)
    rates.draw(runs, path.with_name(f"{path.stem}_rates.png"))


def curves_of(
    jobs: Sequence[sweep_runs.Job], metric: str
) -> dict[str, list[pd.Series]]:
    """A metric over iterations by scheme, a series a seed."""
    return sweep_runs.by_label(jobs, lambda job: _LABELS[job.config.scheme], metric)
