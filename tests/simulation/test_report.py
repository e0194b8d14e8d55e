"""Runs side by side: every one is in the figure, and told apart from the others."""

import dataclasses
import pathlib

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tff_hdp.privacy import PoissonSampling, account, configurations
from tff_hdp.simulation import report
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl import plan as gfl

ROUNDS = 2


def finished(path, label, last, **flags):
    """A run of two rounds, of which the last one's accuracy is given."""
    plan = configurations.c4(
        zone_sizes=(10,), sampling=PoissonSampling((0.5,)), noise_multiplier=2.0
    )
    accounts = [] if label == "none" else account(plan, ROUNDS, 1e-5, ["rdp"])
    return report.Run(
        path=pathlib.Path(path),
        label=label,
        flags={"task": "digits", "noise_multiplier": 2.0, **flags},
        metrics=pd.DataFrame({"round": [1, 2], "accuracy": [0.1, last]}),
        accounts=accounts,
        notes=[],
    )


@pytest.fixture
def drawn(monkeypatch):
    """The last accuracy of every line that is drawn, by what the legend calls it.

    The title stands beside them, by its name.
    """
    lines = {}

    def savefig(figure, path, **_):
        (axes,) = figure.axes
        lines["title"] = axes.get_title()
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
    title = "digits"
    if any(run.accounts for run in given):
        title += ": noise multiplier 2"
    assert drawn == {"title": title} | dict(zip(legend, accuracies, strict=True))
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["mode"].tolist() == modes
    assert table["accuracy"].tolist() == accuracies
    text = (tmp_path / "table.txt").read_text()
    for mode, run in zip(modes, given, strict=True):
        # In the table, and in the account of those that have one.
        assert text.count(mode) >= 1 + bool(run.accounts)


def test_a_table_by_itself_says_what_a_seed_spoils(tmp_path):
    given = [
        finished("a", "none", 0.2, seed=5),
        finished("b", "hdp", 0.3, seed=5),
        finished("c", "cdp", 0.4, seed=None),
    ]
    report.write_comparison(given, tmp_path)
    table = pd.read_csv(tmp_path / "table.csv", keep_default_na=False)
    rest = table["rests on"]
    assert "participation hidden" in rest[1] and "participation hidden" in rest[2]
    said = rest.str.contains("seed=5 fixes the cohorts", regex=False)
    assert said.tolist() == [False, True, False]


def test_a_name_is_no_formula(tmp_path):
    frame = pd.DataFrame({"round": [1, 2], "accuracy": [0.1, 0.2]})
    name = r"c$_{a^$d"
    report.metric_figure({name: frame}, tmp_path / "drawn.png", title=name)
    assert (tmp_path / "drawn.png").stat().st_size > 0


def test_runs_of_two_tasks_are_told_apart(tmp_path, drawn):
    """The title said the last one's, and the table nothing."""
    alike = {"zones": 3, "clients_per_round": 9.0}
    given = [
        finished("a", "none", 0.2, task="pages", **alike),
        finished("b", "hdp", 0.3, **alike),
    ]
    report.write_comparison(given, tmp_path)
    title = "3 zones, 9 clients a round, noise multiplier 2"
    assert drawn == {"title": title, "no DP, pages": 0.2, "HDP, digits": 0.3}
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["task"].tolist() == ["pages", "digits"]
    assert not {"rounds", "zones", "clients a round"} & set(table)
    assert "pages" in (tmp_path / "table.txt").read_text()


def test_a_table_has_columns_of_what_its_runs_differ_in(tmp_path, drawn):
    longer = finished("c", "fl_top", 0.4, clients_per_round=9)
    metrics = pd.DataFrame({"round": [1, 7], "accuracy": [0.1, 0.4]})
    given = [
        finished("a", "none", 0.2, zones=3, clients_per_round=9.0),
        finished("b", "hdp", 0.3, zones=5, clients_per_round=7.5),
        dataclasses.replace(longer, metrics=metrics),
    ]
    report.write_comparison(given, tmp_path)
    assert drawn["title"] == "digits: noise multiplier 2"
    table = pd.read_csv(tmp_path / "table.csv", dtype=str)
    names = ["mode", "rounds", "zones", "clients a round", "accuracy"]
    assert list(table)[:5] == names
    assert table[names].to_numpy().tolist() == [
        ["none", "2", "3", "9", "0.200"],
        ["hdp", "2", "5", "7.5", "0.300"],
        ["fl_top", "7", "-", "9", "0.400"],
    ]


def test_zones_that_are_said_otherwise_are_told_apart():
    none = {"zones": None, "zone_sizes": None, "zoning_file": None}
    for flags, expected in (
        ({}, "default"),
        ({"zones": 10}, "10"),
        ({"zone_sizes": [5, 25]}, "5+25"),
        ({"zoning_file": "a.csv"}, "a.csv"),
        ({"zoning": "capability", "capability_file": "c.csv"}, "c.csv"),
        # It says who may be elected, and no zones.
        ({"zoning": "iid", "capability_file": "c.csv"}, "default"),
    ):
        other = finished("b", "cdp", 0.3, **none | {"zones": 3})
        table = report.comparison_table(
            [finished("a", "hdp", 0.2, **none | flags), other]
        )
        assert table["zones"].tolist() == [expected, "3"]


def test_a_table_has_every_observer_of_its_runs(tmp_path, drawn):
    """Of GFL's it had none but the two that are promised nothing."""
    plan = gfl.GflPlan(
        **{"scheme": "hybrid", "mu": 0.1, "B": 1.0, "sigma_g": 1.0},
        **{"dimension": 1, "clients": 5, "per_round": 5},
    )
    accounts = gfl_account.account([(plan, ROUNDS)], 1e-5)
    (epsilon,) = (
        f"{row.epsilon_rdp:.4g}"
        for row in accounts
        if row.observer == "other_servers" and row.epsilon_rdp
    )
    neighbours = dataclasses.replace(finished("b", "gfl", 0.3), accounts=accounts)
    given = [finished("a", "hdp", 0.2), neighbours, finished("c", "none", 0.4)]
    report.write_comparison(given, tmp_path)
    table = pd.read_csv(tmp_path / "table.csv", keep_default_na=False)
    hdp = ["eps super_node", "eps aggregator", "eps released_model"]
    names = [*hdp, "eps other_servers"]
    assert [name for name in table if name.startswith("eps ")] == names
    assert table[names].to_numpy()[1:].tolist() == [
        ["none", "–", "none", epsilon],
        ["none"] * 4,
    ]
    assert table["eps other_servers"][0] == "–"
    ours = report.comparison_table([neighbours])
    assert [name for name in ours if name.startswith("eps ")] == [
        "eps super_node",
        "eps other_servers",
        "eps released_model",
    ]


@pytest.mark.parametrize(
    ("of_other", "title"), [(2.0, "digits: noise multiplier 2"), (None, "digits")]
)
def test_a_title_has_no_multiplier_that_is_not_every_runs(
    tmp_path, drawn, of_other, title
):
    """A run for a target epsilon has one that its settings do not say."""
    given = [
        finished("a", "hdp", 0.2),
        finished("b", "cdp", 0.3, noise_multiplier=of_other),
        finished("c", "none", 0.4, noise_multiplier=None),
    ]
    report.write_comparison(given, tmp_path)
    assert drawn["title"] == title
