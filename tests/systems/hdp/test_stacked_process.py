"""The process with a TFF client for a chunk: steps and refusals."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp.clients.batches import chunk_type, client_batches
from tff_hdp.clients.client_work import (
    build_optimizer,
    client_profile,
    model_fn_from_keras,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, FullParticipation, configurations
from tff_hdp.systems.hdp.clients import single_clients, stacked_clients
from tff_hdp.systems.hdp.process import build_hdp

# Each path rounds its float32 sums in its own order, over tens of steps.
TOLERANCE = {"rtol": 1e-3, "atol": 2e-5}
SIZES = (9, 4, 1, 12)
# The first trains its weights as they are, the second in the span of examples.
WIDTHS = (6, 40)


def small_model(width=6):
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([width]),
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.Dense(40, activation="relu"),
            tf.keras.layers.Dense(50),
        ]
    )


def stacked_process(plan, width, rate=0.1):
    return build_hdp(
        clients=stacked_clients(
            build_model=lambda: small_model(width),
            data_type=chunk_type((width,), np.uint8),
            client_learning_rate=rate,
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", 1.0),
    )


def as_dataset(chunk):
    return tf.data.Dataset.from_tensors(chunk)


@pytest.mark.parametrize(
    ("width", "config"), thinned(list(WIDTHS), ["none", "c2"], every=4)
)
def test_both_processes_take_the_same_steps(
    native_context, make_clients, as_chunk, config, width
):
    """Two zones, one chunk of both, clipping that bites, next to no noise."""
    options = {"zone_sizes": (3, 1), "sampling": FullParticipation()}
    plan = configurations.none(**options)
    if config == "c2":
        clipping = Clipping(clip_norm=0.05)
        plan = configurations.c2(noise_multiplier=1e-7, clipping=clipping, **options)
    (examples, order), zones = make_clients((width,), SIZES), [0, 0, 0, 1]
    alone_data = [
        collections.OrderedDict(
            examples=client_batches(*examples[i], order[i]),
            profile=client_profile(weight=1.0, zone=zones[i], carries_noise=False),
        )
        for i in range(4)
    ]
    stacked_data = [
        as_dataset(as_chunk(examples[:2], order[:2], zone=0)),
        as_dataset(as_chunk(examples[2:], order[2:], zone=(0, 1))),
    ]
    spec = (tf.TensorSpec([None, width], tf.uint8), tf.TensorSpec([None], tf.int32))
    alone = build_hdp(
        clients=single_clients(
            model_fn=model_fn_from_keras(lambda: small_model(width), spec),
            client_optimizer=build_optimizer("sgd", 0.1),
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", 1.0),
    )
    tf.keras.utils.set_random_seed(1)
    initial = tff.learning.models.ModelWeights.from_model(small_model(width))
    initial = tf.nest.map_structure(lambda v: v.numpy(), initial)
    finals, outputs = [], []
    stacked = stacked_process(plan, width)
    for process, data in ((alone, alone_data), (stacked, stacked_data)):
        state = process.set_model_weights(process.initialize(), initial)
        for _ in range(2):
            output = process.next(state, data)
            state = output.state
        finals.append(process.get_model_weights(state).trainable)
        outputs.append(output.metrics)
    for a, b in zip(*finals, strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)
    first, second = (o["aggregator"] for o in outputs)
    assert first["clients"].tolist() == second["clients"].tolist() == [3, 1]
    assert first["update_norm"] == pytest.approx(second["update_norm"], rel=1e-3)
    train = [o["client_work"]["train"] for o in outputs]
    assert train[0]["num_examples"] == train[1]["num_examples"]
    assert train[0]["accuracy"] == pytest.approx(train[1]["accuracy"])


def test_a_poisoned_client_does_not_spoil_its_stack(native_context, as_chunk):
    """An overflow in one client: it alone is rejected and counted."""

    def overflowing():
        # A label's logit of 3e38 * 255 is infinite for a lit first pixel.
        return tf.keras.Sequential(
            [
                tf.keras.layers.InputLayer([2]),
                tf.keras.layers.Rescaling(1.0),
                tf.keras.layers.Dense(2, kernel_initializer="ones"),
                tf.keras.layers.Rescaling(1e36),
            ]
        )

    plan = configurations.none(zone_sizes=(2,), sampling=FullParticipation())
    process = build_hdp(
        clients=stacked_clients(
            build_model=overflowing,
            data_type=chunk_type((2,), np.uint8),
            client_learning_rate=1e-30,
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", 1.0),
    )
    bright = (np.full([2, 2], 255, np.uint8), np.array([0, 1], np.int32))
    dark = (np.zeros([2, 2], np.uint8), np.array([0, 1], np.int32))
    chunk = as_chunk([bright, dark], [np.array([[0, 1]], np.int32)] * 2)
    output = process.next(process.initialize(), [as_dataset(chunk)])
    assert output.metrics["aggregator"]["rejected"] == 1
    weights = process.get_model_weights(output.state).trainable
    assert all(np.isfinite(w).all() for w in weights)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("build_model", None),
        ("client_learning_rate", "0.1"),
        ("client_learning_rate", -0.1),
        ("client_learning_rate", np.nan),
        ("client_momentum", None),
        ("client_momentum", np.array([0.5, 0.5])),
        ("data_type", None),
        ("data_type", "chunks"),
        ("data_type", np.int32),
    ],
)
def test_clients_of_other_kinds_are_refused(name, value):
    given = {"build_model": lambda: small_model(2), "client_learning_rate": 0.1}
    given |= {"data_type": chunk_type((2,), np.uint8)}
    with pytest.raises(ValueError, match=f"^{name} is "):
        stacked_clients(**given | {name: value})


@pytest.mark.parametrize("alone", [True, False])
def test_a_model_to_shares_and_not_to_logits_is_refused(alone):
    """It would learn by the softmax of a softmax."""

    def build_model():
        model = tf.keras.Sequential([tf.keras.Input([2])])
        model.add(tf.keras.layers.Dense(3, activation=None if alone else "softmax"))
        if alone:
            model.add(tf.keras.layers.Activation(tf.nn.softmax))
        return model

    given = {"data_type": chunk_type((2,), np.float32), "client_learning_rate": 0.1}
    with pytest.raises(ArgumentError, match=r"build_model is ending in a softmax"):
        stacked_clients(build_model=build_model, **given)
