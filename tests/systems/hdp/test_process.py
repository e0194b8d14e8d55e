"""The zoned process against TFF's own federated averaging."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp.aggregators import zoned_model
from tff_hdp.clients.batches import client_batches, make_order
from tff_hdp.clients.client_work import (
    build_optimizer,
    client_profile,
    model_fn_from_keras,
)
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, PoissonSampling, configurations
from tff_hdp.systems.hdp.clients import single_clients
from tff_hdp.systems.hdp.config import OPTIMIZERS
from tff_hdp.systems.hdp.process import build_hdp

pytestmark = pytest.mark.usefixtures("native_context")
SPEC = (tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None], tf.int32))
SAMPLING = PoissonSampling((0.5,) * 2)


def build_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([6]),
            tf.keras.layers.Dense(5, activation="relu"),
            tf.keras.layers.Dense(3),
        ]
    )


MODEL_FN = model_fn_from_keras(build_model, SPEC)


def client(size, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=[size, 6]).astype(np.float32)
    labels = rng.integers(0, 3, size=size).astype(np.int32)
    return features, labels


def examples(size, seed, batch_size=4):
    order = make_order(
        size, epochs=2, batch_size=batch_size, rng=np.random.default_rng(1)
    )
    return client_batches(*client(size, seed), order)


@functools.cache
def hdp(plan=None, client_rate=0.1, server_rate=1.0):
    plan = plan or configurations.none(zone_sizes=(5, 5), sampling=SAMPLING)
    return build_hdp(
        clients=single_clients(
            model_fn=MODEL_FN, client_optimizer=build_optimizer("sgd", client_rate)
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", server_rate),
    )


def zoned(data, zones, weights=None, carries_noise=False):
    weights = [1.0] * len(zones) if weights is None else weights
    return [
        collections.OrderedDict(
            examples=d,
            profile=client_profile(weight=w, zone=z, carries_noise=carries_noise),
        )
        for d, z, w in zip(data, zones, weights, strict=True)
    ]


def run(process, weights, data, rounds=2):
    state = process.set_model_weights(process.initialize(), weights)
    for _ in range(rounds):
        output = process.next(state, data)
        state = output.state
    return process.get_model_weights(state).trainable, output


@pytest.fixture(scope="module")
def initial():
    tf.keras.utils.set_random_seed(3)
    weights = tff.learning.models.ModelWeights.from_model(build_model())
    return tf.nest.map_structure(lambda v: v.numpy(), weights)


def check_is_by(build, ours, initial, data):
    """Checks that weights are what an algorithm of TFF's trains."""
    theirs, _ = run(
        build(MODEL_FN, build_optimizer("sgd", 0.1), build_optimizer("sgd", 1.0)),
        initial,
        data,
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "zones", thinned([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], every=3)
)
def test_equals_tffs_unweighted_fed_avg_for_any_zoning(initial, zones):
    sizes = [4, 9, 3, 6]
    data = [examples(n, seed) for seed, n in enumerate(sizes)]
    ours, _ = run(hdp(), initial, zoned(data, zones))
    check_is_by(tff.learning.algorithms.build_unweighted_fed_avg, ours, initial, data)


def test_example_weights_equal_tffs_weighted_fed_avg(initial):
    sizes = [4, 9, 3]
    data = [examples(n, seed) for seed, n in enumerate(sizes)]
    ours, _ = run(hdp(), initial, zoned(data, [0, 1, 1], [n / 9 for n in sizes]))
    check_is_by(tff.learning.algorithms.build_weighted_fed_avg, ours, initial, data)


def test_fedsgd_is_a_step_along_the_mean_gradient(initial):
    """One full batch at client rate 1: the update is the gradient."""
    clients = [client(7, 0), client(7, 1)]
    data = [client_batches(*c, np.arange(7)[np.newaxis]) for c in clients]
    process = hdp(client_rate=1.0, server_rate=0.3)
    ours, _ = run(process, initial, zoned(data, [0, 1]), rounds=1)
    model = build_model()
    initial.assign_weights_to(model)
    features, labels = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    with tf.GradientTape() as tape:
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(
            labels, model(features)
        )
    gradients = tape.gradient(loss, model.trainable_variables)
    for got, start, gradient in zip(ours, initial.trainable, gradients, strict=True):
        np.testing.assert_allclose(got, start - 0.3 * gradient, rtol=1e-4, atol=1e-6)


def test_a_client_with_poisoned_data_is_left_out_and_counted(initial):
    features, labels = client(4, 0)
    features[2, 1] = np.nan
    poisoned = client_batches(features, labels, np.arange(4)[np.newaxis])
    data = [examples(5, 1), poisoned, examples(6, 2)]
    ours, output = run(hdp(), initial, zoned(data, [0, 0, 1]), rounds=1)
    without, _ = run(hdp(), initial, zoned(data[::2], [0, 1]), rounds=1)
    assert output.metrics["aggregator"]["rejected"] == 1
    for a, b in zip(ours, without, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_noise_reaches_the_model(initial):
    """Clients that learn nothing: what moves the model is the server's noise."""
    plan = configurations.c4(
        zone_sizes=(1, 1),
        sampling=PoissonSampling((1.0, 1.0)),
        noise_multiplier=50.0,
        clipping=Clipping(clip_norm=1e-3),
    )
    data = [examples(3, s) for s in range(2)]
    moved, _ = run(hdp(plan), initial, zoned(data, [0, 1]), rounds=1)
    difference = np.concatenate(
        [np.ravel(a - b) for a, b in zip(moved, initial.trainable, strict=True)]
    )
    # 53 coordinates of N(0, (50 * 1e-3 / 2)^2): standard error 10 %.
    assert difference.std() == pytest.approx(0.025, rel=0.4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_named_optimizer_builds(name):
    assert isinstance(build_optimizer(name, 0.1), tff.learning.optimizers.Optimizer)


def test_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="optimizer is lion; allowed: sgd"):
        build_optimizer("lion", 0.1)


def test_other_kinds_of_arguments_are_refused():
    plan = configurations.none(zone_sizes=(5, 5), sampling=SAMPLING)
    sgd = tff.learning.optimizers.build_sgdm(1.0)
    clients = single_clients(model_fn=MODEL_FN, client_optimizer=sgd)
    given = {"plan": plan, "clients": clients, "server_optimizer": sgd}
    for name in (*given, "queries", "secure_sums"):
        with pytest.raises(ValueError, match=f"^{name} is "):
            build_hdp(**given | {name: MODEL_FN})


def test_clients_of_other_kinds_are_refused():
    sgd = tff.learning.optimizers.build_sgdm(1.0)
    with pytest.raises(ValueError, match=r"^model_fn is None"):
        single_clients(model_fn=None, client_optimizer=sgd)
    with pytest.raises(ValueError, match=r"^client_optimizer is sgd"):
        single_clients(model_fn=MODEL_FN, client_optimizer="sgd")


@pytest.mark.parametrize(
    ("model_fn", "given"),
    [
        (build_model(), "Sequential"),
        (build_model, "a function to a Sequential"),
        # The profile would be trained into the model, and take its part of the clip.
        (zoned_model(MODEL_FN), "one of zoned_model"),
    ],
)
def test_models_of_other_kinds_are_refused(model_fn, given):
    sgd = tff.learning.optimizers.build_sgdm(1.0)
    said = rf"^model_fn is {given}; allowed: a funct.*\.from_keras_model"
    with pytest.raises(ArgumentError, match=said):
        single_clients(model_fn=model_fn, client_optimizer=sgd)


@pytest.mark.parametrize("made", [StackedModel.built_by, model_fn_from_keras])
def test_a_model_is_no_function_to_one(made):
    more = (SPEC,) * (made is model_fn_from_keras)
    with pytest.raises(
        ArgumentError, match=r"^build_model is Sequential; allowed: a f"
    ):
        made(build_model(), *more)


def test_a_function_to_another_model_is_named():
    with pytest.raises(
        ArgumentError, match=r"^build_model is .*; allowed: a Sequential"
    ):
        StackedModel.built_by(MODEL_FN)


def test_batches_cover_every_epoch():
    features, labels = client(7, 0)
    order = make_order(7, epochs=3, batch_size=3, rng=np.random.default_rng(0))
    batches = [x.numpy() for x, _ in client_batches(features, labels, order)]
    assert [len(x) for x in batches] == [3, 3, 1] * 3
    epochs = np.concatenate(batches).reshape(3, 7, 6)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch, 0), np.sort(features, 0))
    assert not np.array_equal(epochs[0], epochs[1])


def test_batches_are_freed(resident_megabytes):
    """A run of thousands of rounds makes a data set for every client of each."""
    features, labels = np.zeros([1000, 1000], np.float32), np.zeros(1000, np.int32)
    order = np.arange(1000, dtype=np.int32).reshape(10, 100)
    grown = []
    for _ in range(60):
        assert sum(len(y) for _, y in client_batches(features, labels, order)) == 1000
        grown.append(resident_megabytes())
    assert grown[-1] - grown[9] < 50  # 50 data sets of 4 MB
