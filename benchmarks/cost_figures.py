"""The figure of what secure aggregation costs: flat, in zones, and sparse."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tff_hdp.files import write_figure
from tff_hdp.protocols.secagg.graphs import sparse

# The HDP paper timed secure aggregation at 2 to 30 s a round (section VIII); the
# aim is a tenth of its fastest.
PAPER_SECONDS = 2.0
# The share of clients that drop out in the rows drawn.
_DROPOUT = 0.05
_KINDS = (
    ("bonawitz", 1, "flat, all pairs", "C3", "o-"),
    ("graph", 1, "flat, sparse graph", "C0", "s-"),
    ("bonawitz", 10, "10 zones, all pairs", "C2", "^-"),
)


def draw_costs(costs: pd.DataFrame, path: Path) -> None:
    """Draws masks per client, total work and critical path over k.

    Args:
      costs: Rows of `protocol_costs.measure`.
      path: Where the PNG goes.
    """
    figure = Figure(figsize=(13, 4))
    masks, work, path_axes = figure.subplots(1, 3)
    _draw_masks(masks)
    shown = costs[(costs.dropout == _DROPOUT) & (costs.model_size == 100_000)]
    for column, axes, aim, said in (
        ("total_seconds", work, PAPER_SECONDS, "the paper's fastest, 2 s"),
        ("critical_path_seconds", path_axes, PAPER_SECONDS / 10, "a tenth of 2 s"),
    ):
        axes.axhline(aim, color="grey", linestyle=":", label=said)
        for protocol, zones, label, colour, style in _KINDS:
            rows = shown[(shown.protocol == protocol) & (shown.zones == zones)]
            rows = rows.sort_values("clients")
            axes.plot(rows.clients, rows[column], style, color=colour, label=label)
        axes.set(xscale="log", yscale="log", xlabel="clients k")
        axes.legend(fontsize=8)
    work.set(title=f"All parties on one core\n(d = 100,000, {_DROPOUT:.0%} drop out)")
    work.set_ylabel("processor seconds a round")
    path_axes.set(title="Critical path: slowest client\nplus super-node")
    figure.tight_layout()
    write_figure(path, figure)


def crossover(zones: int, clients: np.ndarray) -> int | None:
    """The least k at which one sparse graph asks for fewer masks than s zones."""
    for k in clients:
        graph = sparse(int(k))
        if graph.degree is not None and graph.degree < k / zones - 1:
            return int(k)
    return None


def _draw_masks(axes: Axes) -> None:
    clients = np.unique(np.geomspace(10, 1000, 40).astype(int))
    axes.plot(clients, clients - 1, color="C3", label="flat: k - 1")
    for zones, style in ((5, "--"), (10, "-")):
        wide = clients[clients >= 3 * zones]
        axes.plot(
            wide, wide / zones - 1, style, color="C2", label=f"{zones} zones: k/s - 1"
        )
        k = crossover(zones, np.arange(3 * zones, 1001, zones))
        if k is not None:
            axes.plot(k, k / zones - 1, "kx")
            axes.annotate(f"k = {k}", (k, k / zones - 1), fontsize=8, ha="right")
    degrees = [sparse(int(k)).degree or int(k) - 1 for k in clients]
    axes.plot(clients, degrees, color="C0", label="flat, sparse: O(log k)")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="clients k",
        ylabel="masks per client",
        title="Pairwise masks and where\nsparse beats zones (x)",
    )
    axes.legend(fontsize=8)
