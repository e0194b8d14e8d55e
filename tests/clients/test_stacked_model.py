"""Clients trained in stacks against each trained alone."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests.thinning import thinned
from tff_hdp.clients import deferred
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel, is_supported
from tff_hdp.clients.training import train_one_by_one, train_stack
from tff_hdp.clients.updates import weighted_sums
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime import environment

# In float64 what is left of rounding is far below any mistake.
EXACT = {"rtol": 1e-8, "atol": 1e-10}
SIZES = (9, 4, 1, 12)
# By what a model is made for: those of data sets of one shape differ in their last
# layer's width alone.
ARCHITECTURES = {
    (name, dataset.input_shape): (dataset, architecture)
    for dataset in tasks.TASKS.values()
    for name, architecture in dataset.models.items()
    # What takes too long, cannot be stacked, or is the model of another set.
    if name not in ("cnn_large", "gru") and dataset.name != "shakespeare"
}


RULES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "proximal and mask": {"proximal": 0.5, "mask": True},
    "moving centre": {"proximal": 0.5, "centre_every": 3},
}


@pytest.mark.parametrize(
    ("which", "rule"), thinned(list(ARCHITECTURES), list(RULES), every=8)
)
def test_a_stack_trains_like_each_client_alone(
    float64, make_clients, assert_trains_like_each_alone, which, rule
):
    """In float64: float32 ties in max pooling make any two paths part ways."""
    dataset, architecture = ARCHITECTURES[which]
    shape, classes = dataset.input_shape, dataset.num_classes
    tf.keras.utils.set_random_seed(0)
    model = architecture.build(
        input_shape=shape,
        num_classes=classes,
        max_value=dataset.max_value,
        min_value=dataset.min_value,
    )
    high = classes if dataset.max_value is None else int(np.max(dataset.max_value)) + 1
    examples, order = make_clients(shape, SIZES, high=high, classes=classes)
    options = dict(RULES[rule])
    if "mask" in options:
        rng = np.random.default_rng(2)
        weights = model.trainable_variables
        options["mask"] = [rng.random(w.shape) < 0.3 for w in weights]
        options["mask"][1] = None
    sums = assert_trains_like_each_alone(model, examples, order, **EXACT, **options)
    assert float(sums["examples"]) == 2 * sum(SIZES)


@pytest.mark.parametrize("momentum", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_what_gpus_compute_is_the_same(monkeypatch, make_clients, as_chunk, momentum):
    """Convolutions in groups, and clients that stand still; on any device."""
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            layers.InputLayer([8, 9, 2]),
            layers.Rescaling(1 / 255),
            layers.Conv2D(3, 3, padding="same", activation="tanh"),
            layers.MaxPooling2D(),
            layers.Conv2D(4, (3, 2), use_bias=False, activation="tanh"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    examples, order = make_clients((8, 9, 2), SIZES)
    assert len({len(steps) for steps in order}) > 1
    sent = [tf.constant(w) for w in model.trainable_variables]
    rule = SgdRule(learning_rate=0.1, momentum=momentum)
    found = []
    for gpus in (0, 1):
        monkeypatch.setattr(environment, "gpus", lambda gpus=gpus: gpus)
        chunk = as_chunk(examples, order)
        found.append(train_stack(StackedModel(model), sent, chunk, rule))
    (alone, sums), (side_by_side, same) = found
    for expected, updates in zip(alone, side_by_side, strict=True):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(updates, expected, rtol=1e-3, atol=1e-6)
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-4), sums, same
    )


@pytest.mark.parametrize(
    ("size_large", "momentum"),
    thinned([(8, 10), (8, 2**20), (11, 2**20)], [0.9, 0.0], every=4),
)
def test_clients_one_by_one_add_up_to_each_alone(
    monkeypatch, float64, make_clients, as_chunk, train_alone, size_large, momentum
):
    """Convolutions and poolings of even and odd images, with blank examples.

    A dense kernel that is large is written to every few steps alone.
    """
    size, large = size_large
    monkeypatch.setattr(deferred, "_LARGE", large)
    kept = mock.Mock(wraps=deferred.descend_deferred)
    monkeypatch.setattr(deferred, "descend_deferred", kept)
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            layers.InputLayer([size, size, 2]),
            layers.Rescaling(1 / 255),
            layers.Conv2D(3, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(4, 3, use_bias=False, activation="tanh"),
            layers.MaxPooling2D(2, strides=1),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    initial = [v.numpy() for v in model.trainable_variables]
    initial[1] += 0.1  # so that blank pixels tie above zero
    examples, order = make_clients((size, size, 2), SIZES)
    for features, _ in examples:
        features[::2, : size // 2] = 0
    stacked = StackedModel(model)
    assert stacked.convolves
    options = {"rate": 0.1, "momentum": momentum}
    alone = [
        train_alone(model, initial, *client, **options)
        for client in zip(examples, order, strict=True)
    ]
    seen = []

    def then(updates, part):
        seen.append(part["weight"].shape)
        factors = [part["weight"][tf.newaxis]] * len(updates)
        return [total[0] for total in weighted_sums(updates, factors)]

    weights = [0.25, 0.5, 1.0, 0.75]
    chunk = as_chunk(examples, order, weights=weights)
    chunk["weight"] = tf.cast(chunk["weight"], tf.float64)
    rule = SgdRule(learning_rate=0.1, momentum=momentum)
    sent = [tf.constant(w) for w in initial]
    found, sums = train_one_by_one(stacked, sent, chunk, rule, then=then)
    assert seen == [[1]] * len(SIZES)
    # In TFF, which rewrites nothing, a chunk's type leaves steps and batch size open.
    train = tf.function(
        lambda order: train_one_by_one(
            stacked, sent, chunk | {"order": order}, rule, then=then
        ),
        input_signature=[tf.TensorSpec([None, None, None], tf.int32)],
        autograph=False,
    )
    for eager, traced in zip(found, train(chunk["order"])[0], strict=True):
        np.testing.assert_allclose(traced, eager, **EXACT)
    assert kept.called == (large < 2**20 and not momentum)
    assert order[0].shape[0] % deferred.STEPS
    for i, total in enumerate(found):
        pairs = zip(weights, alone, strict=True)
        expected = sum(w * updates[i] for w, updates in pairs)
        np.testing.assert_allclose(total, expected, **EXACT)
    assert float(sums["examples"]) == 2 * sum(SIZES)


def images(*layers):
    ends = tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)
    return tf.keras.Sequential([tf.keras.layers.InputLayer([7, 6, 2]), *layers, *ends])


@pytest.mark.parametrize(
    "layers",
    [
        lambda k: [k.Rescaling([2.0, -3.0], offset=[0.5, 1.0])],
        lambda k: [k.Conv2D(3, 3, strides=2, activation="relu")],
        lambda k: [k.Conv2D(3, 3, padding="same", dilation_rate=2)],
        lambda k: [k.Conv2D(3, 2, activation="relu"), k.MaxPooling2D(3, 1, "same")],
        lambda k: [k.Conv2D(3, 2), k.MaxPooling2D(2, 1), k.MaxPooling2D(2, 2, "same")],
        # Neither rises with each of its inputs: pooled after, not before.
        lambda k: [k.Conv2D(3, 2, activation="softmax"), k.MaxPooling2D()],
        lambda k: [k.Conv2D(3, 2, activation="swish"), k.MaxPooling2D()],
        lambda k: [k.Conv2D(3, 2, activation=tf.nn.relu), k.Activation(tf.nn.softmax)],
        lambda k: [k.Conv2D(3, 2), k.ReLU(1.0, 0.1, 0.2), k.MaxPooling2D((3, 1))],
        lambda k: [k.Reshape([21, 4]), k.ZeroPadding1D((1, 2)), k.Activation("tanh")],
    ],
)
def test_a_stack_computes_what_keras_does_for_each_client(float64, layers):
    models = [images(*layers(tf.keras.layers)) for _ in range(3)]
    features = np.random.default_rng(0).normal(size=[3, 4, 7, 6, 2])
    weights = [tf.stack(w) for w in zip(*(m.weights for m in models), strict=True)]
    stacked = StackedModel(models[0])
    kinds = list(map(type, models[0].layers))
    assert stacked.convolves == (tf.keras.layers.Conv2D in kinds)
    found = stacked(weights, tf.constant(features))
    for model, own, logits in zip(models, features, found, strict=True):
        np.testing.assert_allclose(logits, model(own), **EXACT)


def test_a_stack_outlives_models_that_are_made_in_graphs():
    """Keras called the layers of the first one invalid then."""

    def build():
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [
                layers.InputLayer([4], dtype=tf.uint8),
                layers.Rescaling(1 / 255),
                layers.Dense(2),
            ]
        )

    model = build()
    stacked = StackedModel(model)
    features = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    expected = model.predict(features.reshape(6, 4), verbose=0).reshape(2, 3, 2)
    weights = [tf.stack([w, w]) for w in model.trainable_weights]
    StackedModel.built_by(build)
    np.testing.assert_allclose(stacked(weights, features), expected, rtol=1e-5)


def test_steps_are_deferred_where_they_are_by_the_gradient_alone(monkeypatch):
    monkeypatch.setattr(deferred, "_LARGE", 10)
    model = StackedModel(images(tf.keras.layers.Conv2D(3, 2)))
    one, two = tf.zeros([1, 5, 7, 6, 2]), tf.zeros([2, 5, 7, 6, 2])
    plain = SgdRule(learning_rate=0.1)
    assert deferred.applies(model, plain, one)
    assert not deferred.applies(model, plain, two)
    assert not deferred.applies(StackedModel(images()), plain, one)
    mask = [np.ones(shape, bool) for shape in model.shapes]
    for option in ({"momentum": 0.5}, {"proximal": 0.5}, {"mask": mask}):
        assert not deferred.applies(model, SgdRule(learning_rate=0.1, **option), one)
    monkeypatch.setattr(deferred, "_LARGE", 2**20)
    assert not deferred.applies(model, plain, one)


def test_what_the_mask_holds_does_not_move_at_all(make_clients, as_chunk):
    """Not even where the gradient is not a number."""
    layers = [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    initial = [v.numpy() for v in model.trainable_variables]
    initial[0][0, 0] = np.nan
    mask = [np.zeros(w.shape, bool) for w in initial]
    updates, _ = train_stack(
        StackedModel(model),
        [tf.constant(w) for w in initial],
        as_chunk(*make_clients((2,), SIZES, classes=3)),
        SgdRule(learning_rate=0.1, momentum=0.9, proximal=0.1, mask=mask),
    )
    for update in updates[1:]:
        assert not update.numpy().any()


class Doubled(tf.keras.layers.Flatten):
    """A user's own kind of a layer that can be stacked."""

    def call(self, inputs):
        return 2 * super().call(inputs)


@pytest.mark.parametrize(
    "layer",
    [
        tf.keras.layers.Dropout(0.5),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Conv2D(4, 3, groups=2),
        tf.keras.layers.Flatten(data_format="channels_first"),
        tf.keras.layers.MaxPooling2D(data_format="channels_first"),
        tf.keras.layers.Dense(3),  # of every pixel
        # Of all clients' numbers together, or with weights of their own.
        tf.keras.layers.Conv2D(4, 3, activation=tf.nn.l2_normalize),
        tf.keras.layers.Activation(lambda x: x - tf.reduce_max(x, 0)),
        tf.keras.layers.Conv2D(4, 3, activation=tf.keras.layers.PReLU()),
        tf.keras.layers.Activation(tf.keras.layers.PReLU()),
        Doubled(),
    ],
)
def test_what_cannot_be_stacked_is_named(layer):
    shape = [8, 8, 2]
    _assert_is_not_stacked(layer, shape)


class DoubledLogits(tf.keras.Sequential):
    """A user's own kind of a model of layers that can be stacked."""

    def call(self, inputs):
        return 2 * super().call(inputs)


def test_a_users_own_kind_of_a_sequential_is_not_stacked():
    layers = [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
    assert is_supported(tf.keras.Sequential(layers))
    assert not is_supported(DoubledLogits(layers))


@pytest.mark.parametrize(
    "option", ["kernel_regularizer", "bias_regularizer", "activity_regularizer"]
)
def test_losses_of_layers_are_no_stacks(option):
    """TFF's own training minimises them; a stack sees logits and labels alone."""
    layers = [
        tf.keras.layers.InputLayer([2]),
        tf.keras.layers.Dense(3, **{option: "l2"}),
    ]
    model = tf.keras.Sequential(layers)
    assert not is_supported(model)
    with pytest.raises(ArgumentError, match=r"model.losses is 1 of layers; allowed: n"):
        StackedModel(model)


def test_a_recurrent_model_trains_client_by_client():
    dataset = tasks.TASKS["pages"]
    model = dataset.models["gru"].build(**dataset.model_shape)
    assert not is_supported(model)
    with pytest.raises(ArgumentError, match=r"type RNN; allowed: .*Embedding"):
        StackedModel(model)


def _assert_is_not_stacked(layer, shape):
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(shape), layer])
    assert not is_supported(model)
    with pytest.raises(ValueError, match=layer.name):
        StackedModel(model)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"mask": [None]}, "mask is 1 tensors; allowed: 2"),
        ({"mask": [np.ones([3], bool), None]}, r"mask\[0\].shape is \(3,\)"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"proximal": -0.1}, "proximal is -0.1"),
        ({"centre_every": 0}, "centre_every is 0"),
        ({"centre_every": 1.5}, "centre_every is 1.5"),
        ({"learning_rate": None}, "learning_rate is None"),
        ({"momentum": "0.9"}, "momentum is '0.9'"),
    ],
)
def test_wrong_options_are_named(make_clients, as_chunk, option, message):
    layers = [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    initial = [tf.constant(v) for v in model.trainable_variables]
    chunk = as_chunk(*make_clients((2,), SIZES, classes=3))
    with pytest.raises(ArgumentError, match=message):
        rule = SgdRule(**{"learning_rate": 0.1} | option)
        train_stack(StackedModel(model), initial, chunk, rule)
