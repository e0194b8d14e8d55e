"""The test of every user's own model on the user's own examples."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.clients.updates import cross_entropy
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class PersonalTests:
    """Test examples stored together, a run of rows for every user.

    Attributes:
      features: [N, ...].
      labels: [N] int32.
      starts: [users] int64, where each user's rows begin.
      sizes: [users] int64, how many they are; users may share rows.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def build_personal_evaluation(
    *,
    build_model: Callable[[], tf.keras.Model],
    hypernetwork: Hypernetwork,
    tests: PersonalTests,
) -> Callable[[Any, Any], tuple[np.ndarray, np.ndarray]]:
    """Returns a function that tests every user's model on the user's rows.

    Args:
      build_model: Returns a new local model.
      hypernetwork: h.
      tests: Which rows are whose.

    Returns:
      A function from phi and the table of descriptors [users, descriptor_dim] to
      how many examples each user's model classifies rightly, int64 [users], and
      its summed cross-entropy in nats, float32 [users].
    """
    features, labels = tf.constant(tests.features), tf.constant(tests.labels)
    starts, sizes = tf.constant(tests.starts), tf.constant(tests.sizes)
    network = build_model()

    @tf.function
    def test_all(phi: Any, descriptors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def test_one(args: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
            descriptor, start, size = args
            theta = hypernetwork(phi, descriptor)
            for variable, value in zip(network.trainable_weights, theta, strict=True):
                variable.assign(value)
            logits = network(features[start : start + size], training=False)
            y = labels[start : start + size]
            hits = tf.equal(tf.argmax(logits, -1, tf.int32), y)
            losses = cross_entropy(y, logits)
            return tf.math.count_nonzero(hits), tf.reduce_sum(losses)

        return tf.map_fn(
            test_one,
            (descriptors, starts, sizes),
            fn_output_signature=(tf.int64, tf.float32),
            parallel_iterations=1,  # the users take turns in one model's variables
        )

    def evaluate(phi: Any, descriptors: Any) -> tuple[np.ndarray, np.ndarray]:
        right, loss = test_all(
            [tf.convert_to_tensor(p) for p in phi], tf.convert_to_tensor(descriptors)
        )
        return right.numpy(), loss.numpy()

    return evaluate
