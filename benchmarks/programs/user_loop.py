"""UDP-Alg without TFF: a loop over the users, and over the steps of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.systems.udp_hypernet.run import UdpHypernet


class UserLoop:
    """Rounds of Algorithm 1 by Keras' own model and optimizer, one user at a time.

    Of the system it shares model, data and hypernetwork.

    Args:
      system: Of which settings.
      data: The users' chunks, the same every round.
      seed: Of the initial weights.
    """

    def __init__(
        self, system: UdpHypernet, data: Sequence[tf.data.Dataset], seed: int
    ) -> None:
        self._config, self._network = system.config, system.hypernetwork
        weights = system.process.get_model_weights(system.initial_state(seed))
        self._phi = [tf.Variable(tensor) for tensor in weights["phi"]]
        self._descriptors = tf.Variable(weights["descriptors"])
        self._users = [
            tf.nest.map_structure(tf.constant, chunk.get_single_element())
            for chunk in data
        ]
        self._model = system.task.build_model()
        self._optimizer = tf.keras.optimizers.SGD(self._config.client_learning_rate)
        self._optimizer.build(self._model.trainable_variables)
        self._loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._step = tf.function(self._take_step)
        self._make = tf.function(self._network)
        self._pull_back = tf.function(self._gradients)

    def round(self) -> None:
        """Trains, pulls back, clips, averages, noises and steps."""
        config = self._config
        total = [tf.zeros_like(tensor) for tensor in self._phi]
        moved = np.zeros(self._descriptors.shape, np.float32)
        for chunk in self._users:
            user = int(chunk["user"][0])
            descriptor = self._descriptors[user]
            theta = self._make(self._phi, descriptor)
            update, own = self._pull_back(
                self._phi, descriptor, self._trained(theta, chunk)
            )
            if config.privacy == "udp_alg":
                update, _ = tf.clip_by_global_norm(update, config.clip_norm)
            total = [t + u for t, u in zip(total, update, strict=True)]
            moved[user] += own.numpy()
        expected = config.sampling_rate * len(moved)
        for tensor, summed in zip(self._phi, total, strict=True):
            mean = summed / expected
            if config.sigma:
                mean += tf.random.normal(mean.shape, stddev=config.sigma)
            tensor.assign_sub(config.server_learning_rate * mean)
        self._descriptors.assign_sub(config.descriptor_learning_rate * moved)

    def weights(self) -> list[np.ndarray]:
        """Of the hypernetwork, and the descriptors."""
        return [tensor.numpy() for tensor in [*self._phi, self._descriptors]]

    def _trained(self, theta: Sequence[tf.Tensor], chunk: Any) -> list[tf.Tensor]:
        """A user's update, initial minus trained weights."""
        variables = self._model.trainable_variables
        for variable, value in zip(variables, theta, strict=True):
            variable.assign(value)
        features, labels = chunk["features"][0], chunk["labels"][0]
        for rows in chunk["order"][0].numpy():
            batch = tf.constant(rows[rows >= 0])
            self._step(tf.gather(features, batch), tf.gather(labels, batch))
        return [a - b for a, b in zip(theta, variables, strict=True)]

    def _take_step(self, features: tf.Tensor, labels: tf.Tensor) -> None:
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss(labels, self._model(features, training=True))
        self._optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )

    def _gradients(
        self,
        phi: Sequence[tf.Tensor],
        descriptor: tf.Tensor,
        update: Sequence[tf.Tensor],
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The update in the coordinates of phi and of v."""
        with tf.GradientTape() as tape:
            tape.watch([phi, descriptor])
            theta = self._network(phi, descriptor)
        return tape.gradient(theta, (phi, descriptor), output_gradients=update)
