import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.topology import Zoning, equal_zones, one_zone, with_levels

IDS = tuple(f"c{i}" for i in range(8))


def test_levels_of_a_hand_built_tree():
    # 8 clients -> 4 zones -> 2 regions -> server.
    zoning = Zoning(IDS, (0, 0, 1, 1, 2, 2, 2, 3), ((0, 0, 1, 1),))
    assert zoning.num_levels == 2
    assert zoning.level_sizes == (8, 4, 2)
    assert zoning.zone_sizes == (2, 2, 3, 1)
    assert zoning.clients_in(2) == ("c4", "c5", "c6")
    assert [m.tolist() for m in zoning.members] == [[0, 1], [2, 3], [4, 5, 6], [7]]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"client_ids": ("a", "a"), "zone_of": (0, 1)},
            "client_ids is a; .*once",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 2)},
            "zone_of is without 1; ",
        ),
        (
            {"client_ids": ("a",), "zone_of": (-1,)},
            "zone_of is -1; .*from 0",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": ("0", "1")},
            "zone_of is of <U1; .*whole",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1.5)},
            "zone_of is of float64; .*whole",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": ([0], [0, 1])},
            r"zone_of is \[0\],\[0, 1\]; allowed: a sequence of whole",
        ),
        ({"client_ids": ("a",), "zone_of": None}, "zone_of is None; allowed: a seq"),
        (
            {"client_ids": ("a",), "zone_of": (0, 0)},
            "zone_of is of 2 entries; ",
        ),
        ({"client_ids": (), "zone_of": ()}, "client_ids is empty"),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "parents": ((0,),)},
            r"parents\[0\] is of 1 entries; allowed: one for each of 2 nodes",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "parents": ((0, 2),)},
            r"parents\[0\] is without 1; allowed: every index of 0..2",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "parents": ((0, -1),)},
            r"parents\[0\] is -1; allowed: indices from 0 on",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": ([0], [1])},
            "zone_of is of int64; allowed: whole numbers",
        ),
        (
            {"client_ids": "ab", "zone_of": (0, 1)},
            "client_ids is ab; allowed: a sequence",
        ),
        (
            {"client_ids": (["a"], "b"), "zone_of": (0, 1)},
            "client_ids is a; allowed: hashable ids",
        ),
        (
            {"client_ids": {"a", "b"}, "zone_of": (0, 1)},
            "client_ids is .*; allowed: a sequence",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": {0, 1}},
            r"zone_of is \{0, 1\}; allowed: a sequence of whole",
        ),
        (
            {"client_ids": (float("nan"), "b"), "zone_of": (0, 1)},
            "client_ids is nan; allowed: each id once",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "zone_names": ("x",)},
            "zone_names is x; allowed: one for each of 2 zones",
        ),
        (
            {"client_ids": ("a", "b"), "zone_of": (0, 1), "zone_names": ("x", "x")},
            "zone_names is x,x; allowed: each name once",
        ),
    ],
)
def test_bad_zonings_are_refused(kwargs, message):
    with pytest.raises(ArgumentError, match=message):
        Zoning(**kwargs)


def test_one_zone_holds_everybody():
    assert one_zone(IDS) == Zoning(IDS, (0,) * 8)


@pytest.mark.parametrize("zone", [None, "x", 0.5, -1, 1, (0,)])
def test_unknown_zone_is_refused(zone):
    with pytest.raises(ArgumentError, match=r"^zone is .*; allowed: 0\.\.0"):
        Zoning(("a",), (0,)).clients_in(zone)


def test_members_rise_however_many_they_are():
    zone_of = np.random.default_rng(0).integers(0, 3, 5000)
    zoning = Zoning(range(5000), zone_of)
    for zone, members in enumerate(zoning.members):
        np.testing.assert_array_equal(members, np.flatnonzero(zone_of == zone))
        assert zoning.clients_in(zone) == tuple(members)


@given(n=st.integers(1, 60), data=st.data())
def test_trees_cover_every_level_evenly(n, data):
    counts = [data.draw(st.integers(1, n))]
    for _ in range(data.draw(st.integers(0, 3))):
        counts.append(data.draw(st.integers(1, counts[-1])))
    ids = [f"c{i}" for i in range(n)]
    rng = np.random.default_rng(n)
    zoning = with_levels(equal_zones(ids, counts[0], rng=rng), counts[1:], rng=rng)
    assert zoning.client_ids == tuple(ids) and zoning.level_sizes == (n, *counts)
    for below, links in zip(
        zoning.level_sizes, (zoning.zone_of, *zoning.parents), strict=False
    ):
        fans = np.bincount(links)
        assert sum(fans) == below
        assert max(fans) - min(fans) <= 1


def test_a_far_index_is_refused_without_counting_to_it():
    with pytest.raises(ArgumentError, match="zone_of is without 1"):
        Zoning(("a", "b"), (0, 10**15))
