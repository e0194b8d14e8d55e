"""The pictures of UDP-Alg's studies: accuracy against epsilon, and over rounds."""

import pathlib
from collections.abc import Sequence

from scripts.papers.kept_curves import Run, by_label
from scripts.papers.studies import Study
from scripts.parts import curves


def draw(study: Study, runs: Sequence[Run], path: pathlib.Path) -> None:
    """Accuracy on users' own tests; Noiseless, without epsilon, only over rounds."""
    noisy = [run for run in runs if run.config.privacy != "none"]
    by_round = curves.Panel(by_label(runs, _label, "accuracy"))
    delta = runs[0].config.delta
    label = f"epsilon of the released hypernetwork (RDP, delta {delta:g})"
    over = by_label(noisy, _label, "accuracy", "epsilon_rdp")
    by_epsilon = curves.Panel(over, xlabel=label)
    curves.draw(
        [by_round, by_epsilon] if noisy else [by_round],
        path,
        ylabel="accuracy on users' own tests",
        limits=(0, 1),
    )


def _label(run: Run) -> str:
    if run.config.privacy == "none":
        return "Noiseless"
    settings = {k: v for k, v in run.settings.items() if k not in ("seed", "curve")}
    label = ", ".join(f"{name} = {value}" for name, value in settings.items())
    return label or run.settings["curve"]
