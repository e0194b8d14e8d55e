"""An attacker's own copy of what a client does, to be differentiated.

In float64, with a victim axis throughout: victims' inputs differ, their first weights
do not. Local steps are unrolled, and the clip is part of it.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tff_hdp.attacks.victims import Target


class Forward:
    """From guessed examples to the records that clients would have sent.

    Args:
      target: The model and the clients' training.
      clip_norm: S; None where nobody clips.
    """

    def __init__(self, target: Target, clip_norm: float | None) -> None:
        self._target, self._clip_norm = target, clip_norm
        self._initial = [tf.constant(w, tf.float64) for w in target.weights]
        self.image_shape = target.features.shape[1:]
        self.num_classes = target.num_classes

    @property
    def compiles(self) -> bool:
        """Whether XLA pays: it does but for convolutions."""
        return not self._target.model.convolves

    def records(self, images: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """What clients send, clipped, each of one example.

        Args:
          images: [V, ...] in [0, 1].
          targets: [V, classes], probabilities.

        Returns:
          [V, d] float64.
        """
        victims = images.shape[0]
        x = tf.expand_dims(images * self._target.max_value, 1)
        start = [
            tf.tile(w[tf.newaxis], [victims] + [1] * len(w.shape))
            for w in self._initial
        ]
        weights = start
        for _ in range(self._target.local_steps):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                logits = self._target.model(weights, x)[:, 0]
                losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
                loss = tf.reduce_sum(losses)
            gradients = tape.gradient(loss, weights)
            rate = self._target.learning_rate
            weights = [w - rate * g for w, g in zip(weights, gradients, strict=True)]
        flat = tf.concat(
            [
                tf.reshape(a - b, [victims, -1])
                for a, b in zip(start, weights, strict=True)
            ],
            1,
        )
        if self._clip_norm is None:
            return flat
        norms = tf.sqrt(tf.reduce_sum(flat**2, 1, keepdims=True) + 1e-60)
        return flat * tf.minimum(tf.ones_like(norms), self._clip_norm / norms)

    def sums(self, images: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Sums over m clients: [V, m, ...] and [V, m, classes] to [V, d]."""
        victims, m = images.shape[:2]
        merged = tf.reshape(images, [victims * m, *self.image_shape])
        records = self.records(merged, tf.reshape(targets, [victims * m, -1]))
        return tf.reduce_sum(tf.reshape(records, [victims, m, -1]), 1)


def squared_error(found: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
    """|found - seen|^2 over |seen|^2, [V] (Zhu et al. 2019)."""
    return tf.reduce_sum((found - seen) ** 2, 1) / tf.reduce_sum(seen**2, 1)


def cosine_distance(found: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
    """1 - cosine, [V] (Geiping et al. 2020)."""
    product = tf.reduce_sum(found * seen, 1)
    return 1 - product / (tf.norm(found, axis=1) * tf.norm(seen, axis=1) + 1e-60)


def total_variation(images: tf.Tensor) -> tf.Tensor:
    """Mean absolute difference of neighbouring pixels, [V], of [V, m, H, W, c]."""
    rows = tf.abs(images[:, :, 1:] - images[:, :, :-1])
    columns = tf.abs(images[:, :, :, 1:] - images[:, :, :, :-1])
    axes = [1, 2, 3, 4]
    return tf.reduce_mean(rows, axes) + tf.reduce_mean(columns, axes)


def with_gradient(
    value: Callable[..., tf.Tensor], *, compiles: bool
) -> Callable[..., tuple[np.ndarray, list[np.ndarray]]]:
    """Compiles a function to values [V], and to them and its gradients.

    Args:
      value: Of tensors whose first axis is the victims'; its last argument is what
        they are held against, and has no gradient.
      compiles: Whether to use XLA.
    """

    @tf.function(jit_compile=compiles, reduce_retracing=True, autograph=False)
    def evaluate(*arguments: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        variables = list(arguments[:-1])
        with tf.GradientTape() as tape:
            tape.watch(variables)
            values = value(*arguments)
            total = tf.reduce_sum(values)
        return values, tape.gradient(total, variables)

    return evaluate
