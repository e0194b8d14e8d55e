"""A zone's clients and keys: which of them no election can be held with."""

import dataclasses
import math

import pytest

from tests.protocols.elections.zones import POOL, certified, registry_of
from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.elections.ballots import check_signature
from tff_hdp.protocols.elections.electorate import (
    ElectionError,
    Registry,
    eligible_clients,
)
from tff_hdp.protocols.elections.ristretto import is_signing_key

# The points of edwards25519 of order 1, 2, 4, 4 and 8, as RFC 8032 writes them; and
# the first with a y that is not below the prime.
SMALL = [
    "01" + 31 * "00",
    "ec" + 30 * "ff" + "7f",
    32 * "00",
    31 * "00" + "80",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "ee" + 30 * "ff" + "7f",
]


def with_key(**key):
    registry = registry_of(2)
    first = dataclasses.replace(POOL["c0"].public, **key)
    return dataclasses.replace(registry, voters=(first, registry.voters[1]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: registry_of(4, "lazy"), "fault_model is lazy; allowed: crash, byzan"),
        (lambda: registry_of(0), "voters is 0"),
        (lambda: registry_of(2, call_size=3), r"call_size is 3; allowed: 1\.\.2"),
        (lambda: registry_of(2, eligible=("c9",)), "eligible is c9"),
        (
            lambda: Registry(
                0, (POOL["c0"].public,) * 2, ("c0",), "crash", "rotate", 1, b"", b""
            ),
            "voters is with 'c0' twice",
        ),
        # Every dealing would fail at such a key.
        (lambda: with_key(share_key=bytes(32)), "share_key of 'c0' is the identity"),
        (
            lambda: with_key(share_key=b"\xff" * 32),
            "share_key of 'c0' is .* allowed: a key",
        ),
        (
            lambda: with_key(share_key=POOL["c1"].public.share_key),
            "share_keys is with .* twice",
        ),
        # Whose signature would hold for what nobody has signed.
        (
            lambda: with_key(verify_key=bytes.fromhex(SMALL[0])),
            "verify_key of 'c0' is .* allowed: a key of Ed25519",
        ),
        (
            lambda: dataclasses.replace(registry_of(2), relay_key=bytes(32)),
            "relay_key is .* allowed: a key of Ed25519",
        ),
        (lambda: registry_of(2, call_size=1.5), r"call_size is 1\.5"),
        (lambda: registry_of(2, zone=-1), "zone is -1"),
        (lambda: registry_of(2, zone=math.nan), "zone is nan"),
        (
            lambda: dataclasses.replace(registry_of(2), run="as long as a run"),
            "run is as long as a run; allowed: 16 bytes",
        ),
        (
            lambda: dataclasses.replace(registry_of(2), run=b"short"),
            "run is .*; allowed: 16 bytes",
        ),
        (
            lambda: registry_of(2, policy="often"),
            "policy is often; allowed: persistent, rotate",
        ),
        (
            lambda: eligible_clients(
                ["c0", "c1"], capability={"c0": 1.0}, min_capability=1.0
            ),
            "capability is without 'c1'",
        ),
    ],
)
def test_impossible_zones_are_refused(build, message):
    with pytest.raises(ArgumentError, match=message):
        build()


@pytest.mark.parametrize("key", [*map(bytes.fromhex, SMALL), b"k", bytes(3), "c0", 1])
def test_what_nobody_can_sign_by_is_no_key(key):
    with pytest.raises(ArgumentError, match=r"^relay_key is .*; allowed: a key of Ed2"):
        dataclasses.replace(registry_of(2), relay_key=key)


def test_of_the_numbers_below_the_prime_half_are_keys():
    """A y has a point where (y^2 - 1) / (d y^2 + 1) is a square: of as many it is."""
    keys = [number.to_bytes(32, "little") for number in range(2, 402)]
    assert 160 < sum(map(is_signing_key, keys)) < 240
    assert all(is_signing_key(one.public.verify_key) for one in POOL.values())


def test_a_signature_that_nobody_made_holds_under_a_key_of_small_order():
    """Why such keys are refused: the library that verifies takes them."""
    forged = bytes.fromhex(SMALL[0]) + bytes(32)
    for data in (b"one", b"another"):
        check_signature("word", bytes.fromhex(SMALL[0]), forged, data)


def test_what_the_relay_says_of_another_election_is_refused():
    registry = registry_of(4)
    relay, electors, certificate = certified(registry)
    other = dataclasses.replace(certificate, election=b"another")
    for elector in electors.values():
        with pytest.raises(ElectionError, match="certificate is of another election"):
            elector.reveal(other)
        relay.receive(elector.reveal(certificate))
    outcome = relay.outcome(relay.finish())
    other = dataclasses.replace(outcome, election=b"")
    for elector in electors.values():
        with pytest.raises(ElectionError, match="outcome is of another election than"):
            elector.conclude(other)
        elector.conclude(outcome)
