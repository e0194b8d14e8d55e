"""One client that sends what nobody should stops no round and bends no result."""

import collections

import pytest

from scripts.parts import torture_clients, torture_systems
from tff_hdp import runtime

QUICK = ("hdp span", "hdp protocol", "hfl_dp", "gfl", "fl_top", "udp_hypernet")


@pytest.mark.parametrize(
    ("name", "count"),
    [(name, 8) for name in QUICK]
    + [
        pytest.param(name, 300, marks=pytest.mark.slow)
        for name in torture_systems.systems()
    ],
)
def test_a_hostile_client_is_rejected_and_the_others_go_on(name, count):
    runtime.set_context("in_process")
    system = torture_systems.systems()[name]()
    found = collections.Counter(torture_clients.torture(system, count, seed=1))
    assert not [why for answer, why in found if answer == "crashed"]
    # Labels out of range at the least, and a zone that is none, were rejected.
    assert found["refused", "labels"] and found["refused", "zone"]
    if "tokens" in system.kinds:
        assert found["refused", "tokens"] and not found["accepted", "tokens"]
