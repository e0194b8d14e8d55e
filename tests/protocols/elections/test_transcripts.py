"""A transcript verifies as it was written, by the keys one knows, or not at all."""

import base64
import dataclasses
import random

import pytest

from tests.protocols.elections.zones import (
    BOARD,
    POOL,
    call_of,
    certified,
    electors_of,
    hold,
    registry_of,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.protocols import wire
from tff_hdp.protocols.elections.ballots import Ballot, Confirmation, sign
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Identity,
)
from tff_hdp.protocols.elections.transcripts import PHASES, Transcript

replace = dataclasses.replace
COUNTS = pytest.mark.parametrize(
    "count", [400, pytest.param(2000, marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def held():
    """A registry and transcripts of it: one that ended, and a refused one each."""
    registry = registry_of(4)
    _, done = hold(registry)
    found = [done]
    for phase in ("deal", "confirm", "reveal"):
        stops = dict.fromkeys(("c1", "c2", "c3"), phase)
        with pytest.raises(BeyondThresholdError) as refused:
            hold(registry, stops=stops, round_number=1)
        found += refused.value.transcripts
    electors = {c: e for c, e in electors_of(registry).items() if c in ("c0", "c1")}
    with pytest.raises(BeyondThresholdError) as refused:
        hold(registry, electors=electors)
    found += refused.value.transcripts
    assert {transcript.phase for transcript in found} == set(PHASES)
    return registry, found


def changed_field(rng, value, others):
    """Another value of the same type, mostly one that stands elsewhere."""
    if isinstance(value, int):
        return rng.choice([value + 1, 0, 2**64 - 1])
    if isinstance(value, str):
        return rng.choice(["c0", "c3", "c9", "", *PHASES])
    if isinstance(value, bytes):
        if value and rng.random() < 0.5:
            at, bit = rng.randrange(len(value)), 1 << rng.randrange(8)
            return value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :]
        return rng.choice([*others, b"", bytes(32)])
    items = list(value)
    action = rng.choice(["swap", "repeat", "drop", "change", "reverse"])
    if not items:
        return tuple(items)
    at, to = rng.randrange(len(items)), rng.randrange(len(items))
    if action == "swap":
        items[at], items[to] = items[to], items[at]
    elif action == "repeat":
        items.insert(to, items[at])
    elif action == "drop":
        del items[at]
    elif action == "reverse":
        items.reverse()
    else:
        items[at] = mutated(rng, items[at], others)
    return tuple(items)


def mutated(rng, message, others):
    if not dataclasses.is_dataclass(message):
        return changed_field(rng, message, others)
    name = rng.choice([field.name for field in dataclasses.fields(message)])
    value = getattr(message, name)
    if dataclasses.is_dataclass(value):
        return replace(message, **{name: mutated(rng, value, others)})
    return replace(message, **{name: changed_field(rng, value, others)})


def bytes_in(message):
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(item):
                yield from bytes_in(item)
            elif isinstance(item, bytes):
                yield item


@COUNTS
def test_no_mutation_verifies(held, count):
    registry, found = held
    rng = random.Random(7)
    others = sorted({item for t in found for item in bytes_in(t)})
    tried = 0
    while tried < count:
        transcript = rng.choice(found)
        changed = transcript
        for _ in range(rng.choice([1, 1, 1, 2])):
            changed = mutated(rng, changed, others)
        if changed == transcript:
            continue
        tried += 1
        with pytest.raises(ElectionError):
            Transcript.from_text(changed.to_text()).verify(registry)


@COUNTS
def test_no_mutation_of_the_text_verifies(held, count):
    registry, found = held
    rng = random.Random(8)
    tried = 0
    while tried < count:
        data = bytearray(wire.encode(rng.choice(found)))
        before = bytes(data)
        at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        action = rng.choice(["flip", "cut", "insert", "double", "swap"])
        if action == "flip" and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif action == "cut":
            del data[at : min(to, at + 5)]
        elif action == "insert":
            data[at:at] = rng.randbytes(rng.randrange(1, 4))
        elif action == "double":
            data[to:to] = data[at:to]
        else:
            data[at:to] = data[at:to][::-1]
        if data == before:
            continue
        tried += 1
        with pytest.raises(ElectionError):
            Transcript.from_text(base64.b64encode(data).decode()).verify(registry)


def test_a_transcript_is_spelt_in_one_way(held):
    _, (done, *_) = held
    text = done.to_text()
    data = base64.b64decode(text)
    while len(data) % 3 != 1:
        data += b"x"
    padded = base64.b64encode(data).decode()
    # The last digit before "==" has four bits that base64 ignores.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = padded[:-3] + alphabet[alphabet.index(padded[-3]) ^ 1] + "=="
    assert base64.b64decode(other) == data
    for spelling in (text + "\n", " " + text, text[:-4], "", "AAAA", other):
        with pytest.raises(ElectionError, match="no transcript"):
            Transcript.from_text(spelling)
    for nothing in (None, 3, [text]):
        with pytest.raises(ElectionError, match="no transcript"):
            Transcript.from_text(nothing)


def test_an_election_of_invented_voters_fails_by_the_registered_keys():
    registry = registry_of(4)
    invented = {c: Identity(c) for c in registry.eligible}
    voters = tuple(identity.public for identity in invented.values())
    forged = replace(registry, voters=voters)
    electors = {c: Elector(identity, forged) for c, identity in invented.items()}
    winner, transcript = hold(forged, electors=electors)
    assert transcript.verify(forged) == winner
    with pytest.raises(ElectionError, match="is called by another registry"):
        transcript.verify(registry)
    claimed = replace(transcript, call=call_of(registry))
    with pytest.raises(ElectionError, match="presence of 'c0' is of another election"):
        claimed.verify(registry)


@pytest.mark.parametrize(
    "changes",
    [
        {"eligible": ("c3",)},
        {"fault_model": "crash"},
        {"zone": 1},
        {"call_size": 3},
        {"voters": tuple(POOL[f"c{i}"].public for i in (1, 0, 2, 3))},
        {"voters": tuple(POOL[f"c{i}"].public for i in range(5))},
    ],
)
def test_nothing_of_the_registry_is_up_to_the_relay(held, changes):
    """Who may win, how many may fail and who is called decide who wins."""
    registry, (done, *_) = held
    with pytest.raises(ElectionError, match="is called by another registry"):
        done.verify(replace(registry, **changes))


def test_a_client_left_out_beyond_the_allowed_share_is_missed(held):
    registry, (done, *_) = held
    few = replace(done, presences=done.presences[:2])
    with pytest.raises(BeyondThresholdError, match="2 of 4 called are absent"):
        few.sealed(BOARD).verify(registry)
    # A refused election cannot pretend that too few came, confirmed or revealed.
    for phase, said in [("deal", {"confirmations": (), "reveals": ()}), ("reveal", {})]:
        with pytest.raises(ElectionError, match=r"transcript .* wrong signature"):
            replace(done, phase=phase, **said).verify(registry)


def test_superfluous_words_are_refused():
    registry = registry_of(4)
    relay, electors, certificate = certified(registry)
    for elector in electors.values():
        relay.receive(elector.reveal(certificate))
    done = relay.finish()
    elected = done.verify(registry)
    last = POOL["c3"]
    ballot = Ballot(certificate.election, done.dealings)
    fourth = sign(Confirmation(certificate.election, "c3", ballot.digest), last)
    confirmations = done.confirmations
    assert [word.sender for word in confirmations] == ["c0", "c1", "c2"]
    for words, message in [
        ((*confirmations, fourth), "4 confirmations; allowed are 3"),
        ((*confirmations, confirmations[0]), "repeated or misplaced"),
        ((fourth, *confirmations[:2]), "repeated or misplaced"),
        (confirmations[:2], "2 of 4 voters confirmed"),
    ]:
        with pytest.raises(ElectionError, match=message):
            replace(done, confirmations=words).sealed(BOARD).verify(registry)
    # Another quorum's words are as good, and the winner is the same.
    other = replace(done, confirmations=(*confirmations[:2], fourth))
    assert other.sealed(BOARD).verify(registry) == elected
    with pytest.raises(ElectionError, match=r"transcript .* wrong signature"):
        other.verify(registry)


def test_a_registry_of_no_keys_is_none(held):
    voters = tuple(replace(v, verify_key=v.verify_key[:31]) for v in held[0].voters)
    with pytest.raises(ArgumentError, match=r"verify_key of 'c0' is .* allowed: a key"):
        replace(held[0], voters=voters)
