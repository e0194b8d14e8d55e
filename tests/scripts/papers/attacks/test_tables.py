"""Tables of attacks: rows written out, what is left out and what is refused."""

import shutil

import pandas as pd
import pytest

from scripts.papers import result_files, result_tables
from scripts.papers.attacks import tables as attack_tables

ROWS = {
    "observers": (
        "| another client | HDP | 1.41 | 0.677 ± 0.003 | 0.691 | 2.94 "
        "| add or remove |",
        "| super-node | HDP | 0 | 1.000 ± 0.000 | 1.000 | none |  |",
        "| whoever gets the model | LDP | 2 | 0.627 ± 0.002 | 0.638 | 1.99 "
        "| zero out |",
    ),
    "table4_mnist": (
        "| 0 | CDP | 3 | 1 | 5.4 ± 0.1 | 11.8 | dlg | 0.02 | 0.04 | 0.313 ± 0.004 "
        "| 0.389 | 4.38 | 0.62 |",
        "| 2 | none | 2 | 0 | 33.9 ± 2.2 | 11.8 | dlg | 0.81 | 0.88 | 1.000 ± 0.000 "
        "| 1.000 | none |  |",
    ),
    "table4_others": (
        "| digits, dnn | 2 | 11.4 | 5.5 ± 0.1 | 5.5 ± 0.1 | 71.0 ± 13.4 "
        "| 76.5 ± 12.8 |",
    ),
    "table4_found": (
        "| data, model | nu = 1.73 | nu = 1.41 | nu = 1 | nu = 0 |",
        "| CIFAR-100, Zhu's | 0.177 | 0.199 | 0.252 | 1.000 |",
        "| bound | 0.241 | 0.283 | 0.389 | 1.000 |",
    ),
    "table4_printed": (
        "| EMNIST | LPIPS, printed | 0.571 | 0.599 | 0.62 | 0.68 |",
        "| MNIST | found among 10, here | 0.207 ± 0.000 | 0.237 ± 0.000 "
        "| 0.313 ± 0.004 | 1.000 ± 0.000 |",
        "| CIFAR-100 | LPIPS, printed | 0.447 | 0.46 | 0.474 | 0.564 |",
        "| CIFAR-100 | PSNR in dB, here | 5.6 | 5.6 | 5.6 | 15.6 |",
    ),
    "conclusions": (
        "| another client: LDP or HDP suffices | identification among 10 "
        "| LDP 0.207 of at most 0.241, HDP 0.237 of 0.283, CDP 0.313 of 0.389, "
        "none 1.000 | reproduced, and CDP does too |",
    ),
    "super_node": ("| LDP | 11.0 ± 0.5 | 0.35 | 0.389 | 4.38 |",),
    "rotation": (
        "| 0 |  | 9.95 | 0.443 ± 0.017 | 0.556 | 6.61 | 0.314 ± 0.005 |",
        "| 2 | 3 | 9.95 | 0.467 ± 0.015 | 0.583 | 7 | 0.841 ± 0.005 |",
        "| 200 | 3 |  | 0.983 ± 0.004 | 1.000 | 30.5 | 0.841 ± 0.005 |",
    ),
    "rotation_together": (
        "| 0 | 3.16 | 0.152 ± 0.001 | 0.167 | 1.2 |",
        "| 6 | 2 | 0.188 ± 0.001 | 0.217 | 1.99 |",
    ),
    "rotation_leaders": (
        "| 2 | 8 | 2.83 | 9.9 | 0.471 ± 0.016 | 0.589 | 7.09 | 0.857 ± 0.005 |",
    ),
    "membership_sampled": (
        "| another client | LDP | 4.45 | revealed | 0.613 ± 0.007 | 0.623 | 2.23 "
        "| zero out |",
        "| server that sees zones | CDP | 0 | seen | 1.000 ± 0.000 | 1.000 | none |  |",
    ),
    "lira": ("| CDP | 0.5 | 0.5 | 0.801 ± 0.018 | 0.988 | 31.4 | add or remove |",),
    "systems": (
        "| FL-TOP-DP, 10% of weights | whoever sees the secure sum | 1 | 0.045 "
        "| 0.280 ± 0.039 | 0.419 | 4.38 | zero out |",
        "| UDP-Alg | server | 0 | 0.626 | 1.000 ± 0.000 | 1.000 | none |  |",
        "| HFL-DP | edge | 0.006 | 15.000 | 0.172 ± 0.028 | 1.000 | 14,600 "
        "| replace one |",
    ),
    "property": (
        "| another client | LDP | 1.73 | 100 | 0.819 ± 0.008 | 1.000 | 40.5 "
        "| zero out |",
    ),
    "update_difference": (
        "| HDP | 0.0707 | 0.533 ± 0.080 | 1.000 | 404 | add or remove |",
    ),
    "without_noise": ("| dlg | mnist | dnn | 1 | 0 | 10 | 54.7 ± 10.2 | 12.0 |",),
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
    by = systems.groupby(["ratio", "seed"])
    found = by[["identified", "bound", "epsilon"]].nunique()
    assert len(found) == 9 and (found == 1).all(axis=None)
    bare = pd.read_csv(attacks / "observers.csv").query("privacy == 'none'")
    assert len(bare) == 12 and (bare["auc"] == 1).all()
    tables = [pd.read_csv(path) for path in attacks.glob("table4_*.csv")]
    epsilons = [table.query("seed == 0")["epsilon"] for table in tables]
    assert len(epsilons) == 6 and all(it.equals(epsilons[0]) for it in epsilons)


def test_observers_of_one_nu_that_found_differently_are_refused(tmp_path):
    results = shutil.copytree(result_files.RESULTS, tmp_path / "results")
    path = results / "attacks" / "table4_digits.csv"
    frame = pd.read_csv(path)
    frame.loc[2, "identified"] += 0.01
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match="duplicate"):
        attack_tables.table4_found(results)
