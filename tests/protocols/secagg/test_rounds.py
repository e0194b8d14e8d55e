import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.secagg.parties import shared
from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg import graphs
from tff_hdp.protocols.secagg.client import PHASES, Client
from tff_hdp.protocols.secagg.client_secrets import ClientSecrets
from tff_hdp.protocols.secagg.errors import (
    BadShareError,
    BelowThresholdError,
)
from tff_hdp.protocols.secagg.fixed_point import (
    FixedPoint,
    from_ring,
    ring_dtype,
    to_ring,
)
from tff_hdp.protocols.secagg.messages import Round, unpack
from tff_hdp.protocols.secagg.rounds import (
    SUPER_NODE,
    masking_graph,
    run_round,
)
from tff_hdp.protocols.secagg.server import Server


def ring_inputs(k, size, bits, seed=0):
    rng = np.random.default_rng(seed)
    return {f"c{i}": to_ring(rng.integers(0, 2**bits, size), bits) for i in range(k)}


def plain_sum(inputs, survivors, bits):
    total = sum(inputs[client].astype(np.int64) for client in survivors)
    return to_ring(total, bits)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_exactly_the_sum_or_a_refusal(data):
    k = data.draw(st.integers(2, 9), label="k")
    t = data.draw(st.integers(2, k), label="t")
    bits = data.draw(st.sampled_from([5, 8, 16, 20, 32]), label="bits")
    size = data.draw(st.integers(1, 40), label="size")
    inputs = ring_inputs(k, size, bits)
    drops = data.draw(
        st.dictionaries(st.sampled_from(sorted(inputs)), st.sampled_from(PHASES)),
        label="drops",
    )
    terms = Round(3, size, bits, t)
    # Who has not dropped out by the end of each phase.
    left = {
        phase: {c for c in inputs if PHASES.index(drops.get(c, "unmask")) > i}
        | (inputs.keys() - drops.keys())
        for i, phase in enumerate(PHASES)
    }
    if len(left["unmask"]) < t:
        with pytest.raises(BelowThresholdError, match="threshold is"):
            run_round(inputs, terms, drops=drops)
        return
    total, survivors = run_round(inputs, terms, drops=drops)
    assert set(survivors) == left["mask"]
    np.testing.assert_array_equal(total, plain_sum(inputs, survivors, bits))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_sparse_protocol_gives_exactly_the_sum_or_a_refusal(data):
    k = data.draw(st.integers(6, 16), label="k")
    degree = data.draw(st.sampled_from([2, 4, 6]), label="degree")
    inputs = ring_inputs(k, 20, 24)
    drops = data.draw(
        st.dictionaries(
            st.sampled_from(sorted(inputs)), st.sampled_from(PHASES), max_size=k // 2
        ),
        label="drops",
    )
    rng = random.Random(data.draw(st.integers(0, 99), label="seed"))
    terms = Round(0, 20, 24, data.draw(st.integers(2, 3), label="t"))
    try:
        total, survivors = run_round(inputs, terms, degree=degree, drops=drops, rng=rng)
    except BelowThresholdError:
        assert drops, "nobody dropped, yet the round was refused"
        return
    before_masking = PHASES[: PHASES.index("mask") + 1]
    staying = {c for c in inputs if drops.get(c) not in before_masking}
    assert set(survivors) <= staying
    np.testing.assert_array_equal(total, plain_sum(inputs, survivors, 24))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("protocol", ["bonawitz", "graph"])
def test_a_fifth_may_drop_out_in_any_round(protocol, phase):
    k, size = 25, 50
    graph = masking_graph(protocol, k)
    assert (graph.degree is not None) == (protocol == "graph")
    inputs = ring_inputs(k, size, 32)
    gone = sorted(inputs)[:5]
    total, survivors = run_round(
        inputs,
        Round(7, size, 32, graph.threshold),
        degree=graph.degree,
        drops=dict.fromkeys(gone, phase),
    )
    assert len(survivors) == (25 if phase in ("agree", "unmask") else 20)
    np.testing.assert_array_equal(total, plain_sum(inputs, survivors, 32))


def masked_updates(inputs, terms, degree=None):
    """What the super-node receives in round 2, client by client."""
    server = Server(terms, inputs, degree=degree)
    clients = {c: Client(c, terms) for c in inputs}
    return {
        name: unpack(clients[name].mask(message, inputs[name]).values, terms.bits)
        for name, message in shared(server, clients).items()
    }


@pytest.mark.parametrize("degree", [None, 2])
@pytest.mark.parametrize("bits", [8, 20, 32])
def test_masked_updates_look_uniform_whatever_is_in_them(bits, degree):
    size = 4000
    terms = Round(0, size, bits, 2)
    constant = np.zeros(size, ring_dtype(bits))
    inputs = {"a": constant, "b": constant + 1, "c": constant, "d": constant}
    seen = masked_updates(inputs, terms, degree)
    for values in seen.values():
        scaled = values.astype(np.float64) / 2**bits
        counts = np.histogram(scaled, bins=16, range=(0, 1))[0]
        assert scipy.stats.chisquare(counts).pvalue > 1e-5
        # Neighbouring coordinates are unrelated.
        assert abs(np.corrcoef(scaled[:-1], scaled[1:])[0, 1]) < 5 / np.sqrt(size)
    # Nor do two clients' masked updates, or an update and its masked form, agree.
    ab = np.corrcoef(seen["a"].astype(float), seen["b"].astype(float))[0, 1]
    assert abs(ab) < 5 / np.sqrt(size)


def test_masked_updates_of_different_inputs_cannot_be_told_apart():
    size = 4000
    rng = np.random.default_rng(0)
    terms = Round(0, size, 32, 2)
    zeros = np.zeros(size, np.uint32)
    gaussian = FixedPoint.for_sum(clip=1.0, bits=32, max_clients=3).encode(
        rng.normal(size=size)
    )
    first = masked_updates({"a": zeros, "b": zeros, "c": zeros}, terms)["a"]
    second = masked_updates({"a": gaussian, "b": zeros, "c": zeros}, terms)["a"]
    assert scipy.stats.ks_2samp(first, second).pvalue > 1e-5
    # The same test does tell the bare inputs apart.
    assert scipy.stats.ks_2samp(zeros, gaussian).pvalue < 1e-5


def test_masks_are_fresh_every_round_and_cancel_only_in_the_sum():
    inputs = {c: np.zeros(100, np.uint32) for c in "abc"}
    one, two = (masked_updates(inputs, Round(r, 100, 32, 2)) for r in (0, 1))
    assert not np.array_equal(one["a"], two["a"])
    # Even the sum of masked updates is hidden, by the self-masks, until shares
    # of their seeds are given.
    total = sum(v.astype(np.int64) for v in one.values()) % 2**32
    assert scipy.stats.kstest(total / 2**32, "uniform").pvalue > 1e-5
    assert total.any()


def test_what_clients_derive_is_of_one_session():
    """The same secrets, as of a client whose randomness was put back."""
    inputs = {c: np.zeros(100, np.uint32) for c in "abc"}
    sealed, seen = [], []
    for session in ("zone 0, attempt 0", "zone 0, attempt 1", "zone 0, attempt 1"):
        terms = Round(4, 100, 32, 2, session)
        server = Server(terms, inputs)
        secrets = {c: random.Random(c) for c in inputs}
        clients = {
            c: Client(c, terms, random_bytes=secrets[c].randbytes) for c in "abc"
        }
        shares = shared(server, clients)["a"]
        if len(sealed) == 1:
            with pytest.raises(BadShareError, match="cannot be opened"):
                clients["a"].mask(sealed[0], inputs["a"])
        sealed.append(shares)
        seen.append(clients["a"].mask(shares, inputs["a"]).values)
    np.testing.assert_array_equal(seen[1], seen[2])
    # The self-mask is the same in all, masks of pairs are not.
    assert not np.array_equal(seen[0], seen[1])


def test_every_party_of_a_round_talks_little():
    k, size = 10, 10_000
    meter = Meter(SUPER_NODE)
    run_round(ring_inputs(k, size, 32), Round(0, size, 32, 6), meter=meter)
    # Four messages up and three down for each client.
    assert meter.summary()["messages"] == 7 * k
    for cost in meter.clients.values():
        # The update, and per neighbour two shares of 33 bytes, their tag and
        # digests, and the shares given back: some 150 bytes.
        assert 4 * size < cost.sent_bytes < 4 * size + 200 * k + 200
        assert cost.received_bytes < 200 * k + 200
    hub = meter.parties[SUPER_NODE]
    assert hub.received_bytes == sum(c.sent_bytes for c in meter.clients.values())


@pytest.mark.parametrize(("bits", "width"), [(8, 1), (12, 2), (20, 3), (32, 4)])
def test_updates_take_whole_bytes_of_the_ring(bits, width):
    meter = Meter(SUPER_NODE)
    run_round(ring_inputs(3, 5000, bits), Round(0, 5000, bits, 2), meter=meter)
    for cost in meter.clients.values():
        assert width * 5000 < cost.sent_bytes < width * 5000 + 1000


def test_survivors_in_separate_groups_are_refused():
    # A ring of degree 2 cut at two places: each arc would show its own sum.
    ids = [f"c{i}" for i in range(8)]
    order = graphs.neighbours(2, ids, rng=random.Random(0))
    ring = ["c0"]
    while len(ring) < 8:
        ring.append(next(iter(sorted(order[ring[-1]] - set(ring)))))
    inputs = {c: np.zeros(5, np.uint32) for c in ids}
    with pytest.raises(BelowThresholdError, match="groups with no mask in common"):
        run_round(
            inputs,
            Round(0, 5, 32, 2),
            degree=2,
            drops={ring[0]: "mask", ring[4]: "mask"},
            rng=random.Random(0),
        )


@pytest.mark.parametrize("client", [3, b"c0", "\ud800"])
def test_ids_that_no_message_can_bear_are_refused(client):
    with pytest.raises(ArgumentError, match=r"^client is .* text in UTF-8"):
        run_round({client: np.zeros(2, np.uint32)}, Round(0, 2, 32, 2))


def test_unknown_protocol_is_refused():
    with pytest.raises(ArgumentError, match="protocol is magic; allowed: bona"):
        masking_graph("magic", 5)


def test_fixed_secrets_make_a_round_repeatable():
    def source(client):
        rng = random.Random(client)
        return rng.randbytes

    inputs = ring_inputs(4, 10, 32)
    terms = Round(0, 10, 32, 3)
    first = run_round(inputs, terms, random_bytes=source)
    second = run_round(inputs, terms, random_bytes=source)
    np.testing.assert_array_equal(first[0], second[0])
    assert from_ring(first[0], 32).dtype == np.int64


def test_who_is_whose_neighbour_is_nobodys_guess():
    """Clients that collude would otherwise stand around their victim."""
    ids = [f"c{i}" for i in range(20)]
    drawn = set()
    for _ in range(5):
        server = Server(Round(0, 1, 32, 2), ids, degree=2)
        clients = {c: Client(c, server.terms) for c in ids}
        shared(server, clients)
        drawn.add(server.joined["c0"])
    assert len(drawn) > 1


def test_shares_are_uniform_to_a_part_in_2_to_the_128():
    asked = []

    def random_bytes(count):
        asked.append(count)
        return random.randbytes(count)

    shared_by = ClientSecrets("a", Round(0, 1, 32, 3), random_bytes)
    del asked[:]
    shared_by._split(bytes(32), 3)
    # A number below 2^256 + 297, drawn as one of so many bytes and reduced.
    assert len(asked) == 2
    assert all(8 * count >= 257 + 128 for count in asked)
