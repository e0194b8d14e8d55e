"""Steps of a large dense kernel, written into it a few at a time.

A step of SGD moves a dense layer's kernel W by X^T A of its batch: X [B, d] went into
the layer, and A [B, h] is what the loss's gradient in its product asks for. Where W
does not stay in the cache and B is small, forming that and taking it from W is mostly
reading and writing memory. So the rows of a few steps are kept beside W_0, a product is

    X_b W = X_b W_0 + (X_b X^T) A,

and W_0 + X^T A is formed once for all of them.
"""

from collections.abc import Sequence

import tensorflow as tf

from tff_hdp.clients.sgd import SUMS, Batch, SgdRule, SparseRows, descend, outlined
from tff_hdp.clients.stacked_model import StackedModel

# More rows make every product dearer, fewer make W be written more often.
STEPS = 5
# Numbers of a kernel that no core's own cache holds.
_LARGE = 2**20


def applies(model: StackedModel, rule: SgdRule, features: tf.Tensor) -> bool:
    """Whether there is such a kernel, and its steps are by the gradient alone.

    For one client at a time: the weights of several are not in the cache anyway.
    """
    plain = not (rule.momentum or rule.proximal or rule.mask)
    return plain and features.shape[0] == 1 and _place(model) is not None


def descend_deferred(
    model: StackedModel,
    initial: Sequence[tf.Tensor],
    features: tf.Tensor,
    rule: SgdRule,
    order: tf.Tensor,
    labels: tf.Tensor,
) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """As `sgd.descend` of a `WeightProblem`, for one client; see `applies`.

    Args:
      model: The model, stacked.
      initial: The weights sent, each without the client axis.
      features: [1, N, ...] as stored.
      rule: How the client descends.
      order: [1, steps, B].
      labels: [1, N].

    Returns:
      As `sgd.descend`.
    """

    def few_steps(t: tf.Tensor, weights: list[tf.Tensor], sums: dict) -> tuple:
        part = order[:, t : t + STEPS]
        problem = DeferredProblem(model, weights, features, tf.shape(order)[2])
        trained, more = descend(problem, rule, part, labels)
        sums = tf.nest.map_structure(tf.add, sums, more)
        return t + STEPS, problem.weights(trained), sums

    steps = tf.shape(order)[1]
    none = {name: tf.constant(0.0) for name in SUMS}
    _, weights, sums = tf.while_loop(
        lambda t, *_: t < steps, few_steps, (0, [w[tf.newaxis] for w in initial], none)
    )
    return weights, sums


class DeferredProblem:
    """The loss as a function of what a few steps add to the kernel, and of the rest.

    Args:
      model: The model, stacked.
      weights: Where the steps begin, each [1, ...].
      features: [1, N, ...] as stored.
      batch_size: B, int32 [].

    Attributes:
      start: A and X of zeros and the other weights, each [1, ...].
    """

    def __init__(
        self,
        model: StackedModel,
        weights: Sequence[tf.Tensor],
        features: tf.Tensor,
        batch_size: tf.Tensor,
    ) -> None:
        self._model = model
        self._features = features
        self._place = _place(model)
        self._batch_size = batch_size
        others = list(weights)
        self._kernel = others.pop(self._place)
        _, d, h = self._kernel.shape
        rows = STEPS * batch_size
        dtype = self._kernel.dtype
        # A and X, and the weights that are stepped as always.
        self.start = [tf.zeros([1, rows, n], dtype) for n in (h, d)] + others

    def gradients(
        self, weights: Sequence[tf.Tensor], batch: Batch
    ) -> tuple[list[tf.Tensor | SparseRows], tf.Tensor, tf.Tensor]:
        """See `sgd.Problem`; the rows of X, which are set, descend from zero too."""
        features = tf.gather(self._features, batch.rows, batch_dims=1)
        asked, read, rest, logits, loss = outlined(self._gradients)(
            self._kernel, weights, features, batch
        )
        rows = batch.number * self._batch_size + tf.range(self._batch_size)
        places = tf.stack([tf.zeros_like(rows), rows], 1)[tf.newaxis]
        kept = [SparseRows(places, part) for part in (asked, -read)]
        return [*kept, *rest], logits, loss

    def weights(self, trained: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The model's weights after the steps, each [1, ...]."""
        moves, inputs, *others = trained
        step = tf.matmul(_only(inputs), _only(moves), transpose_a=True)
        return self._with((_only(self._kernel) + step)[tf.newaxis], others)

    def _gradients(
        self,
        kernel: tf.Tensor,
        weights: Sequence[tf.Tensor],
        features: tf.Tensor,
        batch: Batch,
    ) -> tuple:
        moves, inputs, *others = weights
        with tf.GradientTape() as tape:
            tape.watch(others)
            moved = _MovedKernel(*map(_only, (kernel, inputs, moves)), tape)
            logits = self._model(self._with(moved, others), features)
            loss, summed = batch.loss(logits)
        asked, *rest = tape.gradient(loss, [moved.made, *others])
        return asked[tf.newaxis], moved.read[tf.newaxis], rest, logits, summed

    def _with(self, kernel: object, others: Sequence[tf.Tensor]) -> list:
        return [*others[: self._place], kernel, *others[self._place :]]


class _MovedKernel:
    """W_0 + X^T A of one client, as a dense layer takes it.

    Attributes:
      dtype: Of the numbers.
      read: What the layer multiplied, [B, d].
      made: The product, [B, h].
    """

    def __init__(
        self,
        kernel: tf.Tensor,
        inputs: tf.Tensor,
        moves: tf.Tensor,
        tape: tf.GradientTape,
    ) -> None:
        self.dtype = kernel.dtype
        self._kernel, self._inputs, self._moves = kernel, inputs, moves
        self._tape = tape

    def product(self, x: tf.Tensor) -> tf.Tensor:
        """X_b W, [1, B, h], of X_b [1, B, d]."""
        self.read = _only(x)
        own = tf.matmul(self.read, self._inputs, transpose_b=True)
        self.made = tf.matmul(self.read, self._kernel) + tf.matmul(own, self._moves)
        self._tape.watch(self.made)
        return self.made[tf.newaxis]


def _only(stack: tf.Tensor) -> tf.Tensor:
    """The one client's of a stack of one."""
    return tf.squeeze(stack, 0)


def _place(model: StackedModel) -> int | None:
    """The number of the largest dense kernel of a model that convolves, if large."""
    sizes = {i: model.sizes[i] for i in model.dense_kernels}
    largest = max(sizes, key=sizes.get, default=None)
    if largest is None or not model.convolves or sizes[largest] < _LARGE:
        return None
    return largest
