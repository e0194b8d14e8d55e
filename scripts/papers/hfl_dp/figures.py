"""The pictures of the HFL-DP paper's studies: accuracy over local iterations."""

import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.kept_curves import Run
from scripts.papers.studies import Study
from scripts.parts import curves


def draw(study: Study, runs: Sequence[Run], path: pathlib.Path) -> None:
    """A line for each of a study's lines."""
    found: dict[str, list[pd.Series]] = {}
    for run in runs:
        settings = {k: v for k, v in run.settings.items() if k != "seed"}
        label = ", ".join(
            str(value)
            if len(settings) == 1 and isinstance(value, str)
            else f"{name} = {value}"
            for name, value in settings.items()
        )
        accuracy = run.series("accuracy")
        found.setdefault(label, []).append(
            accuracy.set_axis(accuracy.index * run.config.k1)
        )
    panel = curves.Panel(found, xlabel="local iteration")
    curves.draw([panel], path, ylabel="test accuracy", limits=(0, 1))
