"""Where a study's runs ended: a picture of its CSV alone, what is printed beside it.

    python scripts/papers/ends.py fl_top/table1 hfl_dp/figure2

Draws docs/figures/<paper>_<study>_ends.png: a row a line, a point a seed, mean and
standard deviation. Curves over rounds need more than a study's CSV (`kept_curves`);
this picture can be drawn of every study.
"""

import pathlib
import sys

import pandas as pd

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.files import write_figure


def path_of(picture: pathlib.Path) -> pathlib.Path:
    """Where the ends lie of runs whose curves are in a picture."""
    return picture.with_name(f"{picture.stem}_ends.png")


def draw(frame: pd.DataFrame, path: pathlib.Path) -> None:
    """Draws a study's CSV.

    Args:
      frame: As `Study.write` writes it.
      path: The picture to write.
    """
    from matplotlib.figure import Figure

    metric = frame["metric"][0]
    labels = list(frame.columns[: frame.columns.get_loc("printed")])
    # Constant ones say nothing.
    told = [name for name in labels if frame[name].nunique() > 1] or labels[:1]
    groups = list(frame.groupby(labels, sort=False, dropna=False))
    figure = Figure(figsize=(7, 1.1 + 0.28 * len(groups)), layout="constrained")
    axes = figure.subplots()
    names = []
    for at, (_, runs) in enumerate(groups):
        label = [(name, runs[name].iloc[0]) for name in told]
        names.append(", ".join(_shown(*each) for each in label if each[1] != "-"))
        values, printed = runs[metric], runs["printed"].iloc[0]
        axes.plot(values, [at] * len(values), "o", color="C0", alpha=0.5, ms=4)
        spread = values.std() if len(values) > 1 else 0.0
        axes.errorbar(values.mean(), at, xerr=spread, fmt="|", color="C0", capsize=3)
        if pd.notna(printed):
            axes.plot(printed, at, "D", color="C3", ms=5, mfc="none")
    axes.plot([], [], "o", color="C0", alpha=0.5, ms=4, label="a seed")
    axes.errorbar([], [], xerr=[], fmt="|", color="C0", capsize=3, label="mean ± sd")
    if frame["printed"].notna().any():
        axes.plot([], [], "D", color="C3", ms=5, mfc="none", label="printed")
    axes.set(
        yticks=range(len(names)), yticklabels=names, xlabel=metric.replace("_", " ")
    )
    axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small", loc="best")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(path, figure)


def _shown(name: str, value: object) -> str:
    """A label's value; a number, or a CSV's text of it, is told what it is of."""
    try:
        return f"{name} = {float(value):g}"
    except ValueError:
        return str(value)


def main(words: list[str]) -> int:
    """Draws the studies named."""
    from scripts.papers.result_files import RESULTS, ROOT, read

    for name in words:
        path = RESULTS / f"{name}.csv"
        if not path.is_file() or "metric" not in (frame := read(path)):
            raise ArgumentError("STUDY", name, "<paper>/<study> of docs/results")
        picture = ROOT / "docs" / "figures" / f"{name.replace('/', '_')}.png"
        draw(frame, path_of(picture))
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main, takes_words=True))
