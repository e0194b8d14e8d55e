"""Tables of attacks: rows written out, what is left out and what is refused."""

import shutil

import pandas as pd
import pytest

from scripts.papers import result_files, result_tables
from scripts.papers.attacks import tables as attack_tables

ROWS = {
    "observers": (
        "| another client | HDP | 1.41 | 0.679 | 0.691 | 2.94 | add or remove |",
        "| super-node | HDP | 0 | 1.000 | 1.000 | none |  |",
        "| whoever gets the model | LDP | 2 | 0.627 | 0.638 | 1.99 | zero out |",
    ),
    "table4_mnist": (
        "| 0 | CDP | 3 | 1 | 5.4 (5.3, 5.6) | 11.7 | dlg | 0.02 | 0.04 | 0.322 | 0.389 "
        "| 4.38 | 0.62 |",
        "| 2 | none | 2 | 0 | 36.3 (30.0, 42.7) | 11.7 | dlg | 0.82 | 0.89 | 1.000 "
        "| 1.000 | none |  |",
    ),
    "table4_others": (
        "| digits, dnn | 2 | 11.3 | 5.5 (5.4, 5.7) | 5.5 (5.3, 5.7) "
        "| 66.4 (53.0, 79.8) | 79.1 (65.9, 92.3) |",
    ),
    "table4_found": (
        "| data, model | nu = 1.73 | nu = 1.41 | nu = 1 | nu = 0 |",
        "| CIFAR-100, Zhu's | 0.179 | 0.198 | 0.252 | 1.000 |",
        "| bound | 0.241 | 0.283 | 0.389 | 1.000 |",
    ),
    "table4_printed": (
        "| EMNIST | LPIPS, printed | 0.571 | 0.599 | 0.62 | 0.68 |",
        "| MNIST | found among 10, here | 0.209 | 0.244 | 0.322 | 1.000 |",
        "| CIFAR-100 | LPIPS, printed | 0.447 | 0.46 | 0.474 | 0.564 |",
        "| CIFAR-100 | PSNR in dB, here | 5.6 | 5.6 | 5.6 | 15.6 |",
    ),
    "conclusions": (
        "| another client: LDP or HDP suffices | identification among 10 "
        "| LDP 0.209 of at most 0.241, HDP 0.244 of 0.283, CDP 0.322 of 0.389, "
        "none 1.000 | reproduced, and CDP does too |",
        '| super-node under HDP: "perfect reconstruction" at small batches '
        "| analytic, DLG; batch 1 | 120.0 dB on MNIST's dnn, 26.6 on CIFAR-10 with "
        "Zhu's network, 12.9 with lenet, where guessing reaches 12.5 "
        "| partly: on the dnn; near on Zhu's network, not on lenet |",
    ),
    "super_node": ("| LDP | 11.5 | 10.4, 12.7 | 0.26 | 0.389 | 4.38 |",),
    "rotation": (
        "| 0 |  | 9.95 | 0.460 | 0.556 | 6.61 | 0.311 |",
        "| 2 | 3 | 9.95 | 0.482 | 0.583 | 7 | 0.843 |",
        "| 200 | 3 |  | 0.987 | 1.000 | 30.5 | 0.843 |",
    ),
    "rotation_together": (
        "| 0 | 3.16 | 0.157 | 0.167 | 1.2 |",
        "| 6 | 2 | 0.194 | 0.217 | 1.99 |",
    ),
    "rotation_leaders": ("| 2 | 8 | 2.83 | 9.9 | 0.487 | 0.589 | 7.09 | 0.854 |",),
    "membership_sampled": (
        "| another client | LDP | 4.45 | revealed | 0.620 | 0.623 | 2.23 | zero out |",
        "| server that sees zones | CDP | 0 | seen | 1.000 | 1.000 | none |  |",
    ),
    "lira": (
        "| CDP | 0.5 | 0.5 | 0.806 (0.777, 0.835) | 0.988 | 31.4 | add or remove |",
    ),
    "systems": (
        "| FL-TOP-DP, 10% of weights | whoever sees the secure sum | 1 | 0.039 "
        "| 0.290 (0.23, 0.36) | 0.419 | 4.38 | zero out |",
        "| UDP-Alg | server | 0 | 0.818 | 1.000 (0.98, 1.00) | 1.000 | none |  |",
        "| HFL-DP | edge | 0.006 | 15.000 | 0.185 (0.13, 0.25) | 1.000 | 14,600 "
        "| replace one |",
    ),
    "property": (
        "| another client | LDP | 1.73 | 100 | 0.819 ± 0.008 | 1.000 | 40.5 "
        "| zero out |",
    ),
    "update_difference": (
        "| HDP | 0.0707 | 0.640 (0.388, 0.827) | 1.000 | 404 | add or remove |",
    ),
    "inversion": ("| dlg | breaching | 1937 | 50.9 | 33.2, 59.6 | 22.0 |",),
}


def test_every_table_has_rows_here():
    assert {name.partition("/")[2] for name in attack_tables.TABLES} == set(ROWS)


@pytest.mark.parametrize("name", attack_tables.TABLES)
def test_rows_are_those_of_the_csv(name):
    lines = result_tables.shown(name).splitlines()
    for row in ROWS[name.partition("/")[2]]:
        assert row in lines


def test_rows_that_are_left_out_say_no_more():
    """FL-TOP's other observers; HDP's without noise; epsilons of other data."""
    attacks = result_files.RESULTS / "attacks"
    systems = pd.read_csv(attacks / "systems.csv").query("system == 'fl_top'")
    found = systems.groupby("ratio")[["identified", "bound", "epsilon"]].nunique()
    assert len(found) == 3 and (found == 1).all(axis=None)
    bare = pd.read_csv(attacks / "observers.csv").query("privacy == 'none'")
    assert len(bare) == 4 and (bare["auc"] == 1).all()
    epsilons = [pd.read_csv(path)["epsilon"] for path in attacks.glob("table4_*.csv")]
    assert len(epsilons) == 6 and all(it.equals(epsilons[0]) for it in epsilons)


def test_observers_of_one_nu_that_found_differently_are_refused(tmp_path):
    results = shutil.copytree(result_files.RESULTS, tmp_path / "results")
    path = results / "attacks" / "table4_digits.csv"
    frame = pd.read_csv(path)
    frame.loc[2, "identified"] += 0.01
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match="duplicate"):
        attack_tables.table4_found(results)
