"""Figures of accounts."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from tff_hdp.files import write_figure
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.threat import OBSERVERS

_TITLES = {
    "multiplier": "every noising party with z = {:.4g}",
    "release": "every released model with z = {:.4g}",
}


def draw_rounds(request: AccountConfig, path: str) -> None:
    """Draws epsilon by RDP over the rounds, one line per row of the account."""
    steps = sorted({max(1, round(request.rounds * i / 40)) for i in range(1, 41)})
    curves: dict[str, list[float]] = {}
    for rounds in steps:
        at = dataclasses.replace(request, rounds=rounds)
        for row in at.rows(("rdp",)):
            zone = "" if row.zone is None else f", zone {row.zone}"
            observer = row.observer.replace("_", " ")
            if row.observer == "super_node" and row.level > 1:
                observer += f" of level {row.level}"
            label = f"{observer}: {row.client_kind} client{zone}"
            if row.epsilon_rdp is not None:
                curves.setdefault(label, []).append(row.epsilon_rdp)
    figure, axes = _axes(
        f"epsilon (RDP, delta {request.delta:g})",
        f"{request.privacy}, z = {request.noise_multiplier:.4g}",
    )
    for label, epsilons in curves.items():
        axes.plot(steps[-len(epsilons) :], epsilons, label=label, linewidth=1.8)
    axes.set_xlabel("round")
    axes.legend(frameon=False, fontsize="small")
    write_figure(pathlib.Path(path), figure)


def draw_comparison(rows: Sequence[dict[str, Any]], equal: str, path: str) -> None:
    """Draws epsilon by PLD for every mode and observer; none as an open bar.

    Args:
      rows: What `tables.comparison` returned.
      equal: What it held equal.
      path: The image file to write.
    """
    if equal == "release":
        z = next(
            r["noise_multiplier"] for r in rows if r["observer"] == "released_model"
        )
    else:
        z = rows[0]["party_noise_multiplier"]
    title = _TITLES[equal].format(z)
    figure, axes = _axes(f"epsilon (PLD, delta {rows[0]['delta']:g})", title)
    top = 3 * max(row["epsilon_pld"] or 0 for row in rows)
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    for m, mode in enumerate(modes):
        places, heights = [], []
        for o, observer in enumerate(OBSERVERS):
            found = [r for r in rows if r["mode"] == mode and r["observer"] == observer]
            values = [r["epsilon_pld"] for r in found]
            place = o + 0.27 * (m - 1)
            if None in values:
                axes.bar(place, top, 0.25, fill=False, edgecolor=f"C{m}", hatch="//")
                axes.text(place, top * 1.1, "none", ha="center", fontsize="small")
                continue
            places.append(place)
            heights.append(max(values))
            axes.text(
                place,
                heights[-1] * 1.1,
                f"{heights[-1]:.3g}",
                ha="center",
                fontsize="small",
            )
        axes.bar(places, heights, 0.25, color=f"C{m}", label=mode.upper())
    axes.set_xticks(range(len(OBSERVERS)), [o.replace("_", " ") for o in OBSERVERS])
    axes.set_ylim(top=top * 2)
    axes.legend(frameon=False)
    write_figure(pathlib.Path(path), figure)


def draw_levels(
    rows: Sequence[dict[str, Any]], fan_ins: Sequence[int], path: str
) -> None:
    """Draws epsilon over the levels of a tree, the paper's dashed, the sound solid.

    Args:
      rows: What `closed_form.multi_level` returned.
      fan_ins: What it was given.
      path: The image file to write.
    """
    from matplotlib import ticker

    figure, axes = _axes(
        f"epsilon (delta {rows[0]['delta']:g})",
        f"fan-ins {', '.join(map(str, fan_ins))}: solid by RDP, dashed "
        "eps / sqrt(prod k_j) of the paper",
    )
    last = len(fan_ins)
    names = {0: "clients", 1: "super-nodes", last: "server"}
    for noising in range(last + 1):
        own = [row for row in rows if row["noise_at"] == noising]
        levels = [row["level"] for row in own]
        style = {"color": f"C{noising}", "marker": "o", "linewidth": 1.8}
        label = f"noise by {names.get(noising, f'nodes of level {noising}')}"
        axes.plot(levels, [row["epsilon_rdp"] for row in own], label=label, **style)
        paper = [row["epsilon_paper"] for row in own]
        axes.plot(levels, paper, linestyle="--", markerfacecolor="none", **style)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    ticks = [names.get(i, f"level {i}") for i in range(last + 1)]
    axes.set_xticks(range(last + 1), ticks)
    axes.set_xlabel("whose output is seen (the server's: the released model)")
    axes.legend(frameon=False, fontsize="small")
    write_figure(pathlib.Path(path), figure)


def _axes(ylabel: str, title: str) -> tuple[Any, Any]:
    from matplotlib import ticker
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2))
    axes = figure.subplots()
    axes.set(ylabel=ylabel, title=title, yscale="log")
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.grid(alpha=0.3)
    return figure, axes
