"""Clients trained in stacks against each trained alone, and the noise of both."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_hdp.learning.client_work import (
    client_batches,
    client_profile,
    make_order,
    model_fn_from_keras,
)
from tff_hdp.learning.hdp import build_hdp
from tff_hdp.learning.optimizers import build_optimizer
from tff_hdp.learning.stacked import StackedModel, is_supported
from tff_hdp.learning.stacked_hdp import build_stacked_hdp, chunk_type
from tff_hdp.learning.stacked_work import chunk_size, make_chunk, train_stack
from tff_hdp.privacy import Clipping, FullParticipation, configurations

# Each path rounds its float32 sums in its own order, over tens of steps.
TOLERANCE = {"rtol": 1e-3, "atol": 2e-5}
# In float64 what is left of that is far below any mistake.
EXACT = {"rtol": 1e-8, "atol": 1e-10}
SIZES = (9, 4, 1, 12)
ARCHITECTURES = {
    (dataset.name, name): (dataset, architecture)
    for dataset in tasks.TASKS.values()
    for name, architecture in dataset.models.items()
    if name != "cnn_large"
}


def clients(shape, seed=0, high=256, classes=10):
    rng = np.random.default_rng(seed)
    return [
        (
            rng.integers(0, high, size=[n, *shape]).astype(np.uint8),
            rng.integers(0, classes, size=n).astype(np.int32),
        )
        for n in SIZES
    ]


def orders(epochs=2, batch_size=4, seed=1):
    rng = np.random.default_rng(seed)
    return [make_order(n, epochs=epochs, batch_size=batch_size, rng=rng) for n in SIZES]


def as_chunk(examples, order, zone=0, carries=True):
    return make_chunk(
        examples,
        order,
        weights=[1.0] * len(examples),
        carries_noise=[carries] * len(examples),
        zone=zone,
    )


def train_alone(model, initial, examples, order, rate, momentum):
    """Plain Keras SGD of one client, batch by batch."""
    for variable, value in zip(model.trainable_variables, initial, strict=True):
        variable.assign(value)
    velocity = [np.zeros_like(w) for w in initial]
    for rows in order:
        rows = rows[rows >= 0]
        with tf.GradientTape() as tape:
            logits = model(examples[0][rows], training=True)
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(
                examples[1][rows], logits
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        for i, gradient in enumerate(gradients):
            velocity[i] = momentum * velocity[i] + gradient.numpy()
            model.trainable_variables[i].assign_sub(rate * velocity[i])
    pairs = zip(initial, model.trainable_variables, strict=True)
    return [w - v.numpy() for w, v in pairs]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("which", ARCHITECTURES, ids="-".join)
def test_a_stack_trains_like_each_client_alone(float64, which, momentum):
    """In float64: float32 ties in max pooling make any two paths part ways."""
    dataset, architecture = ARCHITECTURES[which]
    shape, classes = dataset.input_shape, dataset.num_classes
    tf.keras.utils.set_random_seed(0)
    model = architecture.build(
        input_shape=shape, num_classes=classes, max_value=dataset.max_value
    )
    initial = [v.numpy() for v in model.trainable_variables]
    examples = clients(shape, high=dataset.max_value + 1, classes=classes)
    order = orders()
    chunk = tf.nest.map_structure(tf.constant, as_chunk(examples, order))
    updates, sums = train_stack(
        StackedModel(model),
        [tf.constant(w) for w in initial],
        chunk,
        learning_rate=0.05,
        momentum=momentum,
    )
    for i in range(len(SIZES)):
        alone = train_alone(model, initial, examples[i], order[i], 0.05, momentum)
        for stacked, expected in zip(updates, alone, strict=True):
            assert stacked.dtype == tf.float64
            np.testing.assert_allclose(stacked[i], expected, **EXACT)
    assert float(sums["examples"]) == 2 * sum(SIZES)


@pytest.fixture
def float64():
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx("float32")


def small_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([6]),
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.Dense(40, activation="relu"),
            tf.keras.layers.Dense(50),
        ]
    )


def stacked_process(plan, rate=0.1, momentum=0.0):
    return build_stacked_hdp(
        build_model=small_model,
        data_type=chunk_type((6,), np.uint8),
        plan=plan,
        client_learning_rate=rate,
        client_momentum=momentum,
        server_optimizer=build_optimizer("sgd", 1.0),
    )


def as_dataset(chunk):
    return tf.data.Dataset.from_tensors(chunk)


@pytest.mark.parametrize("config", ["none", "c2"])
def test_both_processes_take_the_same_steps(native_context, config):
    """Two zones, clipping that bites, next to no noise, two rounds."""
    options = {"zone_sizes": (3, 1), "sampling": FullParticipation()}
    plan = configurations.none(**options)
    if config == "c2":
        clipping = Clipping(norm=0.05)
        plan = configurations.c2(noise_multiplier=1e-7, clipping=clipping, **options)
    examples, order, zones = clients((6,)), orders(), [0, 0, 0, 1]
    alone_data = [
        collections.OrderedDict(
            examples=client_batches(*examples[i], order[i]),
            profile=client_profile(weight=1.0, zone=zones[i], carries_noise=False),
        )
        for i in range(4)
    ]
    stacked_data = [
        as_dataset(as_chunk(examples[:2], order[:2], zone=0)),
        as_dataset(as_chunk(examples[2:3], order[2:3], zone=0)),
        as_dataset(as_chunk(examples[3:], order[3:], zone=1)),
    ]
    spec = (tf.TensorSpec([None, 6], tf.uint8), tf.TensorSpec([None], tf.int32))
    alone = build_hdp(
        model_fn=model_fn_from_keras(small_model, spec),
        plan=plan,
        client_optimizer=build_optimizer("sgd", 0.1),
        server_optimizer=build_optimizer("sgd", 1.0),
    )
    tf.keras.utils.set_random_seed(1)
    initial = tff.learning.models.ModelWeights.from_model(small_model())
    initial = tf.nest.map_structure(lambda v: v.numpy(), initial)
    finals, outputs = [], []
    for process, data in ((alone, alone_data), (stacked_process(plan), stacked_data)):
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


def test_a_poisoned_client_does_not_spoil_its_stack(native_context):
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
    process = build_stacked_hdp(
        build_model=overflowing,
        data_type=chunk_type((2,), np.uint8),
        plan=plan,
        client_learning_rate=1e-30,
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
    ("config", "shares"),
    [("c1", {}), ("c2", {}), ("c4", {}), ("c7", {"alpha": 0.5, "beta": 0.5})],
)
def test_noise_of_the_stacked_process(native_context, config, shares):
    """Rate 0: what moves the model is noise. 2,330 coordinates, three rounds.

    The standard error of the measured deviation is 1 / sqrt(2 * 6990) = 0.85 %.
    """
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=(4, 4),
        sampling=FullParticipation(),
        noise_multiplier=1.4,
        clipping=Clipping(norm=0.5),
        **shares,
    )
    examples, order = clients((6,)), orders(epochs=1)
    noising = [count > 0 for count in plan.noising_clients]
    data = [
        as_dataset(as_chunk(examples[:3], order[:3], zone=0, carries=noising[0])),
        as_dataset(as_chunk(examples[3:], order[3:], zone=0, carries=noising[0])),
        as_dataset(as_chunk(examples, order, zone=1, carries=noising[1])),
    ]
    process = stacked_process(plan, rate=0.0)
    state = process.initialize()
    steps = []
    for _ in range(3):
        before = process.get_model_weights(state).trainable
        state = process.next(state, data).state
        after = process.get_model_weights(state).trainable
        pairs = zip(before, after, strict=True)
        steps.append(np.concatenate([np.ravel(b - a) for a, b in pairs]))
    unit = plan.released_sensitivities[0]
    noises = sum(4 for n in noising if n) * plan.client_noise**2
    noises += sum(z**2 for z in plan.zone_noise) + plan.server_noise**2
    measured = np.stack(steps)
    assert measured.std() == pytest.approx(unit * math.sqrt(noises), rel=0.05)
    correlation = np.corrcoef(measured)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(measured.shape[1])


@pytest.mark.parametrize(
    "layer",
    [
        tf.keras.layers.Dropout(0.5),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Conv2D(4, 3, groups=2),
    ],
)
def test_what_cannot_be_stacked_is_named(layer):
    shape = [8, 8, 2]
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(shape), layer])
    assert not is_supported(model)
    with pytest.raises(ValueError, match=layer.name):
        StackedModel(model)


def test_chunks_fit_cache_and_memory():
    assert chunk_size(1_000) == chunk_size(159_010) == 20
    assert 1 <= chunk_size(2_156_490) < 20
    assert chunk_size(10**9) == 1
