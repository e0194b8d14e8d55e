"""FL-TOP's printed tables: held to the paper's formulas, and ours beside them."""

import numpy as np
import pandas as pd
import pytest

from scripts.papers.fl_top import tables
from tff_hdp.privacy import paper

# n C, the model's weights times the share of clients that a round draws.
SIZES = {"table1": 1_663_370 / 60, "table2_digit": 29_872.275}


@pytest.mark.parametrize("name", SIZES)
def test_printed_costs_are_those_of_the_printed_rounds(name):
    """4 K C Round / 1000 kB up; down as much for FL-TOP, and all n for the others."""
    printed = tables.PRINTED[name]
    whole = 4.0 * SIZES[name] * printed["round"] / 1000.0
    np.testing.assert_allclose(printed["upstream_kb"], printed["r"] * whole, atol=0.02)
    is_top = printed["scheme"].str.startswith("FL-TOP")
    down = np.where(is_top, printed["r"], 1.0) * whole
    np.testing.assert_allclose(printed["downstream_kb"], down, atol=0.02)


def test_printed_epsilons_are_those_of_the_printed_rounds():
    """Theorem 1's at sigma = 1.54, a sixtieth of the clients a round."""
    printed = tables.PRINTED["table1"].dropna()
    assert len(printed) == 10 == printed["scheme"].str.endswith("-DP").sum()
    found = [
        paper.accountant_epsilon(1 / 60, 1.54, rounds, 1e-5)
        for rounds in printed["round"]
    ]
    np.testing.assert_allclose(found, printed["epsilon"], atol=0.005)


def test_ours_stand_beside_what_is_printed(tmp_path):
    rows = pd.DataFrame(
        {
            "r": 0.05,
            "scheme": ["FL-TOP-DP", "FL-TOP-DP", "FL-TOP"],
            "metric": "best_accuracy",
            "best_accuracy": [0.7, 0.8, 0.9],
            "best_round": [90, 110, 150],
            "downstream_kb": [499.0, 610.0, 832.4],
            "upstream_kb": [499.0, 610.0, 832.4],
            "epsilon_paper": [0.85, 0.87, None],
        }
    )
    (tmp_path / "fl_top").mkdir()
    rows.to_csv(tmp_path / "fl_top" / "table1.csv", index=False)
    found = tables.beside("table1", tmp_path).set_index(["r", "scheme"])
    assert len(found) == 20
    noisy = found.loc[0.05, "FL-TOP-DP"]
    assert noisy.tolist() == [
        *(2, "0.81", "0.750 ± 0.071", "152", "100 ± 14.14"),
        *("842.77", "554 ± 78.49", "842.77", "554 ± 78.49", "0.92", "0.86 ± 0.01"),
    ]
    assert found.loc[0.05, "FL-TOP"].tolist() == [
        *(1, "0.84", "0.900", "200", "150", "1108.91", "832", "1108.91", "832"),
        *("", ""),
    ]
    assert found.loc[1.0, "FL-STD"].tolist()[:3] == [0, "0.86", ""]
