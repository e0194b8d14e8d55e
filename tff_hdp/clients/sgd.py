"""SGD of a stack of clients, whatever their weights are written in."""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tff_hdp.clients.stacked_model import StackedModel

# How many tensors like the stacked weights a step holds at most: the weights, their
# gradients and velocities, the next of them, and a temporary.
COPIES = 6

# True where a weight may change; None where all of it may.
Mask = Sequence[tf.Tensor | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdRule:
    """How a client's weights follow its gradients g: FedProx's local step.

    v <- momentum v + learning_rate mask (g + proximal (w - w0)), and w <- w - v.

    Attributes:
      learning_rate: Of every step.
      momentum: Kept share of v, which a round starts at zero.
      proximal: mu of the term mu/2 |w - w0|^2 that FedProx (Li et al. 2020) adds
        to the loss, w0 being the weights sent to the client.
      mask: Per weight a boolean tensor of its shape, the same for every client,
        true where the weight may change; None where all of it may.

    Raises:
      ValueError: If momentum or proximal is out of range.
    """

    learning_rate: float
    momentum: float = 0.0
    proximal: float = 0.0
    mask: Mask | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum is {self.momentum}; allowed is [0, 1)")
        if not 0.0 <= self.proximal < math.inf:
            raise ValueError(f"proximal is {self.proximal}; allowed is [0, inf)")


class SparseRows(NamedTuple):
    """A gradient that is zero but for a few rows of a tensor [C, N, h].

    Attributes:
      places: [C, B, 2], client and row.
      values: [C, B, h].
    """

    places: tf.Tensor
    values: tf.Tensor

    def dense(self, like: tf.Tensor) -> tf.Tensor:
        """This as a tensor like the given one."""
        return tf.tensor_scatter_nd_add(tf.zeros_like(like), self.places, self.values)


class Batch(NamedTuple):
    """The examples of one step.

    Attributes:
      rows: [C, B] rows into each client's examples; 0 where there is none.
      labels: [C, B].
      present: [C, B], 1 for an example and 0 for none, of the weights' dtype.
      learning_rate: Of the step.
    """

    rows: tf.Tensor
    labels: tf.Tensor
    present: tf.Tensor
    learning_rate: float

    def loss(self, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What to differentiate, and the cross-entropy summed over examples.

        The first is each client's mean cross-entropy, added up, of which a client's
        gradient sees its own term only. The learning rate is in it, so that large
        gradients need not be multiplied by it.
        """
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(self.labels, logits)
        own = tf.reduce_sum(losses * self.present, 1)
        count = tf.reduce_sum(self.present, 1)
        means = tf.math.divide_no_nan(self.learning_rate * own, count)
        return tf.reduce_sum(means), tf.reduce_sum(own)


class Problem(Protocol):
    """What a stack of clients minimises.

    Attributes:
      start: The weights sent, per weight [C, ...] or [1, ...].
    """

    start: list[tf.Tensor]

    def gradients(
        self, weights: Sequence[tf.Tensor], batch: Batch
    ) -> tuple[list[tf.Tensor | SparseRows], tf.Tensor, tf.Tensor]:
        """Of a step: what to descend by, logits, and the loss summed over examples.

        Returns:
          Per weight the learning rate times the gradient, [C, ...]; [C, B, classes];
          [].
        """


class WeightProblem:
    """The loss as a function of the model's own weights.

    Args:
      model: The model, stacked.
      initial: The weights sent, each without the client axis.
      features: [C, N, ...] as stored.
    """

    def __init__(
        self, model: StackedModel, initial: Sequence[tf.Tensor], features: tf.Tensor
    ) -> None:
        self.start = [w[tf.newaxis] for w in initial]
        self._model = model
        self._features = features

    def gradients(
        self, weights: Sequence[tf.Tensor], batch: Batch
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """See `Problem`."""
        features = tf.gather(self._features, batch.rows, batch_dims=1)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = self._model(weights, features)
            loss, summed = batch.loss(logits)
        return tape.gradient(loss, weights), logits, summed


def descend(
    problem: Problem, rule: SgdRule, order: tf.Tensor, labels: tf.Tensor
) -> tuple[list[tf.Tensor], Any]:
    """Takes every client of a stack through its own batches.

    A client whose batches are used up stands still.

    Args:
      problem: What to minimise.
      rule: How.
      order: [C, steps, B] rows into the clients' examples; -1 is no example.
      labels: [C, N].

    Returns:
      The trained weights, each [C, ...]; and sums over all the steps: `loss`
      (nats), `correct` and `examples`, each float32 [].
    """
    clients, steps = order.shape[0] or tf.shape(order)[0], tf.shape(order)[1]
    dtype = problem.start[0].dtype
    weights = [tf.tile(w, [clients] + [1] * (w.shape.rank - 1)) for w in problem.start]
    velocity = [tf.zeros_like(w) for w in weights] if rule.momentum else []
    sums = [tf.constant(0.0)] * 3

    def step(t: tf.Tensor, weights: Any, velocity: Any, sums: Any) -> Any:
        rows = order[:, t]
        present = tf.cast(rows >= 0, dtype)
        rows = tf.maximum(rows, 0)
        batch = Batch(
            rows, tf.gather(labels, rows, batch_dims=1), present, rule.learning_rate
        )
        gradients, logits, loss = problem.gradients(weights, batch)
        moving = tf.reduce_any(present > 0, 1)
        pairs = [
            _step(rule, i, problem.start[i], *tensors, moving)
            for i, tensors in enumerate(
                zip(weights, velocity or [None] * len(weights), gradients, strict=True)
            )
        ]
        hits = tf.equal(tf.argmax(logits, -1, tf.int32), batch.labels)
        correct = tf.reduce_sum(tf.cast(hits, dtype) * present)
        added = (loss, correct, tf.reduce_sum(present))
        sums = [a + tf.cast(b, tf.float32) for a, b in zip(sums, added, strict=True)]
        velocity = [v for _, v in pairs] if rule.momentum else []
        return t + 1, [w for w, _ in pairs], velocity, sums

    _, weights, _, sums = tf.while_loop(
        lambda t, *_: t < steps, step, (0, weights, velocity, sums)
    )
    return weights, collections.OrderedDict(
        zip(("loss", "correct", "examples"), sums, strict=True)
    )


def _step(
    rule: SgdRule,
    index: int,
    start: tf.Tensor,
    weight: tf.Tensor,
    velocity: tf.Tensor | None,
    gradient: tf.Tensor | SparseRows,
    moving: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """The next value of one weight and of its velocity; `moving` is bool [C]."""
    mask = rule.mask[index] if rule.mask else None
    plain = not (rule.momentum or rule.proximal) and mask is None
    if isinstance(gradient, SparseRows):
        if plain:
            return tf.tensor_scatter_nd_sub(weight, *gradient), None
        gradient = gradient.dense(weight)
    if plain:
        return weight - gradient, None
    moving = tf.reshape(moving, [-1] + [1] * (weight.shape.rank - 1))
    if rule.proximal:
        gradient += rule.learning_rate * rule.proximal * (weight - start)
    if mask is not None:
        gradient = tf.where(mask, gradient, tf.zeros_like(gradient))
    if velocity is not None:
        gradient = rule.momentum * velocity + gradient
        velocity = tf.where(moving, gradient, velocity)
    return tf.where(moving, weight - gradient, weight), velocity
