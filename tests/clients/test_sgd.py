"""Gradients of a stack against Keras' own, client by client."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tff_hdp.clients.sgd import full_gradients
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
