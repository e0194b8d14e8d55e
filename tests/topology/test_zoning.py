import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_hdp.topology import Zoning, equal_zones, tree_zones

IDS = tuple(f"c{i}" for i in range(8))


def test_levels_of_a_hand_built_tree():
    # 8 clients -> 4 zones -> 2 regions -> server.
    zoning = Zoning(IDS, (0, 0, 1, 1, 2, 2, 2, 3), ((0, 0, 1, 1),))
    assert zoning.num_levels == 2
    assert zoning.level_sizes == (8, 4, 2)
    assert zoning.fan_ins(1) == zoning.zone_sizes == (2, 2, 3, 1)
    assert zoning.fan_ins(2) == (2, 2)
    assert zoning.fan_ins(3) == (2,)
    assert zoning.ancestors(1) == zoning.zone_of
    assert zoning.ancestors(2) == (0, 0, 0, 0, 1, 1, 1, 1)
    assert zoning.clients_in(2) == ("c4", "c5", "c6")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"client_ids": ("a", "a"), "zone_of": (0, 1)}, "client_ids holds 'a' twice"),
        ({"client_ids": ("a", "b"), "zone_of": (0, 2)}, "leaves group 1 of 3 empty"),
        ({"client_ids": ("a",), "zone_of": (-1,)}, "zone_of holds -1"),
        ({"client_ids": ("a",), "zone_of": (0, 0)}, "2 entries for 1 client_ids"),
        ({"client_ids": (), "zone_of": ()}, "client_ids is empty"),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "parents": ((0,),)},
            r"parents\[0\] has 1 entries for 2 nodes",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "zone_names": ("x",)},
            "zone_names has 1 entries for 2 zones",
        ),
    ],
)
def test_bad_zonings_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Zoning(**kwargs)


@pytest.mark.parametrize("level", [0, 4])
def test_unknown_level_is_refused(level):
    zoning = Zoning(("a", "b"), (0, 1), ((0, 0),))
    with pytest.raises(ValueError, match=f"level is {level}; allowed is 1..3"):
        zoning.fan_ins(level)


def test_unknown_zone_is_refused():
    with pytest.raises(ValueError, match="zone is 1; there are 1 zones"):
        Zoning(("a",), (0,)).clients_in(1)


@given(n=st.integers(1, 60), data=st.data())
def test_equal_zones_partition_evenly(n, data):
    s = data.draw(st.integers(1, n))
    ids = [f"c{i}" for i in range(n)]
    zoning = equal_zones(ids, s, rng=np.random.default_rng(n))
    assert sorted(c for z in range(s) for c in zoning.clients_in(z)) == sorted(ids)
    assert max(zoning.zone_sizes) - min(zoning.zone_sizes) <= 1


@given(n=st.integers(1, 60), data=st.data())
def test_trees_cover_every_level_evenly(n, data):
    counts = [data.draw(st.integers(1, n))]
    for _ in range(data.draw(st.integers(0, 3))):
        counts.append(data.draw(st.integers(1, counts[-1])))
    ids = [f"c{i}" for i in range(n)]
    zoning = tree_zones(ids, nodes_per_level=counts, rng=np.random.default_rng(n))
    assert zoning.level_sizes == (n, *counts)
    for level in range(1, zoning.num_levels + 2):
        fans = zoning.fan_ins(level)
        assert sum(fans) == zoning.level_sizes[level - 1]
        assert max(fans) - min(fans) <= 1
    # A child's ancestor is its parent's: paths agree whichever way they are walked.
    for client, zone in enumerate(zoning.zone_of):
        node = zone
        for level, parent in enumerate(zoning.parents, start=2):
            node = parent[node]
            assert zoning.ancestors(level)[client] == node


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((), "nodes_per_level is empty"),
        ((9,), "num_zones is 9; allowed is 1..8"),
        ((4, 5), r"nodes_per_level\[1\] is 5; allowed is 1..4"),
        ((4, 0), r"nodes_per_level\[1\] is 0"),
    ],
)
def test_bad_trees_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        tree_zones(IDS, nodes_per_level=counts, rng=np.random.default_rng(0))
