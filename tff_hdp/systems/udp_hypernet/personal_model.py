"""One user's model as a function of its weights, and the test of every user's own."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A user's model as a function of its weights.

    Attributes:
      functional: TFF's functional model, whose loss is the mean cross-entropy.
      build_model: Returns a new Keras model of that kind.
    """

    functional: tff.learning.models.FunctionalModel
    build_model: Callable[[], tf.keras.Model]

    @classmethod
    def from_keras(
        cls,
        build_model: Callable[[], tf.keras.Model],
        input_spec: tuple[tf.TensorSpec, tf.TensorSpec],
    ) -> "LocalModel":
        """From a Keras classifier that outputs logits.

        Args:
          build_model: Returns a new, uncompiled Keras model; no batch
            normalisation, since all its weights must be trainable.
          input_spec: Specs of a batch (features, labels).
        """
        functional = tff.learning.models.functional_model_from_keras(
            build_model(),
            loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=input_spec,
        )
        return cls(functional=functional, build_model=build_model)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weight tensors, in Keras' order."""
        return tuple(w.shape for w in self.functional.initial_weights[0])

    def logits(self, theta: Any, features: tf.Tensor) -> tf.Tensor:
        """Logits [batch, classes] of the model with weights `theta`."""
        return self.functional.predict_on_batch((tuple(theta), ()), features)

    def train(
        self, theta: list[tf.Tensor], batches: tf.data.Dataset, learning_rate: float
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """K local SGD steps, one per batch (lines 9 and 10).

        Args:
          theta: Weights to start from.
          batches: K batches (features, labels).
          learning_rate: eta.

        Returns:
          The trained weights, the sum of the batches' mean losses in nats and the
          number of batches, both float32 [].
        """

        def step(state: Any, batch: Any) -> Any:
            theta, loss_sum, count = state
            features, labels = batch
            with tf.GradientTape() as tape:
                tape.watch(theta)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, self.logits(theta, features)
                )
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, theta)
            theta = tuple(
                w - learning_rate * g for w, g in zip(theta, gradients, strict=True)
            )
            return theta, loss_sum + loss, count + 1.0

        zero = (tuple(theta), tf.constant(0.0), tf.constant(0.0))
        trained, loss_sum, count = batches.reduce(zero, step)
        return list(trained), loss_sum, count


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
    *, model: LocalModel, hypernetwork: Hypernetwork, tests: PersonalTests
) -> Callable[[Any, Any], tuple[np.ndarray, np.ndarray]]:
    """Returns a function that tests every user's model on the user's rows.

    Args:
      model: The local model.
      hypernetwork: h.
      tests: Which rows are whose.

    Returns:
      A function from phi and the table of descriptors [users, descriptor_dim] to
      how many examples each user's model classifies rightly, int64 [users], and
      its summed cross-entropy in nats, float32 [users].
    """
    features, labels = tf.constant(tests.features), tf.constant(tests.labels)
    starts, sizes = tf.constant(tests.starts), tf.constant(tests.sizes)
    network = model.build_model()

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
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
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
