"""Changed messages: the right sum or a typed refusal, whatever was changed."""

import dataclasses
import random

import numpy as np
import pytest

from tff_hdp.protocols import wire
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg import errors, messages
from tff_hdp.protocols.secagg.client import PHASES, Client
from tff_hdp.protocols.secagg.errors import (
    BadSignatureError,
    BelowThresholdError,
    SecureAggregationError,
)
from tff_hdp.protocols.secagg.fixed_point import ring_dtype
from tff_hdp.protocols.secagg.messages import Round, survivors_digest
from tff_hdp.protocols.secagg.rounds import SUPER_NODE, run_round
from tff_hdp.protocols.secagg.server import Server
from tff_hdp.protocols.secagg.signing import make_signers

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
    for client in clients.values():
        server.receive(client.advertise())
    for name, message in server.end_advertise().items():
        server.receive(clients[name].share(message))
    server.end_share()
    with pytest.raises(errors.BadInputError, match="update of 'a' is"):
        server.receive(messages.MaskedUpdate(0, "a", values))


TERMS = Round(0, 2, 32, 4)


def signed_parties(names="abcdefg", terms=TERMS, signers=None):
    signers = make_signers(names) if signers is None else signers
    server = Server(terms, names, signer=signers[SUPER_NODE])
    clients = {n: Client(n, terms, signer=signers[n]) for n in names}
    return server, clients, signers


def masked(server, clients):
    for client in clients.values():
        server.receive(client.advertise())
    for name, message in server.end_advertise().items():
        server.receive(clients[name].share(message))
    for name, message in server.end_share().items():
        server.receive(clients[name].mask(message, np.zeros(2, np.uint32)))
    return server.end_mask()


def test_a_super_node_cannot_tell_clients_different_survivors():
    """To half of them a survived, to the others not: both its secrets would show."""
    server, clients, signers = signed_parties()
    told = masked(server, clients)
    hub = signers[SUPER_NODE]
    everybody = told["b"].summed
    lied = {}
    for name in "bcdefg":
        summed = everybody if name in "bcd" else everybody[1:]
        dropped = () if name in "bcd" else ("a",)
        lie = messages.Survivors(0, name, summed, dropped, summed)
        lied[name] = hub.sign(lie, TERMS.digest)
    words = {name: clients[name].agree(message) for name, message in lied.items()}
    quorum = hub.quorum
    assert quorum == (7 + 2) // 2 + 1 == 5
    for name in "bcdefg":
        same = [n for n in "bcdefg" if words[n].survivors == words[name].survivors]
        signatures = {n: words[n].signature for n in same}
        few = hub.sign(messages.Agreements(0, name, signatures), TERMS.digest)
        with pytest.raises(BelowThresholdError, match=r"3 clients agreed .* 5 must"):
            clients[name].unmask(few)
        mixed = {n: words[n].signature for n in words}
        with pytest.raises(BadSignatureError, match="Agreement of"):
            lie = messages.Agreements(0, name, mixed)
            clients[name].unmask(hub.sign(lie, TERMS.digest))
        again = dict.fromkeys(["x", *"abcdefg"], signatures[name])
        with pytest.raises(BadSignatureError, match="Agreement of"):
            lie = messages.Agreements(0, name, again)
            clients[name].unmask(hub.sign(lie, TERMS.digest))


def test_without_signatures_it_can():
    """Why Byzantine zones sign: every client answers to what it alone is told."""
    names = "abcdefg"
    server = Server(TERMS, names)
    clients = {n: Client(n, TERMS) for n in names}
    told = masked(server, clients)
    everybody = told["b"].survivors
    seeds, keys = 0, 0
    for name in "bcdefg":
        message = told[name]
        if name in "efg":
            message = messages.Survivors(0, name, everybody[1:], ("a",))
        answer = clients[name].unmask(message)
        seeds += "a" in answer.seed_shares
        keys += "a" in answer.key_shares
    # With a fourth corrupt client it has both of a's secrets.
    assert (seeds, keys) == (3, 3)


def test_keys_of_the_super_nodes_own_making_are_refused():
    server, clients, signers = signed_parties()
    for client in clients.values():
        server.receive(client.advertise())
    sent = server.end_advertise()["a"]
    own = make_signers("b")["b"]
    stranger = Client("b", TERMS, signer=own).advertise()
    forged = dataclasses.replace(sent, peers=sent.peers | {"b": stranger})
    with pytest.raises(BadSignatureError, match="Keys of 'b' bears a wrong signature"):
        clients["a"].share(signers[SUPER_NODE].sign(forged, TERMS.digest))
    with pytest.raises(BadSignatureError, match="PeerKeys of 'super-node' bears"):
        clients["a"].share(forged)
    clients["a"].share(sent)


@pytest.mark.parametrize(
    "changes",
    [{"session": "zone 3, attempt 0"}, {"session": "zone 2, attempt 1"}, {"size": 3}],
)
def test_what_was_said_in_another_attempt_is_refused(changes):
    """Signing keys live long, and a sum that failed is tried again in its round."""
    terms = dataclasses.replace(TERMS, session="zone 2, attempt 0")
    before, then, signers = signed_parties(terms=dataclasses.replace(terms, **changes))
    server, clients, _ = signed_parties(terms=terms, signers=signers)
    old = {name: client.advertise() for name, client in then.items()}
    for message in old.values():
        before.receive(message)
        with pytest.raises(BadSignatureError, match="bears a wrong signature"):
            server.receive(message)
    for client in clients.values():
        server.receive(client.advertise())
    told = server.end_advertise()["a"]
    # A super-node that lies passes one on in a message of its own.
    mixed = dataclasses.replace(told, peers=told.peers | {"b": old["b"]})
    with pytest.raises(BadSignatureError, match="Keys of 'b' bears a wrong signature"):
        clients["a"].share(signers[SUPER_NODE].sign(mixed, terms.digest))
    with pytest.raises(BadSignatureError, match="PeerKeys of 'super-node' bears"):
        clients["a"].share(before.end_advertise()["a"])
    clients["a"].share(told)


def test_survivors_around_a_client_are_those_of_all():
    server, clients, signers = signed_parties()
    told = masked(server, clients)["a"]
    hub = signers[SUPER_NODE]
    for summed in (told.summed[1:], (*told.summed, "a"), told.summed[::-1]):
        changed = dataclasses.replace(told, summed=summed, signature=b"")
        changed = hub.sign(changed, TERMS.digest)
        with pytest.raises(SecureAggregationError, match="are not those of all"):
            clients["a"].agree(changed)
    word = clients["a"].agree(told)
    assert word.survivors == survivors_digest(tuple("abcdefg"))
    other = dataclasses.replace(word, survivors=bytes(32))
    other = signers["a"].sign(other, TERMS.digest)
    with pytest.raises(SecureAggregationError, match="'a' agreed on other survivors"):
        server.receive(other)
    server.receive(word)
    with pytest.raises(BelowThresholdError, match="1 clients agreed"):
        server.end_agree()


@pytest.mark.parametrize("k", range(1, 50))
def test_two_lists_cannot_both_have_a_quorum(k):
    names = [f"c{i}" for i in range(k)]
    public = dict.fromkeys([*names, SUPER_NODE], b"")
    quorum = dataclasses.replace(make_signers(["c0"])["c0"], public=public).quorum
    corrupt = (k - 1) // 3
    # Corrupt clients sign both lists, the honest ones one each.
    assert 2 * (quorum - corrupt) > k - corrupt
    assert quorum <= k - corrupt


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("degree", [None, 6])
def test_signed_rounds_survive_drop_outs(degree, phase):
    rng = np.random.default_rng(0)
    inputs = {f"c{i}": rng.integers(0, 99, 5).astype(np.uint32) for i in range(12)}
    total, survivors = run_round(
        inputs,
        Round(0, 5, 32, 4),
        degree=degree,
        drops=dict.fromkeys(["c3", "c7"], phase),
        signed=True,
        rng=random.Random(1),
    )
    np.testing.assert_array_equal(total, sum(inputs[c] for c in survivors))


def test_signatures_count():
    inputs = {f"c{i}": np.zeros(5, np.uint32) for i in range(10)}
    bytes_of = {}
    for signed in (False, True):
        meter = Meter(SUPER_NODE)
        run_round(inputs, Round(0, 5, 32, 6), signed=signed, meter=meter)
        bytes_of[signed] = meter.parties[SUPER_NODE].received_bytes
        # Five messages up and four down instead of four and three.
        assert meter.summary()["messages"] == (9 if signed else 7) * 10
    # Five signatures of 64 bytes, and 35 of an agreement.
    assert bytes_of[True] - bytes_of[False] == 10 * (5 * 64 + 1 + 3 + 33 + 1)


def test_a_client_cannot_have_the_super_nodes_name():
    with pytest.raises(errors.UnknownClientError, match="'super-node' is no client"):
        run_round(
            dict.fromkeys(["a", SUPER_NODE], np.zeros(1, np.uint32)), Round(0, 1, 32, 2)
        )
