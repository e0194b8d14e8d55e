"""Figure 1 of the FL-TOP paper: how the Top-K weights are spread after training."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np

from tff_hdp.files import write_figure
from tff_hdp.systems.fl_top.public import top_k
from tff_hdp.systems.fl_top.results import NAMES, WEIGHTS_FILE
from tff_hdp.systems.fl_top.setup import read_setup


def top_k_values(path: pathlib.Path, size: int) -> np.ndarray:
    """The values after the last round of a run's own Top-K weights, [size]."""
    _, scores = read_setup(path)
    with np.load(path / WEIGHTS_FILE) as saved:
        return saved["final"][top_k(scores, size)]


def weights_figure(
    standard: Sequence[pathlib.Path],
    top: Sequence[pathlib.Path],
    figure_path: pathlib.Path,
) -> None:
    """Figure 1: how the Top-K weights are spread under FL-STD and FL-TOP.

    Args:
      standard: Run folders of FL-STD, a run a seed.
      top: Run folders of FL-TOP, of one K, which is used for both.
      figure_path: The PNG to write.
    """
    from matplotlib.figure import Figure

    record = json.loads((top[0] / "config.json").read_text())
    size = record["resolved"]["upload_size"]
    values = {
        NAMES[scheme]: np.concatenate([top_k_values(path, size) for path in paths])
        for scheme, paths in (("fl_top", top), ("fl_std", standard))
    }
    widest = max(np.quantile(np.abs(v), 0.995) for v in values.values())
    # As many as a bin's count allows to mean something.
    count = min(60, 2 * (len(top) * size) ** 0.5)
    bins = np.linspace(-widest, widest, int(count) + 1)
    figure = Figure(figsize=(6, 3.8))
    axes = figure.subplots()
    for name, value in values.items():
        axes.hist(value, bins, density=True, histtype="step", label=name, lw=1.8)
    axes.set(
        xlabel=f"value of the K = {size:,} Top-K weights after training",
        ylabel="density",
    )
    axes.legend(frameon=False)
    figure_path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(figure_path, figure)
