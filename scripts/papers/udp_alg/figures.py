"""The pictures of UDP-Alg's studies: accuracy against epsilon, and over rounds."""

import pathlib
from collections.abc import Sequence

from scripts.papers.studies import Study
from scripts.parts import curves, sweep_runs


def draw(study: Study, jobs: Sequence[sweep_runs.Job], path: pathlib.Path) -> None:
    """Accuracy on users' own tests; Noiseless, without epsilon, only over rounds."""
    noisy = [job for job in jobs if job.config.privacy != "none"]
    by_round = curves.Panel(sweep_runs.by_label(jobs, _label, "accuracy"))
    delta = jobs[0].config.delta
    label = f"epsilon of the released hypernetwork (RDP, delta {delta:g})"
    over = sweep_runs.by_label(noisy, _label, "accuracy", "epsilon_rdp")
    by_epsilon = curves.Panel(over, xlabel=label)
    curves.draw(
        [by_round, by_epsilon] if noisy else [by_round],
        path,
        ylabel="accuracy on users' own tests",
        limits=(0, 1),
    )


def _label(job: sweep_runs.Job) -> str:
    if job.config.privacy == "none":
        return "Noiseless"
    settings = {k: v for k, v in job.settings.items() if k not in ("seed", "curve")}
    label = ", ".join(f"{name} = {value}" for name, value in settings.items())
    return label or job.settings["curve"]
