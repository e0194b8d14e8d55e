"""The pictures of the HDP paper's trained figures and tables."""

import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.kept_curves import Run, by_label
from scripts.papers.studies import Study
from scripts.parts import curves

# Studies drawn over a setting instead of rounds: what is on the x axis, what sets lines
# apart, and what sets panels apart, if anything does.
_OVER = {
    "figure3": ("zones", "clients_per_round", None),
    "claim": ("noise_multiplier", "privacy", "clients_per_round"),
    "claim_sizes": None,
}
_AXES = {
    "zones": "zones s",
    "noise_multiplier": "noise multiplier z",
    "clients_per_round": "k",
}


def draw(study: Study, runs: Sequence[Run], path: pathlib.Path) -> None:
    """Accuracy over rounds, a line for each of a study's; or over a setting."""
    if study.metric != "accuracy":
        return
    # At another scale a study's name goes on.
    parts = [part for part in _OVER if f"{study.name}_".startswith(f"{part}_")]
    over = _OVER[max(parts, key=len)] if parts else None
    panels = _over_setting(runs, *over) if over else [_by_round(runs)]
    curves.draw(panels, path, ylabel="test accuracy")


def _by_round(runs: Sequence[Run]) -> curves.Panel:
    one_task = len({run.settings.get("task") for run in runs}) == 1
    unsaid = {"seed", "task"} if one_task else {"seed"}

    def label(run: Run) -> str:
        return ", ".join(str(v) for k, v in run.settings.items() if k not in unsaid)

    return curves.Panel(by_label(runs, label, "accuracy"))


def _over_setting(
    runs: Sequence[Run], x: str, line: str, panel: str | None
) -> list[curves.Panel]:
    """A series a seed of what is reached in the end."""
    ends: dict[str, dict[str, dict[int, dict[float, float]]]] = {}
    for run in runs:
        settings = run.settings
        title = "" if panel is None else f"{_AXES[panel]} = {settings[panel]}"
        label = f"{_AXES[line]} = {settings[line]}" if line in _AXES else settings[line]
        seeds = ends.setdefault(title, {}).setdefault(label, {})
        accuracy = run.series("accuracy").iloc[-1]
        seeds.setdefault(settings["seed"], {})[float(settings[x])] = accuracy
    return [
        curves.Panel(
            {
                label: [pd.Series(found).sort_index() for found in seeds.values()]
                for label, seeds in lines.items()
            },
            title,
            _AXES[x],
        )
        for title, lines in ends.items()
    ]
