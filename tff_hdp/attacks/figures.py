"""Pictures of what attacks reach, with what theory allows them."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.files import write_figure

_MOST = 10


def draw(outcome: Outcome, path: str) -> None:
    """Draws what one of the `config.DRAWN` attacks left: images, curves, a rotation."""
    if outcome.originals is not None:
        shown = {"original": outcome.originals}
        for row, found in zip(outcome.rows, outcome.found, strict=True):
            shown[_label(row)] = found
        _images(shown, path)
    elif outcome.curves:
        _curves(outcome, path)
    else:
        _rotation(outcome.rows, path)


def digits_seen_by_super_node(path: str) -> list[dict[str, Any]]:
    """Six digits as their own super-node sees them, without noise and in each mode.

    Returns:
      A row a mode, as `run` gives them.
    """
    config = AttackConfig(
        attack="analytic", privacy="none", level="1", victims=6, seed=1
    )
    attacker, rows, shown = Attacker(config), [], {}
    for mode in ("none", "cdp", "hdp", "ldp"):
        vantage = dataclasses.replace(config, privacy=mode).vantage(attacker.clip_norm)
        originals, seen = attacker.observe(vantage)
        images = attacker.reconstruct("analytic", vantage, seen)
        columns, found = attacker.distances(originals, images)
        rows.append(attacker.row(vantage, privacy=mode) | columns)
        shown.setdefault("original", originals)
        shown[_label(rows[-1])] = found
    _images(shown, path)
    return rows


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['observer']}, {row['privacy']}\n{_words(row)}"


def _words(row: Mapping[str, Any]) -> str:
    if row["epsilon"] is None:
        return "no epsilon"
    return (
        f"epsilon {row['epsilon']:.3g} at delta {row['delta']:g}\n"
        f"{row['neighbours']}, {row['sampling']}"
    )


def _images(rows: Mapping[str, np.ndarray], path: str) -> None:
    count = min(_MOST, *(len(images) for images in rows.values()))
    size = (count + 1.6, 1.1 * len(rows))
    figure = Figure(figsize=size)
    grid = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        for axes, image in zip(line, images, strict=False):
            axes.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
    write_figure(pathlib.Path(path), figure)


def _curves(outcome: Outcome, path: str) -> None:
    """A panel an observer, a colour for each that adds noise."""
    observers = list(dict.fromkeys(row["observer"] for row in outcome.rows))
    figure = Figure(figsize=(4.2 * len(observers), 4.4))
    grid = figure.subplots(1, len(observers), squeeze=False)
    fpr = np.linspace(0, 1, 400)
    for axes, observer in zip(grid[0], observers, strict=True):
        for (curve, vantage), row in zip(outcome.curves, outcome.rows, strict=True):
            if row["observer"] != observer:
                continue
            name = f"{row['privacy']}, AUC {curve.auc:.3f}\n{_words(row)}"
            (line,) = axes.plot(curve.fpr, curve.tpr, ".-", ms=3, lw=1, label=name)
            bound = vantage.bound(row["rounds"]).power(fpr)
            axes.plot(fpr, bound, "--", color=line.get_color())
            # Scores by the same shadows depend on each other: no band holds for them.
            if "shadows" not in row:
                low, high = curve.tpr_low, curve.fpr_high
                axes.plot(high, low, ":", color=line.get_color(), lw=1)
        axes.set(title=observer, xlabel="false positive rate")
        axes.title.set_fontsize(9)
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    grid[0][0].set_ylabel("true positive rate\ndashed: bound; dotted: 99.9 % band")
    figure.tight_layout()
    write_figure(pathlib.Path(path), figure)


def _rotation(rows: list[dict[str, Any]], path: str) -> None:
    figure = Figure(figsize=(5.4, 3.6))
    axes = figure.subplots()
    # Who never leads is nowhere on a logarithmic axis.
    rows = [row for row in rows if row["aggregates"]]
    for observer in dict.fromkeys(row["observer"] for row in rows):
        own = [row for row in rows if row["observer"] == observer]
        seen = [row["aggregates"] for row in own]
        (line,) = axes.plot(seen, [r["identified"] for r in own], ".-", label=observer)
        unknown = [r["identified_others_unknown"] for r in own]
        axes.plot(seen, unknown, ":", color=line.get_color())
        axes.plot(seen, [r["bound"] for r in own], "--", color=line.get_color())
    axes.set(
        xscale="log",
        xlabel="aggregates seen",
        ylabel="identified",
        title="dashed: bound; dotted: by aggregates alone, others not known",
    )
    axes.title.set_fontsize(9)
    axes.legend(frameon=False, fontsize=8)
    write_figure(pathlib.Path(path), figure)
