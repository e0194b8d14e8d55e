"""Rounds in which parties sign, with a super-node or clients that lie."""

import dataclasses
import random

import numpy as np
import pytest

from tests.protocols.secagg.parties import masked, shared
from tff_hdp.errors import ArgumentError
from tff_hdp.protocols import wire
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg import errors, messages
from tff_hdp.protocols.secagg.client import PHASES, Client
from tff_hdp.protocols.secagg.errors import (
    BadSignatureError,
    BelowThresholdError,
    SecureAggregationError,
)
from tff_hdp.protocols.secagg.messages import Round, list_digest
from tff_hdp.protocols.secagg.rounds import SUPER_NODE, run_round
from tff_hdp.protocols.secagg.server import Server
from tff_hdp.protocols.secagg.signing import make_signers

TERMS = Round(0, 2, 32, 5)


def signed_parties(names="abcdefg", terms=TERMS, signers=None):
    signers = make_signers(names) if signers is None else signers
    server = Server(terms, names, signer=signers[SUPER_NODE])
    clients = {n: Client(n, terms, signer=signers[n]) for n in names}
    return server, clients, signers


def test_a_client_masks_with_those_alone_that_a_quorum_was_told_of():
    """Else it could be told of few, who then drop out and leave it bare."""
    server, clients, signers = signed_parties()
    hub = signers[SUPER_NODE]
    told = shared(server, clients)
    # Of a quorum, so that the victim takes it for drop-outs.
    few = {peer: told["a"].ciphertexts[peer] for peer in "bcde"}
    lie = messages.SharesForClient(0, "a", few)
    words = {n: clients[n].settle(told[n]) for n in "bcdefg"}
    words["a"] = clients["a"].settle(hub.sign(lie, TERMS.digest))
    with pytest.raises(SecureAggregationError, match="'a' agreed on other sharers"):
        server.receive(words["a"])
    others = {n: words[n].signature for n in "bcdefg"}
    lie = messages.Agreements(0, "a", others)
    with pytest.raises(BadSignatureError, match="Agreement of 'b'"):
        clients["a"].mask(hub.sign(lie, TERMS.digest), np.zeros(2, np.uint32))
    lie = messages.Agreements(0, "a", {"a": words["a"].signature})
    with pytest.raises(BelowThresholdError, match="1 clients agreed with 'a'"):
        clients["a"].mask(hub.sign(lie, TERMS.digest), np.zeros(2, np.uint32))
    # What was said of who shared is no word on who survived.
    word = messages.Agreements(0, "b", others)
    clients["b"].mask(hub.sign(word, TERMS.digest), np.zeros(2, np.uint32))
    everybody = tuple("abcdefg")
    end = messages.Survivors(0, "b", everybody, (), everybody)
    clients["b"].agree(hub.sign(end, TERMS.digest))
    with pytest.raises(BadSignatureError, match="Agreement of 'b'"):
        clients["b"].unmask(hub.sign(word, TERMS.digest))


def test_a_super_node_that_may_lie_chooses_no_neighbours():
    signers = make_signers("abcdefgh")
    with pytest.raises(ArgumentError, match="degree is 4; allowed: None where parties"):
        Server(TERMS, "abcdefgh", degree=4, signer=signers[SUPER_NODE])


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
        same = [n for n in "bcdefg" if words[n].told == words[name].told]
        signatures = {n: words[n].signature for n in same}
        few = hub.sign(messages.Agreements(0, name, signatures), TERMS.digest)
        with pytest.raises(BelowThresholdError, match=r"3 clients .* 5 must"):
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


def test_the_super_node_is_no_clients_peer():
    """It would hold a share of every secret, and help with every attempt."""
    server, clients, signers = signed_parties()
    for client in clients.values():
        server.receive(client.advertise())
    sent = server.end_advertise()["a"]
    own = Client(SUPER_NODE, TERMS, signer=signers[SUPER_NODE]).advertise()
    more = dataclasses.replace(sent, peers=sent.peers | {SUPER_NODE: own})
    with pytest.raises(errors.UnknownClientError, match="'super-node', which is no cl"):
        clients["a"].share(signers[SUPER_NODE].sign(more, TERMS.digest))
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


def test_a_signature_is_of_one_kind_of_message():
    """Two kinds may have the same bytes; what was said in one is not in the other."""
    hub = make_signers("abc")[SUPER_NODE]
    shares = hub.sign(messages.SharesForClient(0, "a", {"b": b"c"}), TERMS.digest)
    alike = messages.Agreements(0, "a", {"b": b"c"}, signature=shares.signature)
    assert wire.encode(alike) == wire.encode(shares)
    hub.check(shares, SUPER_NODE, TERMS.digest)
    with pytest.raises(BadSignatureError, match="Agreements of 'super-node' bears"):
        hub.check(alike, SUPER_NODE, TERMS.digest)


def test_survivors_around_a_client_are_those_of_all():
    server, clients, signers = signed_parties()
    told = masked(server, clients)["a"]
    hub = signers[SUPER_NODE]
    ghost = (*told.summed, "h")
    for summed in (told.summed[1:], (*told.summed, "a"), told.summed[::-1], ghost):
        changed = dataclasses.replace(told, summed=summed, signature=b"")
        changed = hub.sign(changed, TERMS.digest)
        with pytest.raises(SecureAggregationError, match="are not those of all"):
            clients["a"].agree(changed)
    word = clients["a"].agree(told)
    assert word.told == list_digest("survivors", tuple("abcdefg"))
    other = dataclasses.replace(word, told=bytes(32))
    other = signers["a"].sign(other, TERMS.digest)
    with pytest.raises(SecureAggregationError, match="'a' agreed on other survivors"):
        server.receive(other)
    server.receive(word)
    with pytest.raises(BelowThresholdError, match=r"1 clients came to .agree."):
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
def test_signed_rounds_survive_drop_outs(phase):
    rng = np.random.default_rng(0)
    inputs = {f"c{i}": rng.integers(0, 99, 5).astype(np.uint32) for i in range(12)}
    total, survivors = run_round(
        inputs,
        Round(0, 5, 32, 8),
        drops=dict.fromkeys(["c3", "c7"], phase),
        signed=True,
        rng=random.Random(1),
    )
    np.testing.assert_array_equal(total, sum(inputs[c] for c in survivors))


def test_signatures_count():
    inputs = {f"c{i}": np.zeros(5, np.uint32) for i in range(10)}
    sent, received = {}, {}
    for signed in (False, True):
        meter = Meter(SUPER_NODE)
        run_round(inputs, Round(0, 5, 32, 7), signed=signed, meter=meter)
        hub = meter.parties[SUPER_NODE]
        sent[signed], received[signed] = hub.sent_bytes, hub.received_bytes
        # Six messages up and five down instead of four and three.
        assert meter.summary()["messages"] == (11 if signed else 7) * 10
    # Six signatures of 64 bytes, and twice 38 of an agreement.
    assert received[True] - received[False] == 10 * (6 * 64 + 2 * (1 + 3 + 33 + 1))
    assert received[True] - received[False] == 10 * 460
    assert sent[True] - sent[False] == 10 * 2298


def test_a_client_cannot_have_the_super_nodes_name():
    with pytest.raises(errors.UnknownClientError, match="'super-node' is no client"):
        run_round(
            dict.fromkeys(["a", SUPER_NODE], np.zeros(1, np.uint32)), Round(0, 1, 32, 2)
        )


def test_clients_hold_the_super_node_to_the_fewest_survivors():
    """Noise is sized for them: fewer would leave less of it."""
    terms = dataclasses.replace(TERMS, min_survivors=7)
    server, clients, signers = signed_parties(terms=terms)
    told = masked(server, clients)
    few = tuple("abcdef")
    for name in few:
        lie = messages.Survivors(0, name, few, ("g",), few)
        with pytest.raises(BelowThresholdError, match="agreed to no fewer than 7"):
            clients[name].agree(signers[SUPER_NODE].sign(lie, terms.digest))
        ghosts = messages.Survivors(0, name, few, ("g",), (*few, "h"))
        with pytest.raises(SecureAggregationError, match="are not those of all"):
            clients[name].agree(signers[SUPER_NODE].sign(ghosts, terms.digest))
        clients[name].agree(told[name])


@pytest.mark.parametrize("signed", [False, True])
def test_an_honest_super_node_stops_at_the_fewest_survivors(signed):
    inputs = dict.fromkeys("abcdefg", np.zeros(2, np.uint32))
    terms = dataclasses.replace(TERMS, min_survivors=6)
    drops = dict.fromkeys("ab", "mask")
    with pytest.raises(BelowThresholdError, match="5 clients sent updates; the fewest"):
        run_round(inputs, terms, drops=drops, signed=signed)
    _, survivors = run_round(inputs, terms, drops={"a": "mask"}, signed=signed)
    assert survivors == tuple("bcdefg")
