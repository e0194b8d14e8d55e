import numpy as np
import pandas as pd
import pytest

from benchmarks import cost_figures, protocol_costs
from benchmarks.protocol_costs import Cell, measure, measure_all
from tff_hdp.protocols.elections.electorate import BeyondThresholdError
from tff_hdp.protocols.secagg.errors import BelowThresholdError
from tff_hdp.protocols.secagg.graphs import sparse


def test_clients_and_dropouts_are_spread_evenly():
    cell = Cell(protocol="graph", clients=11, zones=3, dropout=0.2)
    assert cell.dropped == 2
    assert cell.zone_kinds() == {(4, 1): 2, (3, 0): 1}


@pytest.mark.parametrize("protocol", ["bonawitz", "graph"])
def test_one_zone_of_a_kind_stands_for_all(protocol):
    cell = Cell(protocol=protocol, clients=24, zones=3, model_size=1000, dropout=0.125)
    every, one = measure(cell), measure(cell, every_zone=False)
    assert every.keys() == one.keys()
    for name in ("messages", "client_sent_bytes", "hub_received_bytes"):
        assert every[name] == one[name]
    # Ids and random graphs may differ in length and choice, by a few bytes.
    assert every["total_bytes"] == pytest.approx(one["total_bytes"], rel=0.02)


def test_messages_and_bytes_by_hand():
    row = measure(Cell(protocol="bonawitz", clients=12, zones=3, model_size=5000))
    # Per client keys, shares, update and answer up, three messages down.
    assert row["messages"] == 12 * 7
    assert row["degree"] == 3
    assert row["zone_size"] == 4
    assert 4 * 5000 < row["client_sent_bytes"] < 4 * 5000 + 1500
    assert row["hub_received_bytes"] == pytest.approx(4 * row["client_sent_bytes"])
    dropped = measure(
        Cell(protocol="bonawitz", clients=12, zones=3, model_size=5000, dropout=0.25)
    )
    # One of four is silent once it has shared: two messages less each way.
    assert dropped["dropped"] == 3
    assert dropped["messages"] == 12 * 7 - 3 * 4


def test_elections_do_not_depend_on_the_model():
    small, large = (
        measure(Cell(protocol="election", clients=4, zones=2, model_size=size))
        for size in (10, 10**6)
    )
    assert small["total_bytes"] == large["total_bytes"]
    assert small["messages"] == 2 * 9 * 2


def test_cells_below_the_threshold_are_left_out():
    alone = Cell(protocol="bonawitz", clients=4, zones=4, model_size=10)
    with pytest.raises(BelowThresholdError):
        measure(alone)
    stopped = Cell(protocol="election", clients=4, zones=2, dropout=0.99)
    with pytest.raises(BeyondThresholdError):
        measure(stopped)
    sound = Cell(protocol="bonawitz", clients=4, zones=2, model_size=10)
    rows = dict(measure_all([alone, stopped, sound]))
    assert rows[alone] is None
    assert rows[stopped] is None
    assert rows[sound]["messages"] == 28


def test_the_grid_covers_what_it_should():
    cells = list(protocol_costs.grid())
    assert len(set(cells)) == len(cells)
    sums = [cell for cell in cells if cell.protocol != "election"]
    # 15 of the 16 (k, s) have no empty zone, each with 3 drop-outs, 3 sizes.
    assert len(sums) == 15 * 3 * 3 * 2
    assert all(c.clients / c.zones <= 30 for c in cells if c.protocol == "election")


def test_the_crossover_is_where_degrees_meet():
    clients = np.arange(30, 1001, 10)
    k = cost_figures.crossover(5, clients)
    assert sparse(k).degree < k / 5 - 1
    before = sparse(k - 10)
    assert before.degree is None or before.degree >= (k - 10) / 5 - 1
    assert cost_figures.crossover(1000, clients) is None


def test_the_figure_is_drawn(tmp_path):
    rows = [
        {
            "protocol": protocol,
            "clients": k,
            "zones": zones,
            "model_size": 100_000,
            "dropout": 0.05,
            "total_seconds": 0.1 * k,
            "critical_path_seconds": 0.01 * k,
        }
        for protocol, zones in (("bonawitz", 1), ("graph", 1), ("bonawitz", 10))
        for k in (30, 100)
    ]
    path = tmp_path / "costs.png"
    cost_figures.draw_costs(pd.DataFrame(rows), path)
    assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "magic"}, "protocol is magic; allowed: election, bonawitz"),
        ({"clients": 0}, "clients is 0"),
        ({"zones": 11}, r"zones is 11; allowed: 1\.\.10"),
        ({"zones": 0}, "zones is 0"),
        ({"model_size": 0}, "model_size is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_bad_cells_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Cell(**({"protocol": "graph", "clients": 10, "zones": 2} | changes))
