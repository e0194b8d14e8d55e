"""Tables of clients and overlays, read from files."""

import time

import networkx as nx
import numpy as np
import pytest

from tff_hdp.errors import FileError
from tff_hdp.topology import zones_by_overlay
from tff_hdp.topology.attributes import (
    load_attribute,
    load_numbers,
    load_overlay,
    small_world,
)

IDS = ("a", "b", "c")


def write(path, text):
    path.write_text(text)
    return path


def test_a_column_of_a_table(tmp_path):
    table = write(
        tmp_path / "t.csv",
        "capability, client ,region\n-2.5,b ,rome\n1,a,lima \n3,c,rome\n",
    )
    regions = load_attribute(table, "region", client_ids=IDS)
    assert regions == {"a": "lima", "b": "rome", "c": "rome"}
    scores = load_numbers(table, "capability", client_ids=IDS)
    assert scores == {"a": 1.0, "b": -2.5, "c": 3.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,zone\na,x\n", r"header is \['client', 'zone'\]; it lacks 'region'"),
        ("client,region\na,x\nb,y\n", "region is without 'c'"),
        ("client,region\na,x\nb,y\nc,x\nd,x\n", "region is given for 'd'"),
        ("client,region\na,x\na,y\n", "client 'a' stands there twice"),
        ("client,region\na,\n", "line 2 leaves one of client, region empty"),
        ("client,region\na\n", "line 2 leaves one of client, region empty"),
        ("client,name,region\na,Roe, Jo,x\n", "line 2 has 4 cells, the header 3"),
        ("", r"header is \[\]; it lacks 'client'"),
        ("client,region,region\na,x,y\nb,x,y\nc,x,y\n", "header has 'region' twice"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    table = write(tmp_path / "t.csv", text)
    with pytest.raises(FileError, match=rf"t\.csv: {message}"):
        load_attribute(table, "region", client_ids=IDS)


# The last two are numbers to Python.
@pytest.mark.parametrize(
    "score", ["fast", "nan", "inf", "-inf", "1e999", "1_5", "\N{FULLWIDTH DIGIT TWO}"]
)
def test_a_score_that_is_no_finite_number_is_refused(tmp_path, score):
    table = write(tmp_path / "t.csv", f"client,capability\na,1\nb,{score}\nc,2\n")
    with pytest.raises(FileError, match=f"capability of 'b' is '{score}'"):
        load_numbers(table, "capability", client_ids=IDS)


def test_a_score_with_a_decimal_comma_is_refused(tmp_path):
    table = write(tmp_path / "t.csv", "client,capability\na,1\nb,2,5\nc,2\n")
    with pytest.raises(FileError, match=r"t\.csv: line 3 has 3 cells, the header 2"):
        load_numbers(table, "capability", client_ids=IDS)


def test_a_wide_header_takes_linear_time(tmp_path):
    """20,000 columns times 40,000 rows would be minutes."""
    text = "client,region" + ",x" * 20_000 + "\n" + "a,x\n" * 40_000
    began = time.process_time()
    with pytest.raises(FileError, match="'a' stands there twice"):
        load_attribute(write(tmp_path / "t.csv", text), "region", client_ids=IDS)
    assert time.process_time() - began < 5.0


def test_an_overlay_and_its_communities(tmp_path):
    links = write(tmp_path / "o.csv", "a,b,weight\nb,a,2\n")
    overlay = load_overlay(links, client_ids=IDS)
    assert set(overlay) == set(IDS)
    assert list(overlay.edges(data="weight")) == [("a", "b", 2.0)]
    assert zones_by_overlay(IDS, overlay=overlay).zone_of == (0, 0, 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,z,1", "'z' is linked but is not a client"),
        ("a,a,1", "'a' is linked to itself"),
        ("a,b,1\na,b,1", "link 'a'-'b' stands there twice"),
        ("a,b,1\nb,c,1\nb,a,5", "link 'b'-'a' stands there twice"),
        ("a,b,-1", "weight of 'a'-'b' is '-1'"),
        ("b,c,1\na,b,2,5", "line 3 has 4 cells, the header 3"),
        ("a,b,heavy", "weight of 'a'-'b' is 'heavy'"),
        ("a,b,inf", "weight of 'a'-'b' is 'inf'"),
        ("a,b,1e308", "weight of 'a'-'b' is '1e308'"),
    ],
)
def test_bad_overlays_are_refused(tmp_path, row, message):
    links = write(tmp_path / "o.csv", f"a,b,weight\n{row}\n")
    with pytest.raises(FileError, match=message):
        load_overlay(links, client_ids=IDS)


@pytest.mark.parametrize("n", [1, 4, 7, 60])
def test_a_small_world_is_connected_and_sparse(n):
    ids = [f"c{i}" for i in range(n)]
    graph = small_world(ids, rng=np.random.default_rng(0))
    assert set(graph) == set(ids)
    assert nx.is_connected(graph)
    assert graph.number_of_edges() == min(3 * n, n * (n - 1) // 2)
    again = small_world(ids, rng=np.random.default_rng(0))
    assert set(graph.edges) == set(again.edges)


def test_small_worlds_are_drawn_anew_and_neighbours_are_no_order_of_ids():
    """Of 200 clients on a ring in their own order 9 in 10 links were of near ones."""
    ids = list(range(200))
    worlds = [small_world(ids, rng=np.random.default_rng(seed)) for seed in (1, 2)]
    assert set(worlds[0].edges) != set(worlds[1].edges)
    near = [min(abs(a - b), 200 - abs(a - b)) <= 3 for a, b in worlds[0].edges]
    # A pair at random is near with probability 6 / 199: 18 of 600, standard error 4.2.
    assert sum(near) < 40
    # A ring of six neighbours each is 3/5 clustered, and its links rewired with
    # probability p leave about (1 - p)^3 of that (Barrat and Weigt 2000).
    assert nx.average_clustering(worlds[0]) == pytest.approx(0.6 * 0.9**3, abs=0.06)
