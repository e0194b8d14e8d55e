"""Exact training of a first dense layer in the span of a client's examples.

Gradient steps keep the kernel of a dense layer that reads the examples X (N x d)
at W = W_0 + X^T A, where A (N x h) gathers what the loss's gradients in the
layer's outputs ask for. Its products with a batch are then

    X_b W = X_b W_0 + (X_b X^T) A,

so that with N well below d a step costs N instead of d, and X^T A is formed once, at
the end.
"""

from collections.abc import Sequence

import tensorflow as tf

from tff_hdp.clients.sgd import COPIES, Batch, SgdRule, SparseRows
from tff_hdp.clients.stacked_model import StackedModel


def applies(model: StackedModel, rule: SgdRule) -> bool:
    """Whether the model's first kernel can be written as W_0 + X^T A.

    Momentum and a proximal term stay in the span; a mask leaves it.
    """
    return model.reads_examples_densely and not (rule.mask and rule.mask[0] is not None)


def pays(kernel: tf.Tensor, features: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Whether there is less to multiply this way, and no more to hold; bool [].

    Args:
      kernel: W_0, [d, h].
      features: [C, N, ...].
      order: [C, steps, B].
    """
    d, h = (float(n) for n in kernel.shape)
    n = tf.cast(tf.shape(features)[1], tf.float32)
    seen = tf.cast(tf.reduce_prod(tf.shape(order)[1:]), tf.float32)
    # Examples times W_0 and the final X^T A, X X^T, and a forward pass a step.
    ours = 2.0 * n * d * h + n * n * d + seen * n * h
    fits = n * (d + n) <= COPIES * d * h  # X and X X^T for copies of the kernel
    return tf.logical_and(fits, ours < 2.0 * seen * d * h)


class GramProblem:
    """The loss as a function of A and of the model's other weights.

    Args:
      model: The model, stacked; see `applies`.
      initial: The weights sent, each without the client axis.
      features: [C, N, ...] as stored.

    Attributes:
      examples: X, what the first dense layer makes of the features, [C, N, d].
      gram: X X^T, [C, N, N].
      start: A of zeros and the other weights, each [1, ...].
    """

    def __init__(
        self, model: StackedModel, initial: Sequence[tf.Tensor], features: tf.Tensor
    ) -> None:
        kernel, *others = initial
        self._model = model
        self.examples = model.to_first_dense(features, kernel.dtype)
        self.gram = tf.matmul(self.examples, self.examples, transpose_b=True)
        flat = tf.reshape(self.examples, [-1, kernel.shape[0]])
        shape = [*tf.unstack(tf.shape(self.examples)[:2]), kernel.shape[1]]
        self._products = tf.reshape(tf.matmul(flat, kernel), shape)
        self._clients = tf.range(tf.cast(shape[0], tf.int64))[:, tf.newaxis]
        self.start = [tf.zeros([1, *shape[1:]], kernel.dtype)]
        self.start += [w[tf.newaxis] for w in others]

    def gradients(
        self, weights: Sequence[tf.Tensor], batch: Batch
    ) -> tuple[list[tf.Tensor | SparseRows], tf.Tensor, tf.Tensor]:
        """See `Problem`."""
        coordinates, *others = weights
        own = tf.gather(self.gram, batch.rows, batch_dims=1)
        products = tf.gather(self._products, batch.rows, batch_dims=1)
        products += tf.matmul(own, coordinates)
        with tf.GradientTape() as tape:
            tape.watch([products, *others])
            logits = self._model.from_first_dense(others, products)
            loss, summed = batch.loss(logits)
        first, *rest = tape.gradient(loss, [products, *others])
        clients = tf.broadcast_to(self._clients, tf.shape(batch.rows))
        places = tf.stack([clients, batch.rows], -1)
        return [SparseRows(places, first), *rest], logits, summed

    def kernel_update(self, coordinates: tf.Tensor) -> tf.Tensor:
        """The updates [C, d, h] of the first kernel that trained A [C, N, h] amount to.

        It is formed, and clipped by its own norm: the square that A and X X^T give
        may be anything in float32 where X^T A cancels, and takes as long to find.
        """
        return tf.matmul(self.examples, -coordinates, transpose_a=True)
