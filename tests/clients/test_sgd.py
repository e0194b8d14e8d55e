"""Gradients of a stack against Keras' own, client by client."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tff_hdp.clients.gram import GramProblem
from tff_hdp.clients.sgd import SgdRule, WeightProblem, descend, full_gradients
from tff_hdp.clients.stacked_model import StackedModel

DATASET = tasks.TASKS["digits"]
ARCHITECTURES = {
    "dense": DATASET.models["dnn"],
    "convolutional": tasks.TASKS["mnist"].models["cnn_small"],
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_are_keras_own_client_by_client(name):
    rng = np.random.default_rng(0)
    build = ARCHITECTURES[name].build
    models = [build(**DATASET.model_shape, max_value=16) for _ in range(3)]
    features = rng.integers(0, 17, [3, 5, 8, 8, 1]).astype(np.uint8)
    labels = rng.integers(0, 10, [3, 5]).astype(np.int32)
    expected, losses, hits = [], [], 0
    for model, x, y in zip(models, features, labels, strict=True):
        with tf.GradientTape() as tape:
            logits = model(x)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            mean = tf.reduce_mean(each)
        expected.append(tape.gradient(mean, model.trainable_weights))
        losses.append(float(tf.reduce_sum(each)))
        hits += np.sum(np.argmax(logits, -1) == y)
    weights = [
        tf.stack(tensors)
        for tensors in zip(*(m.trainable_weights for m in models), strict=True)
    ]
    found, sums = full_gradients(StackedModel(models[0]), weights, features, labels)
    for stacked, alone in zip(found, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(stacked, tf.stack(alone), rtol=1e-4, atol=1e-6)
    assert float(sums["examples"]) == labels.size
    assert float(sums["correct"]) == hits
    assert float(sums["loss"]) == pytest.approx(sum(losses), rel=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("problem", [WeightProblem, GramProblem])
def test_others_orders_do_not_matter_where_a_clients_model_overflows(problem, momentum):
    """Else who takes part decides whether another's update is rejected."""
    layers, rng = tf.keras.layers, np.random.default_rng(0)
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            layers.InputLayer([6]),
            layers.Dense(5, activation="relu"),
            layers.Dense(5, activation="relu"),
            layers.Dense(3),
        ]
    )
    features = np.float32([0.01, 1e13])[:, None, None] * rng.normal(size=[2, 3, 6])
    # The first client has an example on which the model overflows, which it leaves
    # out; the second's model overflows after its one step.
    features[0, 0] = 1e38
    features, labels = np.float32(features), np.int32([[0, 1, 2], [2, 0, 1]])
    rule = SgdRule(learning_rate=0.1, momentum=momentum)
    initial = [tf.constant(w) for w in model.trainable_weights]

    def trained(clients, order):
        given = StackedModel(model), initial, tf.constant(features[clients])
        return descend(problem(*given), rule, order, tf.constant(labels[clients]))

    wide = [[[1, 2, -1], [-1] * 3], [[0, 1, 2], [-1] * 3]]
    together, sums = trained(slice(0, 2), tf.constant(wide))
    assert np.isfinite(sums["loss"])
    for i, order in enumerate([[1, 2], [0, 1, 2]]):
        alone, _ = trained(slice(i, i + 1), tf.constant([[order]]))
        for found, expected in zip(together, alone, strict=True):
            assert np.all(np.isfinite(expected))
            # Of the second client's gradients the float32 holds a few digits.
            scale = np.abs(expected).max()
            own = found[i, : expected.shape[1]]
            np.testing.assert_allclose(own, expected[0], atol=1e-4 * scale)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("problem", [WeightProblem, GramProblem])
def test_a_step_without_examples_is_none(problem, momentum):
    """Between others too: who stands still keeps its velocity."""
    layers = [tf.keras.layers.InputLayer([4]), tf.keras.layers.Dense(3)]
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(layers)
    features = np.random.default_rng(0).normal(size=[2, 3, 4]).astype(np.float32)
    initial = [tf.constant(w) for w in model.trainable_weights]
    given = StackedModel(model), initial, tf.constant(features)
    rule = SgdRule(learning_rate=0.1, momentum=momentum)
    none, own = [-1, -1], [[0, 1], [2, 0], [1, 2]]
    other = [[0, 1], [1, 2], [2, 0], [0, 2]]
    (between, _), (after, _) = (
        descend(
            problem(*given),
            rule,
            tf.constant([order, other]),
            tf.zeros([2, 3], tf.int32),
        )
        for order in ([own[0], none, *own[1:]], [*own, none])
    )
    for one, two in zip(between, after, strict=True):
        assert np.any(one[0])
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_a_client_that_asks_for_a_row_beyond_its_examples_spoils_its_own_alone():
    layers = [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    initial = [tf.constant(w) for w in model.trainable_weights]
    problem = WeightProblem(StackedModel(model), initial, tf.ones([2, 4, 2]))
    order = tf.constant([[[0, 4], [1, 2]], [[0, 3], [1, 2]]])
    rule = SgdRule(learning_rate=0.1)
    trained, _ = descend(problem, rule, order, tf.zeros([2, 4], tf.int32))
    for weight in trained:
        assert np.all(np.isnan(weight[0])) and np.all(np.isfinite(weight[1]))
