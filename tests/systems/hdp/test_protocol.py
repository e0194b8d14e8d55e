"""Rounds of HDP with secure sums, in TFF and by the protocol, against plain rounds."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp import runtime
from tff_hdp.aggregators import round_events
from tff_hdp.clients.batches import chunk_type, client_batches, make_chunk, make_order
from tff_hdp.clients.client_work import (
    build_optimizer,
    client_profile,
    model_fn_from_keras,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, Ledger, PoissonSampling, configurations
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.systems.hdp.clients import single_clients, stacked_clients
from tff_hdp.systems.hdp.process import build_hdp
from tff_hdp.systems.secure_sums import ProtocolData, SecureSums

FEATURES, CLASSES = 120, 4
SIZE = FEATURES * CLASSES + CLASSES
ZONES = (0, 0, 0, 1, 2, 2)
RATE = 0.2
OPTIONS = {"zone_sizes": (4, 4, 4), "sampling": PoissonSampling((0.5,) * 3)}
SLOW = pytest.mark.slow
MODES = {
    "zone": {"secure_aggregation": True},
    "server": {"secure_server": True},
    "both": {"secure_aggregation": True, "secure_server": True},
}


@pytest.fixture(scope="module", autouse=True)
def in_process():
    """One context for all: what a process was compiled to is found again."""
    runtime.set_context("in_process")


def build_model():
    return tf.keras.Sequential(
        [tf.keras.layers.InputLayer([FEATURES]), tf.keras.layers.Dense(CLASSES)]
    )


MODEL_FN = model_fn_from_keras(
    build_model,
    (tf.TensorSpec([None, FEATURES], tf.float32), tf.TensorSpec([None], tf.int32)),
)


def cohort():
    rng = np.random.default_rng(0)
    examples = [
        (
            rng.normal(size=[n, FEATURES]).astype(np.float32),
            rng.integers(CLASSES, size=n).astype(np.int32),
        )
        for n in (7, 5, 9, 8, 4, 6)
    ]
    orders = [make_order(len(y), epochs=2, batch_size=3, rng=rng) for _, y in examples]
    return examples, orders, [1.0, 0.5, 1.0, 0.25, 1.0, 0.75]


def alone(quiet=(), rejected=()):
    """Clients; of those named, some leave their noise out or claim too much weight."""
    return [
        {
            "examples": client_batches(*example, order),
            "profile": client_profile(
                weight=2.0 if i in rejected else w,
                zone=zone,
                carries_noise=i not in quiet,
            ),
        }
        for i, (example, order, w, zone) in enumerate(
            zip(*cohort(), ZONES, strict=True)
        )
    ]


def chunks(quiet=(), rejected=(), zones=ZONES):
    """One chunk of the first zone, one of two zones, one of the last."""
    examples, orders, w = cohort()
    return [
        tf.data.Dataset.from_tensors(
            make_chunk(
                [examples[i] for i in group],
                [orders[i] for i in group],
                weights=[2.0 if i in rejected else w[i] for i in group],
                carries_noise=[i not in quiet for i in group],
                zone=[zones[i] for i in group],
            )
        )
        for group in ([0, 1], [2, 3], [4, 5])
    ]


def data_of(clients, protocol, **odd):
    data = {"alone": alone, "stacked": chunks}[clients](**odd)
    return data if protocol == "intrinsic" else ProtocolData(data, (0, 0, 0))


def encoded(plan, mode, **options):
    plan = dataclasses.replace(plan, **MODES[mode], min_zone_clients=2)
    return with_encoding(plan, size=SIZE, bits=30, **options)


@functools.cache
def process_of(plan, clients, protocol):
    alone = clients == "alone"
    return build_hdp(
        clients=(
            single_clients(
                model_fn=MODEL_FN, client_optimizer=build_optimizer("sgd", RATE)
            )
            if alone
            else stacked_clients(
                build_model=build_model,
                data_type=chunk_type((FEATURES,), np.float32),
                client_learning_rate=RATE,
            )
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", 1.0),
        secure_sums=None if protocol == "intrinsic" else SecureSums(protocol),
    )


def start(process):
    weights = tff.learning.models.ModelWeights(
        [np.full([FEATURES, CLASSES], 0.1, np.float32), np.zeros(CLASSES, np.float32)],
        [],
    )
    return process.set_model_weights(process.initialize(), weights)


def released(process, state):
    weights = process.get_model_weights(state).trainable
    return np.concatenate([np.ravel(t) for t in weights])


# The same rounds -------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_rounds():
    """The model after each of two plain rounds, without the zone of one client."""
    process = process_of(configurations.none(**OPTIONS), "alone", "intrinsic")
    kept = [client for client, zone in zip(alone(), ZONES, strict=True) if zone != 1]
    state, rounds = start(process), []
    for _ in range(2):
        state = process.next(state, kept).state
        rounds.append(released(process, state))
    return rounds


@pytest.mark.parametrize(
    ("clients", "protocol", "mode"),
    [
        ("stacked", "intrinsic", "zone"),
        pytest.param("stacked", "intrinsic", "server", marks=SLOW),
        pytest.param("stacked", "intrinsic", "both", marks=SLOW),
        pytest.param("stacked", "bonawitz", "zone", marks=SLOW),
        pytest.param("stacked", "bonawitz", "server", marks=SLOW),
        ("stacked", "bonawitz", "both"),
        ("stacked", "graph", "both"),
        pytest.param("alone", "intrinsic", "both", marks=SLOW),
        ("alone", "bonawitz", "both"),
    ],
)
def test_two_rounds_equal_plain_ones(clients, protocol, mode, plain_rounds):
    plan = encoded(configurations.none(**OPTIONS), mode, largest=2.0)
    process = process_of(plan, clients, protocol)
    state = start(process)
    data = data_of(clients, protocol)
    for number, expected in enumerate(plain_rounds):
        output = process.next(state, data)
        state = output.state
        np.testing.assert_allclose(released(process, state), expected, atol=2e-6)
        assert int(state.aggregator["round"]) == number + 1
    measured = output.metrics["aggregator"]
    assert measured["left_out"] == 1
    assert measured["saturated"] == 0
    assert np.asarray(measured["clients"]).tolist() == [3, 1, 2]
    train = output.metrics["client_work"]["train"]
    assert train["num_examples"] == 2 * (7 + 5 + 9 + 8 + 4 + 6)
    assert np.isfinite(train["loss"])


def test_a_protocol_needs_an_encoding():
    with pytest.raises(ArgumentError, match="secure_sums is bonawitz; allowed: None"):
        process_of(configurations.none(**OPTIONS), "stacked", "bonawitz")


def test_costs_of_the_protocol():
    plan = encoded(configurations.none(**OPTIONS), "both", largest=2.0)
    process = process_of(plan, "stacked", "bonawitz")
    costs = process.next(start(process), data_of("stacked", "bonawitz")).metrics[
        "secagg"
    ]
    # Five clients of two zones and three super-nodes each send a masked vector.
    vector = 4 * (SIZE + 1)
    assert 8 * vector < costs["secagg_bytes_up"] < 8 * (vector + 2000)
    assert 0 < costs["secagg_bytes_down"] < 8 * 2000
    assert vector < costs["secagg_client_bytes"] < vector + 4000
    assert 0 < costs["secagg_seconds"] < costs["secagg_total_seconds"]


# Noise -----------------------------------------------------------------------

# 484 coordinates over 12 rounds: a standard error of 0.9 %; 4.7 % is five. The noise
# of one party of six is worth 9 %.
ROUNDS, TOLERANCE = 12, 0.047


@pytest.mark.parametrize(
    ("clients", "protocol", "mode", "config", "parties"),
    [
        ("stacked", "intrinsic", "zone", "c1", 5),
        pytest.param("stacked", "intrinsic", "both", "c2", 3, marks=SLOW),
        pytest.param("stacked", "bonawitz", "zone", "c1", 5, marks=SLOW),
        pytest.param("stacked", "bonawitz", "server", "c1", 5, marks=SLOW),
        ("stacked", "bonawitz", "both", "c2", 3),
        pytest.param("alone", "bonawitz", "zone", "c2", 3, marks=SLOW),
        ("alone", "graph", "both", "c1", 5),
    ],
)
def test_noise(clients, protocol, mode, config, parties):
    """A zone of one is left out, its client's noise too, but not its super-node's."""
    z, norm = 1.3, 1e-3
    plan = configurations.CONFIGURATIONS[config](
        noise_multiplier=z, clipping=Clipping(clip_norm=norm), **OPTIONS
    )
    process = process_of(encoded(plan, mode), clients, protocol)
    state = start(process)
    data = data_of(clients, protocol)
    before, noise = released(process, state), []
    for _ in range(ROUNDS):
        after = released(process, output := process.next(state, data).state)
        noise.append(after - before)
    noise = np.stack(noise) - np.mean(noise, axis=0)
    expected = math.sqrt(parties) * z * norm / 6.0
    expected *= math.sqrt((ROUNDS - 1) / ROUNDS)
    assert noise.std() == pytest.approx(expected, rel=TOLERANCE)
    events = process.next(state, data).metrics["aggregator"]["events"]
    assert set(events) == {"client" if config == "c1" else "zones"}
    assert output.aggregator["round"] == 1


def test_clients_that_carry_no_noise_add_none():
    plan = configurations.c1(noise_multiplier=1.0, **OPTIONS)
    process = process_of(encoded(plan, "zone"), "stacked", "bonawitz")
    state = start(process)
    first, second = (
        released(
            process,
            process.next(
                state, data_of("stacked", "bonawitz", quiet=range(len(ZONES)))
            ).state,
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("clients", "protocol", "mode"),
    [
        pytest.param("alone", "intrinsic", None, marks=SLOW),
        pytest.param("stacked", "intrinsic", None, marks=SLOW),
        pytest.param("alone", "intrinsic", "both", marks=SLOW),
        ("stacked", "intrinsic", "zone"),
        ("stacked", "bonawitz", "server"),
    ],
)
def test_rounds_in_which_noise_was_left_out_are_not_recorded(clients, protocol, mode):
    """Rejected updates protect nobody and need no noise."""
    plan = configurations.c1(noise_multiplier=1.0, **OPTIONS)
    plan = encoded(plan, mode) if mode else plan
    process = process_of(plan, clients, protocol)
    state = start(process)

    def record(**odd):
        output = process.next(state, data_of(clients, protocol, **odd))
        measured = output.metrics["aggregator"]
        Ledger().record(plan, events=round_events(measured))
        return measured

    assert record()["noising"].tolist() == [3, 1, 2]
    with pytest.raises(
        ValueError,
        match=r"'client' emitted .* of 0, .* a client came without its noise, or",
    ):
        record(quiet=[1])
    measured = record(quiet=[1], rejected=[1])
    assert measured["noising"].tolist() == [2, 1, 2]
    assert measured["clients"].tolist() == [3, 1, 2]
    assert measured["rejected"] == 1


@pytest.mark.parametrize("protocol", ["intrinsic", "bonawitz"])
def test_clients_of_no_zone_make_none_large_enough_to_be_shown(protocol):
    """Two of them beside one of the first zone, whose sum would be its update."""
    plan = encoded(configurations.none(**OPTIONS), "zone", largest=2.0)
    process = process_of(plan, "stacked", protocol)
    moved = []
    for zones in ((0, 9, -1, 1, 2, 2), (9, 9, -1, 1, 2, 2)):
        data = data_of("stacked", protocol, zones=zones)
        output = process.next(start(process), data)
        measured = output.metrics["aggregator"]
        assert measured["counted"].tolist() == [zones[0] == 0, 1, 2]
        assert measured["left_out"] == 1 + (zones[0] == 0)
        moved.append(released(process, output.state))
    np.testing.assert_array_equal(*moved)
    assert np.abs(moved[0] - released(process, start(process))).max() > 0.01


def test_the_protocol_refuses_plans_that_ignore_small_zones():
    plan = configurations.none(**OPTIONS, secure_aggregation=True)
    plan = with_encoding(plan, size=SIZE, bits=30, largest=2.0)
    process = process_of(plan, "stacked", "bonawitz")
    with pytest.raises(ValueError, match="min_zone_clients is 1"):
        process.next(start(process), data_of("stacked", "bonawitz"))
