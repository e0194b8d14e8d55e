"""Changed messages: the right sum or a typed refusal, whatever was changed."""

import dataclasses
import random

import numpy as np
import pytest

from tests.protocols.secagg.parties import shared
from tff_hdp.protocols import wire
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg import errors, messages
from tff_hdp.protocols.secagg.client import PHASES, Client
from tff_hdp.protocols.secagg.errors import (
    BadSignatureError,
    SecureAggregationError,
)
from tff_hdp.protocols.secagg.fixed_point import ring_dtype
from tff_hdp.protocols.secagg.messages import Round
from tff_hdp.protocols.secagg.rounds import SUPER_NODE, run_round
from tff_hdp.protocols.secagg.server import Server

KINDS = (
    messages.Keys,
    messages.PeerKeys,
    messages.Shares,
    messages.SharesForClient,
    messages.MaskedUpdate,
    messages.Survivors,
    messages.Agreement,
    messages.Agreements,
    messages.Unmasking,
)


def mutated(rng, value, others):
    """Something else of the same type, mostly what stands elsewhere."""
    if dataclasses.is_dataclass(value):
        name = rng.choice([field.name for field in dataclasses.fields(value)])
        changed = mutated(rng, getattr(value, name), others)
        return dataclasses.replace(value, **{name: changed})
    if isinstance(value, int):
        return rng.choice([0, value + 1, 2**64 - 1])
    if isinstance(value, str):
        return rng.choice(["a", "b", "d", "x", "", SUPER_NODE])
    if isinstance(value, bytes):
        if value and rng.random() < 0.6:
            at = rng.randrange(len(value))
            flipped = bytes([value[at] ^ 1 << rng.randrange(8)])
            return value[:at] + flipped + value[at + 1 :]
        others = [*others, b"", bytes(32), bytes(33), value[:-1], value + b"x"]
        return rng.choice(others)
    if isinstance(value, np.ndarray):
        kind = rng.choice(["add", "cut", "grow", "type", "type8"])
        if kind == "add":
            value = value.copy()
            value[rng.randrange(len(value))] += 1
            return value
        if kind == "cut":
            return value[: rng.randrange(len(value))]
        if kind == "grow":
            return np.concatenate([value, value[:1]])
        return value.view("<u1") if kind == "type" else np.resize(value, 8).view("<u8")
    if isinstance(value, dict):
        value = dict(value)
        keys = list(value)
        action = rng.choice(["drop", "swap", "change", "rename"])
        if not keys:
            return value
        key, other = rng.choice(keys), rng.choice(keys)
        if action == "drop":
            del value[key]
        elif action == "swap":
            value[key], value[other] = value[other], value[key]
        elif action == "rename":
            value[rng.choice(["a", "b", "c", "d", "x"])] = value.pop(key)
        else:
            value[key] = mutated(rng, value[key], others)
        return value
    items = list(value)
    action = rng.choice(["drop", "repeat", "add", "swap"])
    if items and action == "drop":
        del items[rng.randrange(len(items))]
    elif items and action == "repeat":
        items.append(rng.choice(items))
    elif action == "add":
        items.append(rng.choice(["a", "b", "d", "x"]))
    else:
        rng.shuffle(items)
    return tuple(items)


class Tamperer(Meter):
    """Changes one message of a kind on its way."""

    def __init__(self, rng, kind, raw):
        super().__init__(SUPER_NODE)
        self.rng, self.kind, self.raw = rng, kind, raw
        self.wait = rng.randrange(4)
        self.others = []
        self.changed = False

    def deliver(self, sender, receiver, message):
        data = wire.encode(message)
        if isinstance(message, self.kind) and not self.changed:
            self.wait -= 1
            if self.wait < 0:
                changed = bytearray(data)
                if self.raw:
                    at = self.rng.randrange(len(changed))
                    if self.rng.random() < 0.5:
                        changed[at] ^= 1 << self.rng.randrange(8)
                    else:
                        changed[at : at + self.rng.randrange(3)] = self.rng.randbytes(2)
                else:
                    message = mutated(self.rng, message, self.others)
                    changed = wire.encode(message)
                self.changed = bytes(changed) != data
                data = bytes(changed)
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if isinstance(value, dict):
                self.others += [v for v in value.values() if isinstance(v, bytes)]
            elif isinstance(value, bytes):
                self.others.append(value)
        return wire.decode(type(message), data)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("count", [90, pytest.param(4000, marks=pytest.mark.slow)])
def test_the_right_sum_or_a_typed_refusal(signed, count):
    rng = random.Random(3)
    names = ("a", "b", "c", "d")
    tried = wrong = right = 0
    refused = set()
    kinds = [k for k in KINDS if signed or "Agreement" not in k.__name__]
    while tried < count:
        bits = rng.choice([8, 20, 24, 32])
        size = rng.choice([3, 4, 6])
        inputs = {
            n: np.full(size, 3 * i + 1, ring_dtype(bits)) for i, n in enumerate(names)
        }
        kind = kinds[tried % len(kinds)]
        meter = Tamperer(rng, kind, raw=rng.random() < 0.4)
        drops = {"d": rng.choice(PHASES)} if rng.random() < 0.4 else {}
        if drops.get("d") == "agree" and not signed:
            continue
        try:
            total, survivors = run_round(
                inputs,
                Round(5, size, bits, 3),
                drops=drops,
                signed=signed,
                meter=meter,
            )
        except SecureAggregationError as error:
            refused.add(type(error))
            tried += meter.changed
            continue
        if not meter.changed:
            continue
        tried += 1
        expected = sum(inputs[n].astype(np.int64) for n in survivors) % 2**bits
        if np.array_equal(total, expected):
            right += 1
        else:
            wrong += 1
    if signed:
        # Nothing passes that was changed.
        assert wrong == right == 0
        assert BadSignatureError in refused
    else:
        # Without signatures the channel can change keys and masked updates.
        assert wrong > 0
    assert errors.MalformedMessageError in refused


@pytest.mark.parametrize(
    ("bits", "size", "values"),
    [
        (20, 4, np.zeros(3, "<u4")),
        (24, 4, np.zeros(3, "<u4")),
        (32, 3, np.zeros(12, "u1")),
        (32, 3, np.zeros(3, "<u8")),
        (16, 3, np.zeros(4, "<u2")),
        (8, 3, np.zeros(2, "u1")),
    ],
)
def test_vectors_of_another_length_or_type_are_refused_by_name(bits, size, values):
    terms = Round(0, size, bits, 2)
    server = Server(terms, "ab")
    clients = {c: Client(c, terms) for c in "ab"}
    shared(server, clients)
    with pytest.raises(errors.BadInputError, match="update of 'a' is"):
        server.receive(messages.MaskedUpdate(0, "a", values))
