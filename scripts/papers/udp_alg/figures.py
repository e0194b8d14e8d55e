"""The pictures of UDP-Alg's studies: accuracy against epsilon, and over rounds."""

import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.studies import Study
from scripts.parts import curves, sweep_runs


def draw(study: Study, jobs: Sequence[sweep_runs.Job], path: pathlib.Path) -> None:
    """Accuracy on users' own tests; Noiseless, without epsilon, only over rounds."""
    noisy = [job for job in jobs if job.config.privacy != "none"]
    by_round = curves.Panel(_curves(jobs, "round"))
    delta = jobs[0].config.delta
    label = f"epsilon of the released hypernetwork (RDP, delta {delta:g})"
    by_epsilon = curves.Panel(_curves(noisy, "epsilon_rdp"), xlabel=label)
    curves.draw(
        [by_round, by_epsilon] if noisy else [by_round],
        path,
        ylabel="accuracy on users' own tests",
        limits=(0, 1),
    )


def _curves(jobs: Sequence[sweep_runs.Job], by: str) -> dict[str, list[pd.Series]]:
    found: dict[str, list[pd.Series]] = {}
    for job in jobs:
        settings = {k: v for k, v in job.settings.items() if k not in ("seed", "curve")}
        label = ", ".join(f"{name} = {value}" for name, value in settings.items())
        if job.config.privacy == "none":
            label = "Noiseless"
        found.setdefault(label or job.settings["curve"], []).append(
            sweep_runs.series(job, "accuracy", by)
        )
    return found
