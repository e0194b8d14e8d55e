"""Pictures of runs over seeds: a line is the mean, its band one standard deviation."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import pandas as pd

from tff_hdp.files import write_figure

# What a line shows, by what it is called: a series a seed, by its place on the x axis.
Curves = Mapping[str, Sequence[pd.Series]]


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves with axes of their own.

    Attributes:
      curves: By label; the same label has the same colour in all panels.
      title: Above it.
      xlabel: What the series are indexed by.
    """

    curves: Curves
    title: str = ""
    xlabel: str = "round"


def draw(
    panels: Sequence[Panel],
    path: pathlib.Path,
    *,
    ylabel: str,
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> None:
    """Draws panels in rows of three, or two of four.

    Args:
      panels: What to draw.
      path: The picture to write; its folder is made if missing.
      ylabel: What the series hold.
      log: Whether the y axis is logarithmic.
      limits: Of the y axis; None fits the curves.
    """
    from matplotlib.figure import Figure

    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    size = max(6.0, 4 * columns), max(3.8, 3 * rows)
    figure = Figure(figsize=size, layout="constrained")
    sharex = len({panel.xlabel for panel in panels}) == 1
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=True)
    colours: dict[str, str] = {}
    for axes, panel in zip(grid.flat, panels, strict=False):
        for label, seeds in panel.curves.items():
            colour = colours.setdefault(label, f"C{len(colours) % 10}")
            over = pd.concat(seeds, axis=1)
            mean, spread = over.mean(axis=1), over.std(axis=1).fillna(0.0)
            axes.plot(mean.index, mean, label=label, color=colour)
            band = mean - spread, mean + spread
            axes.fill_between(mean.index, *band, color=colour, alpha=0.2)
        axes.set(title=panel.title, xlabel=panel.xlabel)
        axes.tick_params(labelbottom=True)
        if panel.xlabel == "round":
            axes.xaxis.get_major_locator().set_params(integer=True)
        if log:
            axes.set_yscale("log")
        if limits:
            axes.set_ylim(*limits)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize="small")
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(path, figure)
