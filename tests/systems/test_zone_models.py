"""What GFL and HFL-DP share: flat models against Keras, screening and clipping."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tff_hdp.systems.zone_models import FlatModel, clip_rows, flatten, screen_rows

DATASET = tasks.TASKS["digits"]
ARCHITECTURES = {
    "dense": DATASET.models["dnn"],
    "convolutional": tasks.TASKS["mnist"].models["cnn_small"],
}


def build(name):
    return ARCHITECTURES[name].build(**DATASET.model_shape, max_value=16)


@pytest.fixture(params=ARCHITECTURES)
def case(request):
    """A model's builder, three clients' Keras models, and a batch for each."""
    rng = np.random.default_rng(0)
    models = [build(request.param) for _ in range(3)]
    features = rng.integers(0, 17, [3, 5, 8, 8, 1]).astype(np.uint8)
    labels = rng.integers(0, 10, [3, 5]).astype(np.int32)
    mask = np.array([[1] * 5, [1, 1, 0, 1, 0], [0] * 5], np.float32)
    return (lambda: build(request.param)), models, features, labels, mask


def vectors(models):
    return np.stack([flatten([v.numpy() for v in m.weights]) for m in models])


def test_split_undoes_flatten(case):
    build_model, models, *_ = case
    flat = FlatModel(build_model)
    parts = flat.split(tf.constant(vectors(models)))
    assert flat.size == models[0].count_params()
    for i, model in enumerate(models):
        for part, weight in zip(parts, model.weights, strict=True):
            np.testing.assert_array_equal(part[i], weight)


def test_gradients_are_keras_own_client_by_client(case):
    """Also where examples are missing; a client without any gets zeros."""
    build_model, models, features, labels, mask = case
    expected, losses = np.zeros_like(vectors(models)), []
    for i, model in enumerate(models[:2]):
        rows = mask[i] > 0
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels[i][rows], model(features[i][rows])
            )
            mean = tf.reduce_mean(each)
        expected[i] = flatten(tape.gradient(mean, model.trainable_weights))
        losses.append(float(tf.reduce_sum(each)))
    # Last: a model made in a graph breaks the eager ones before it.
    flat = FlatModel(build_model)
    found, sums = flat.gradients(tf.constant(vectors(models)), features, labels, mask)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert float(sums["examples"]) == mask.sum()
    assert float(sums["loss"]) == pytest.approx(sum(losses), rel=1e-5)


def test_rows_are_clipped_one_by_one():
    rows = tf.constant([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped, count = clip_rows(rows, 1.0)
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-6)
    assert float(count) == 1.0


def test_rows_without_a_finite_norm_are_replaced_one_by_one():
    """Also where only the squares overflow; and in a plain graph, as TFF traces."""
    bad = [[1.0, np.nan], [np.inf, 0.0], [1e30, 1.0]]
    rows = np.array([[3e18, 4e18], *bad, [0.0, 0.0]], np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        screened, count = session.run(
            screen_rows(tf.constant(rows), tf.constant([7.0]))
        )
    np.testing.assert_array_equal(screened, [rows[0], *[[7.0, 7.0]] * 3, rows[4]])
    assert count == 3.0
