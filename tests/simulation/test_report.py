"""Runs side by side: every one is in the figure, and told apart from the others."""

import pathlib

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tff_hdp.privacy import PoissonSampling, account, configurations
from tff_hdp.simulation import report

ROUNDS = 2


def finished(path, label, last):
    """A run of two rounds, of which the last one's accuracy is given."""
    plan = configurations.c4(
        zone_sizes=(10,), sampling=PoissonSampling((0.5,)), noise_multiplier=2.0
    )
    accounts = [] if label == "none" else account(plan, ROUNDS, 1e-5, ["rdp"])
    return report.Run(
        path=pathlib.Path(path),
        label=label,
        flags={"task": "digits"},
        metrics=pd.DataFrame({"round": [1, 2], "accuracy": [0.1, last]}),
        accounts=accounts,
        notes=[],
    )


@pytest.fixture
def drawn(monkeypatch):
    """The last accuracy of every line that is drawn, by what the legend calls it."""
    lines = {}

    def savefig(figure, path, **_):
        (axes,) = figure.axes
        lines.update((line.get_label(), line.get_ydata()[-1]) for line in axes.lines)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return lines


@pytest.mark.parametrize(
    ("runs", "modes", "legend"),
    [
        (
            [("a", "none"), ("b", "hdp")],
            ["none", "hdp"],
            ["no DP", "HDP"],
        ),
        (
            [("runs/z1", "hdp"), ("runs/z2", "hdp"), ("runs/c", "cdp")],
            ["hdp (z1)", "hdp (z2)", "cdp"],
            ["HDP (z1)", "HDP (z2)", "CDP"],
        ),
        (
            [("a/none", "none"), ("b/none", "none"), ("b/other", "none")],
            ["none (a/none)", "none (b/none)", "none (other)"],
            ["no DP (a/none)", "no DP (b/none)", "no DP (other)"],
        ),
    ],
)
def test_every_run_has_a_line_and_a_row_of_its_own(
    tmp_path, drawn, runs, modes, legend
):
    accuracies = [0.2, 0.3, 0.4][: len(runs)]
    given = [finished(*run, last) for run, last in zip(runs, accuracies, strict=True)]
    report.write_comparison(given, tmp_path)
    assert drawn == dict(zip(legend, accuracies, strict=True))
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["mode"].tolist() == modes
    assert table["accuracy"].tolist() == accuracies
    text = (tmp_path / "table.txt").read_text()
    for mode, run in zip(modes, given, strict=True):
        # In the table, and in the account of those that have one.
        assert text.count(mode) >= 1 + bool(run.accounts)
