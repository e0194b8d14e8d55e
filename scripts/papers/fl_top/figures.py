"""The pictures of the FL-TOP paper's studies: accuracy over rounds, and Figure 1."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np

from scripts import curves, sweep_runs
from scripts.papers.fl_top.trained import name_of
from scripts.papers.studies import Study
from tff_hdp.systems.fl_top.public import top_k
from tff_hdp.systems.fl_top.results import NAMES, WEIGHTS_FILE
from tff_hdp.systems.fl_top.setup import read_setup


def draw(study: Study, jobs: Sequence[sweep_runs.Job], path: pathlib.Path) -> None:
    """The metric over rounds, a panel a ratio, and Figure 1 of the first pair."""
    judged = study.metric.removeprefix("best_")
    panels: dict[float, dict[str, list]] = {}
    for job in jobs:
        panel = panels.setdefault(job.config.ratio, {})
        label = name_of(job.config.scheme)
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
        top = min(by_scheme["fl_top"], key=lambda job: job.config.ratio)
        picture = path.with_name(f"{path.stem}_weights.png")
        weights_figure(by_scheme["fl_std"][0].path, top.path, picture)


def top_k_values(path: pathlib.Path, size: int) -> np.ndarray:
    """The values after the last round of a run's own Top-K weights, [size]."""
    _, scores = read_setup(path)
    with np.load(path / WEIGHTS_FILE) as saved:
        return saved["final"][top_k(scores, size)]


def weights_figure(
    standard: pathlib.Path, top: pathlib.Path, figure_path: pathlib.Path
) -> None:
    """Figure 1: how the Top-K weights are spread under FL-STD and FL-TOP.

    Args:
      standard: Run folder of FL-STD.
      top: Run folder of FL-TOP, whose K is used for both.
      figure_path: The PNG to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = json.loads((top / "config.json").read_text())["resolved"]["upload_size"]
    values = {
        NAMES["fl_top"]: top_k_values(top, size),
        NAMES["fl_std"]: top_k_values(standard, size),
    }
    widest = max(np.quantile(np.abs(v), 0.995) for v in values.values())
    bins = np.linspace(-widest, widest, 61)
    figure, axes = pyplot.subplots(figsize=(6, 3.8))
    for name, value in values.items():
        axes.hist(value, bins, density=True, histtype="step", label=name, lw=1.8)
    axes.set(
        xlabel=f"value of the K = {size:,} Top-K weights after training",
        ylabel="density",
    )
    axes.legend(frameon=False)
    figure_path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(figure_path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
