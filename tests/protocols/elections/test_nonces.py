"""A nonce that serves two messages gives away the key; ours never does."""

import hashlib
import itertools

import pytest

from tests.protocols.elections.zones import POOL, call_of, hold, registry_of
from tff_hdp.protocols.elections import group, pvss
from tff_hdp.protocols.elections.election import Elector


class BySession(Elector):
    """Derives its scalars from its secret, the election's name and its own name."""

    def _scalars(self, *message):
        del message
        name = self._setup_name
        key = self.identity.nonce_secret + name.encode() + self._me.encode()
        if name not in self.sources:
            count = itertools.count()
            self.sources[name] = lambda: int.from_bytes(
                hashlib.sha512(key + bytes([next(count)])).digest(), "little"
            )
        return self.sources[name]

    @property
    def _setup_name(self):
        return self._call.name(self.registry.zone)

    def attend(self, call, round_number):
        self.sources = {}
        return super().attend(call, round_number)


def extracted(first, second):
    """c0's key from its reveals in two transcripts, were their nonce the same."""
    z, c = [], []
    for transcript in (first, second):
        reveal = next(r for r in transcript.reveals if r.sender == "c0")
        z.append(int.from_bytes(reveal.response, "little"))
        c.append(int.from_bytes(reveal.challenge, "little"))
    return (z[0] - z[1]) * pow(c[0] - c[1], -1, group.ORDER) % group.ORDER


@pytest.mark.parametrize("fresh", [b"", None])
@pytest.mark.parametrize("kind", [BySession, Elector])
def test_the_same_election_with_others_silent_keeps_the_key(kind, fresh):
    registry = registry_of(4)
    held = []
    for silent in ("c1", "c3"):
        electors = {c: kind(POOL[c], registry, fresh=fresh) for c in registry.eligible}
        _, transcript = hold(registry, electors=electors, stops={silent: "deal"})
        held.append(transcript)
    assert held[0].call == held[1].call == call_of(registry)
    found = extracted(*held)
    assert (found == POOL["c0"].share_secret) == (kind is BySession)


def test_every_part_of_what_a_nonce_is_for_changes_it():
    def first(secret=b"s", message=(b"a", b"b"), fresh=b""):
        return pvss.hedged_scalars(secret, *message, fresh=fresh)()

    assert first() == first()
    others = {
        first(secret=b"t"),
        first(message=(b"a", b"c")),
        first(message=(b"ab", b"")),
        first(message=(b"b",)),
        first(fresh=b"x"),
    }
    assert len(others | {first()}) == 6
    source = pvss.hedged_scalars(b"s", fresh=b"")
    drawn = {source() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 <= scalar < group.ORDER for scalar in drawn)
