import inspect

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.stats

from tff_hdp.errors import ArgumentError
from tff_hdp.topology import (
    dominant_labels,
    equal_zones,
    one_zone,
    with_levels,
    zones_by_capability,
    zones_by_key,
    zones_by_overlay,
    zones_of_sizes,
)

IDS = tuple(f"c{i}" for i in range(6))


def test_zones_by_geography():
    keys = dict(
        zip(IDS, ["rome", "paris", "rome", "oslo", "paris", "rome"], strict=True)
    )
    zoning = zones_by_key(IDS, keys=keys)
    assert zoning.zone_names == ("oslo", "paris", "rome")
    assert zoning.zone_of == (2, 1, 2, 0, 1, 2)
    assert zoning.zone_sizes == (1, 2, 3)


def test_zones_by_dominant_label():
    labels = {"a": [3, 3, 1], "b": np.array([0, 7, 7]), "c": [2, 1], "d": [3]}
    keys = dominant_labels(labels)
    assert keys == {"a": 3, "b": 7, "c": 1, "d": 3}
    assert zones_by_key(tuple(labels), keys=keys).zone_of == (1, 2, 0, 1)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.int64, np.uint64])
def test_labels_of_any_integer_type_have_a_dominant_one(dtype):
    keys = dominant_labels({"a": np.array([1, 0, 1], dtype)})
    assert keys == {"a": 1} and type(keys["a"]) is int


def test_the_largest_labels_are_counted_too():
    labels = {"a": [2**62, 3, 2**62], "b": np.array([2**64 - 1], np.uint64)}
    assert dominant_labels(labels) == {"a": 2**62, "b": 2**64 - 1}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([], "empty"),
        ([1, -2], "-2"),
        (np.array([1.0, 2.0]), r"\[1. 2.\]"),
        ([1.5, 2], "1.5,2"),
        (np.array([[1, 2], [2, 2]]), r"\[\[1 2\] \[2 2\]\]"),
        ([[1], [1, 2]], r"\[1\],\[1, 2\]"),
        (["1", "1"], "1,1"),
        ("11", "11"),
        ([None], "None"),
        (None, "None"),
        (3, "3"),
        ({1}, r"\{1\}"),
        ([10**30], str(10**30)),
    ],
    ids=str,
)
def test_bad_labels_are_refused(labels, found):
    with pytest.raises(ArgumentError, match=rf"^labels\['a'\] is {found}; allowed: "):
        dominant_labels({"a": labels})


def test_zones_by_capability_are_ordered_bands():
    rng = np.random.default_rng(3)
    ids = [f"c{i}" for i in range(23)]
    capability = {
        c: float(x) for c, x in zip(ids, rng.exponential(size=23), strict=True)
    }
    zoning = zones_by_capability(ids, capability=capability, num_zones=4)
    assert sorted(zoning.zone_sizes) == [5, 6, 6, 6]
    for zone in range(3):
        best = max(capability[c] for c in zoning.clients_in(zone))
        assert best <= min(capability[c] for c in zoning.clients_in(zone + 1))


def test_zones_by_overlay_find_planted_communities():
    # Three cliques of six joined in a ring by single links.
    graph = nx.connected_caveman_graph(3, 6)
    ids = tuple(f"c{node}" for node in graph)
    graph = nx.relabel_nodes(graph, {node: f"c{node}" for node in graph})
    for num_zones in (None, 3):
        zoning = zones_by_overlay(ids, overlay=graph, num_zones=num_zones)
        found = {frozenset(zoning.clients_in(z)) for z in range(zoning.num_zones)}
        planted = {frozenset(ids[6 * i : 6 * i + 6]) for i in range(3)}
        assert found == planted


@pytest.mark.parametrize("num_zones", [1, 2, 5, 18])
def test_overlay_gives_the_number_of_zones_asked_for(num_zones):
    graph = nx.relabel_nodes(nx.connected_caveman_graph(3, 6), str)
    zoning = zones_by_overlay(tuple(graph), overlay=graph, num_zones=num_zones)
    assert zoning.num_zones == num_zones


@pytest.mark.parametrize("heavy", [("ab", "cd"), ("bc", "da")])
def test_the_weights_of_an_overlays_links_count(heavy):
    """A square, two opposite sides of which are heavy: each is a zone."""
    overlay = nx.Graph()
    for link in ("ab", "bc", "cd", "da"):
        overlay.add_edge(*link, weight=9.0 if link in heavy else 1.0)
    zoning = zones_by_overlay(tuple("abcd"), overlay=overlay, num_zones=2)
    found = {frozenset(zoning.clients_in(zone)) for zone in range(2)}
    assert found == set(map(frozenset, heavy))


def test_overlay_without_links_leaves_everyone_alone():
    graph = nx.empty_graph(4)
    graph = nx.relabel_nodes(graph, str)
    assert zones_by_overlay(tuple(graph), overlay=graph).zone_sizes == (1, 1, 1, 1)


def test_overlay_in_pieces_cannot_make_fewer_zones():
    graph = nx.Graph([("a", "b"), ("c", "d")])
    with pytest.raises(ArgumentError, match="num_zones is 1; allowed: at least 2"):
        zones_by_overlay(("a", "b", "c", "d"), overlay=graph, num_zones=1)


@pytest.mark.parametrize("num_zones", [None, 2])
@pytest.mark.parametrize("weight", [0, -1, float("nan"), "1", None, 1e300])
def test_links_whose_weights_mean_nothing_are_refused(num_zones, weight):
    overlay = nx.Graph([("a", "b", {"weight": 1.0}), ("b", "c", {"weight": weight})])
    with pytest.raises(ArgumentError) as error:
        zones_by_overlay(tuple("abc"), overlay=overlay, num_zones=num_zones)
    assert error.value.name == "overlay['b']['c']['weight']"
    assert error.value.allowed == "a number in [1e-09, 1e+09]"


@pytest.mark.parametrize("num_zones", [None, 2])
@pytest.mark.parametrize(
    "overlay",
    [nx.path_graph(tuple("abc"), nx.DiGraph), {"a": "b", "b": "c", "c": "a"}, "abc", 3],
    ids=lambda overlay: type(overlay).__name__,
)
def test_what_is_no_undirected_graph_is_refused(num_zones, overlay):
    words = f"^overlay is {type(overlay).__name__}; allowed: an undirected"
    with pytest.raises(ArgumentError, match=words):
        zones_by_overlay(tuple("abc"), overlay=overlay, num_zones=num_zones)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: zones_by_key(("a", "b"), keys={"a": 1}), "keys is without 'b'"),
        (
            lambda: zones_by_key(("a",), keys={"a": 1, "x": 2}),
            "keys is given for 'x'; allowed: clients only",
        ),
        (
            lambda: zones_by_key(("a", "a"), keys={"a": 1}),
            "client_ids is a; allowed: each id once",
        ),
        (
            lambda: zones_by_capability(("a",), capability={}, num_zones=1),
            "capability is without 'a'",
        ),
        (
            lambda: zones_by_capability(
                ("a",), capability={"a": float("nan")}, num_zones=1
            ),
            r"capability\['a'\] is nan",
        ),
        (
            lambda: zones_by_capability(("a",), capability={"a": "9"}, num_zones=1),
            r"capability\['a'\] is '9'; allowed: a finite number",
        ),
        (
            lambda: zones_by_capability(("a",), capability={"a": 1.0}, num_zones=2),
            "num_zones is 2; allowed: 1..1",
        ),
        (
            lambda: zones_by_overlay(("a",), overlay=nx.Graph([("a", "b")])),
            "overlay is given for 'b'",
        ),
    ],
)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ArgumentError, match=message):
        build()


@pytest.mark.parametrize("number", [2.5, float("nan"), "2", None, True, 0, 4])
def test_a_number_of_zones_that_is_none_is_refused_by_all(number):
    ids, rng = ("a", "b", "c"), np.random.default_rng(0)
    overlay = nx.path_graph(ids)
    capability = dict.fromkeys(ids, 1.0)
    builds = [
        lambda: equal_zones(ids, number, rng=rng),
        lambda: zones_by_capability(ids, capability=capability, num_zones=number),
        lambda: zones_by_overlay(ids, overlay=overlay, num_zones=number),
    ]
    # An overlay's communities may be as many as they are.
    for build in builds[: 2 if number is None else 3]:
        with pytest.raises(ArgumentError, match=f"^num_zones is {number!r}; allowed: "):
            build()


def test_it_is_clients_that_are_missing_where_there_are_none():
    """No number of zones would do."""
    for build in (
        lambda: equal_zones((), 1, rng=np.random.default_rng(0)),
        lambda: zones_by_capability((), capability={}, num_zones=1),
        lambda: zones_by_overlay((), overlay=nx.Graph(), num_zones=1),
    ):
        with pytest.raises(ArgumentError, match=r"^client_ids is empty; allowed: at"):
            build()


def test_zones_of_given_sizes_are_dealt_at_random():
    ids = [f"c{i}" for i in range(10)]
    first = np.zeros(10)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        zoning = zones_of_sizes(ids, (1, 6, 3), rng=rng)
        assert zoning.zone_sizes == (1, 6, 3)
        first[zoning.zone_of.index(0)] += 1
    assert scipy.stats.chisquare(first).pvalue > 1e-4


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((4, 0, 6), r"zone_sizes\[1\] is 0"),
        ((4, 4), "zone_sizes is 4,4; allowed: .*10 .the clients"),
        ((4.5, 5.5), r"zone_sizes\[0\] is 4.5; allowed: a whole number"),
        ((4, "6"), r"zone_sizes\[1\] is '6'; allowed: a whole number"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    with pytest.raises(ArgumentError, match=message):
        zones_of_sizes(
            [f"c{i}" for i in range(10)], sizes, rng=np.random.default_rng(0)
        )


def test_levels_are_added_above_any_zones():
    ids = [f"c{i}" for i in range(12)]
    zones = zones_by_key(ids, keys={c: i % 5 for i, c in enumerate(ids)})
    tree = with_levels(zones, (3, 2), rng=np.random.default_rng(1))
    assert tree.level_sizes == (12, 5, 3, 2)
    assert tree.zone_of == zones.zone_of
    assert tree.zone_names == zones.zone_names
    fans = np.bincount(tree.parents[0])
    assert max(fans) - min(fans) <= 1
    assert with_levels(zones, (), rng=np.random.default_rng(1)) == zones
    for count in (0, 6):
        with pytest.raises(ArgumentError, match=rf"levels\[0\] is {count}; .*: 1..5"):
            with_levels(zones, (count,), rng=np.random.default_rng(1))
    with pytest.raises(ArgumentError, match=r"levels\[0\] is 2.5; allowed: a whole"):
        with_levels(zones, (2.5,), rng=np.random.default_rng(1))


def test_levels_are_added_above_other_levels():
    ids = [f"c{i}" for i in range(12)]
    zones = zones_by_key(ids, keys={c: i % 6 for i, c in enumerate(ids)})
    once = with_levels(zones, (4,), rng=np.random.default_rng(1))
    twice = with_levels(once, (2,), rng=np.random.default_rng(2))
    assert twice.level_sizes == (12, 6, 4, 2)
    assert twice.parents[0] == once.parents[0]
    with pytest.raises(ArgumentError, match=r"levels\[0\] is 5; allowed: 1..4"):
        with_levels(once, (5,), rng=np.random.default_rng(2))


def test_who_shares_a_zone_or_a_node_is_dealt_at_random():
    """Of 6 in 2 groups of 3, two given ones are together with probability 2/5."""
    together = np.zeros(2)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        zones = equal_zones(IDS, 2, rng=rng).zone_of
        alone = equal_zones(IDS, 6, rng=rng)
        (nodes,) = with_levels(alone, (2,), rng=rng).parents
        together += [zones[0] == zones[2], nodes[0] == nodes[2]]
    for count in together:
        assert scipy.stats.binomtest(int(count), 400, 0.4).pvalue > 1e-4


def test_clients_of_one_capability_keep_their_order():
    """Else what a zone is depends on how NumPy sorts."""
    ids = [f"c{i}" for i in range(1000)]
    capability = {c: float(i % 2) for i, c in enumerate(ids)}
    zoning = zones_by_capability(ids, capability=capability, num_zones=4)
    expected = [ids[:500:2], ids[500::2], ids[1:500:2], ids[501::2]]
    assert [list(zoning.clients_in(zone)) for zone in range(4)] == expected


SEQUENCES, GENERATOR = (None, 6, "abcdef"), np.random.default_rng(0)
BUILDERS = {
    one_zone: {"client_ids": SEQUENCES},
    equal_zones: {"client_ids": SEQUENCES, "rng": (None, 0)},
    zones_of_sizes: {
        **{"client_ids": SEQUENCES, "zone_sizes": SEQUENCES, "rng": (None, 0)}
    },
    zones_by_key: {"client_ids": SEQUENCES, "keys": (None, [1], "abcdef")},
    zones_by_capability: {"client_ids": SEQUENCES, "capability": (None, [1], 2.0)},
    zones_by_overlay: {"client_ids": SEQUENCES},
    with_levels: {"zoning": (None, IDS), "levels": SEQUENCES, "rng": (None, 0)},
    dominant_labels: {"labels": (None, [[1]], "x")},
}


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: builder.__name__)
def test_arguments_of_other_kinds_are_refused_by_name(builder):
    """Such as how many clients there are for their ids, or a seed for a generator."""
    overlay = nx.Graph()
    overlay.add_nodes_from(IDS)
    given = {
        **{"client_ids": IDS, "num_zones": 2, "zone_sizes": (2, 4), "levels": (1,)},
        **{"keys": dict.fromkeys(IDS, 1), "capability": dict.fromkeys(IDS, 1.0)},
        **{"overlay": overlay, "zoning": one_zone(IDS), "rng": GENERATOR},
        "labels": {"a": [1]},
    }
    sound = {name: given[name] for name in inspect.signature(builder).parameters}
    if builder is zones_by_overlay:
        sound["num_zones"] = None
    builder(**sound)
    for name, values in BUILDERS[builder].items():
        for value in values:
            with pytest.raises(ArgumentError, match=rf"^{name} is "):
                builder(**sound | {name: value})


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pd.NA])
def test_a_key_that_is_missing_makes_no_zone(missing):
    keys = dict.fromkeys(IDS, "north") | {IDS[1]: missing}
    with pytest.raises(ArgumentError, match=r"^keys\['.*'\] is (None|nan|<NA>); allow"):
        zones_by_key(IDS, keys=keys)
