"""Tables of epsilons by formula and of protocols' costs: rows written out."""

import pytest

from scripts.papers import formula_tables, result_files, result_tables

ROWS = {
    # What the paper prints, and Gaussians of z = 1 and sqrt(10) sampled at .2.
    "hdp/table3": (
        "| EMNIST | CDP | 101 | 3.06 | 3.064 | 2.096 | none |",
        "| CIFAR-10/100 | HDP | 200 | 7.48 | 7.845 | 4.08 | 21.54 |",
    ),
    "hdp/others": (
        "| HFL-DP | uplink, n=10 N=5 m=1000 C=15, 25 exposures, one client or one "
        "example, as run | 20 | 344,300 | the whole model is clipped to C, so it moves "
        "by 2C, not 2C/m |",
        "| GFL | all servers' models, 10 iterations | 77.78 | none "
        "| the noise cancels in their average |",
    ),
    "hdp/levels": (
        "| clients | super-nodes | 7.845 | 11.66 | node of level 2 | `Z Pr V K C Y1` |",
        "| server | server | 24.81 | 23.42 | everybody | `A Ph H Y4` |",
    ),
    # Ten clients all mask each other; 100,000 coordinates of four bytes are sent.
    "protocols/sums": (
        "| 100 | 10 | bonawitz | 9 | 0.0032 | 0.17 | 401792 | 1677 |",
        "| 300 | 1 | graph | 56 | 0.12 | 2.3 | 410276 | 10631 |",
    ),
    "protocols/elections": ("| 100 | 10 | 10 | 0.055 | 2.2 | 1054 | 5573 | 55730 |",),
}


def test_every_table_has_rows_here():
    assert set(formula_tables.TABLES) == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_those_of_the_csv(name):
    lines = result_tables.shown(name).splitlines()
    for row in ROWS[name]:
        assert row in lines


@pytest.mark.parametrize("name", ("protocols/sums", "protocols/elections"))
def test_costs_are_of_rounds_without_drop_outs(name):
    """Each k, s and protocol once."""
    frame = formula_tables.TABLES[name](result_files.RESULTS)
    keys = [key for key in ("k", "s", "protocol") if key in frame]
    assert len(frame) >= 8 and not frame.duplicated(keys).any()
