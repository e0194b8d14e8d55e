"""The attacker's copy of a client is that client, and its gradients are right."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.attacks.analytic import infer_labels
from tff_hdp.attacks.forward import (
    Forward,
    cosine_distance,
    squared_error,
    total_variation,
    with_gradient,
)


@pytest.mark.parametrize("model", ["dnn", "cnn"])
@pytest.mark.parametrize("steps", [1, 4])
def test_unrolled_update_is_the_clients_own(target, victims, model, steps):
    attacked = target(model, steps)
    images, labels, updates = victims(attacked, 3)
    found = Forward(attacked, None).records(
        tf.constant(images), tf.constant(np.eye(10)[labels])
    )
    np.testing.assert_allclose(found, updates, atol=1e-5 * np.abs(updates).max())


def test_clip_is_in_the_forward_model(target, victims):
    images, labels, updates = victims(target(), 6)
    norms = np.linalg.norm(updates, axis=1)
    clip = float(np.median(norms))
    found = Forward(target(), clip).records(
        tf.constant(images), tf.constant(np.eye(10)[labels])
    )
    np.testing.assert_allclose(
        np.linalg.norm(found, axis=1), np.minimum(norms, clip), rtol=1e-5
    )
    both = Forward(target(), clip).sums(
        tf.constant(images.reshape(3, 2, 8, 8, 1)),
        tf.constant(np.eye(10)[labels].reshape(3, 2, 10)),
    )
    np.testing.assert_allclose(both, found.numpy().reshape(3, 2, -1).sum(1))


@pytest.mark.parametrize("objective", [squared_error, cosine_distance])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_against_finite_differences(target, victims, objective, steps):
    attacked = target("dnn", steps)
    _, labels, updates = victims(attacked, 1)
    forward = Forward(attacked, float(np.linalg.norm(updates)) / 2)

    def value(images, targets, seen):
        found = forward.sums(images, targets)
        return objective(found, seen) + 0.1 * total_variation(images)

    evaluate = with_gradient(value, compiles=False)
    rng = np.random.default_rng(0)
    images = rng.uniform(0.2, 0.8, size=(1, 1, 8, 8, 1))
    held = tf.constant(np.eye(10)[labels][:, None]), tf.constant(updates)
    _, (gradient, _) = evaluate(tf.constant(images), *held)
    for _ in range(3):
        way = rng.normal(size=images.shape)
        h = 1e-6 / np.linalg.norm(way)
        up, down = (
            evaluate(tf.constant(images + s * h * way), *held)[0][0] for s in (1, -1)
        )
        slope = float(up - down) / (2 * h)
        assert slope == pytest.approx(float(np.sum(gradient * way)), rel=1e-4)


def test_labels_of_one_and_of_several(target, victims):
    _, labels, updates = victims(target(), 60)
    assert np.all(infer_labels(target(), updates)[:, 0] == labels)
    sums = updates.reshape(20, 3, -1).sum(1)
    found = infer_labels(target(), sums, 3)
    right = np.sort(labels.reshape(20, 3), 1)
    assert np.mean(found == right) > 0.75
