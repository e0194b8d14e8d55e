"""SGD of a stack of clients, whatever their weights are written in."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.updates import cross_entropy, with_rows_of, without
from tff_hdp.errors import (
    ArgumentError,
    check_count,
    check_nonnegative,
    check_number,
)

# How many tensors like the stacked weights a step holds at most: the weights, their
# gradients and velocities, the next of them, and a temporary.
COPIES = 6

# What is added up over the steps of SGD, each float32 [].
SUMS = ("loss", "correct", "examples")

# True where a weight may change; None where all of it may.
Mask = Sequence[tf.Tensor | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdRule:
    """How a client's weights w follow its gradients g.

    v <- momentum v + learning_rate mask (g + proximal (w - c)), and w <- w - v.

    Attributes:
      learning_rate: Of every step; with 0 nobody moves.
      momentum: Kept share of v, which a round starts at zero.
      proximal: mu of the term mu/2 |w - c|^2 that FedProx (Li et al. 2020) adds to
        the loss.
      centre_every: After how many steps the centre c moves to where the client
        then is; None leaves it at the weights sent.
      mask: Per weight a boolean tensor of its shape, the same for every client,
        true where the weight may change; None where all of it may. What it holds
        does not move, even where the gradient is not a number.

    Raises:
      ArgumentError: If a number is out of range.
    """

    learning_rate: float
    momentum: float = 0.0
    proximal: float = 0.0
    centre_every: int | None = None
    mask: Mask | None = None

    def __post_init__(self) -> None:
        check_nonnegative("learning_rate", self.learning_rate)
        check_number("momentum", self.momentum, "[0, 1)", lambda x: 0.0 <= x < 1.0)
        check_nonnegative("proximal", self.proximal)
        if self.centre_every is not None:
            check_count("centre_every", self.centre_every, 1)

    def check_mask(self, weights: Sequence[tf.Tensor]) -> None:
        """Checks that the mask is one for these weights.

        Raises:
          ArgumentError: If it is not.
        """
        if self.mask is None:
            return
        if len(self.mask) != len(weights):
            raise ArgumentError(
                "mask", f"{len(self.mask)} tensors", f"{len(weights)}, one per weight"
            )
        for i, (part, weight) in enumerate(zip(self.mask, weights, strict=True)):
            if part is not None and tuple(part.shape) != tuple(weight.shape):
                raise ArgumentError(
                    f"mask[{i}].shape",
                    str(tuple(part.shape)),
                    f"{tuple(weight.shape)}, its weight's",
                )

    def factors(self, dtype: tf.DType) -> list[tf.Tensor | None]:
        """Per weight 1 where it may change and else 0, [1, ...]; None for all of it."""
        return [
            None if part is None else tf.cast(part, dtype)[tf.newaxis]
            for part in self.mask or ()
        ]


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
      rows: int64 [C, B] rows into each client's examples; where there is none, any.
      labels: int64 [C, B]; one that is no class spoils its client's gradient.
      present: [C, B], 1 for an example and 0 for none, of the weights' dtype.
      learning_rate: Of the step.
      number: Of the step, from 0, int32 [].
    """

    rows: tf.Tensor
    labels: tf.Tensor
    present: tf.Tensor
    learning_rate: float
    number: tf.Tensor | int = 0

    def loss(self, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What to differentiate, and the cross-entropy summed over examples.

        The first is each client's mean cross-entropy, added up, of which a client's
        gradient sees its own term only. The learning rate is in it, so that large
        gradients need not be multiplied by it.
        """
        losses = cross_entropy(self.labels, logits)
        losses = tf.where(self.present > 0, losses, tf.zeros_like(losses))
        count = tf.reduce_sum(self.present, 1, keepdims=True)
        shares = tf.math.divide_no_nan(self.learning_rate * self.present, count)
        return tf.reduce_sum(losses * shares), tf.reduce_sum(losses)

    def sums(self, logits: tf.Tensor, loss: tf.Tensor) -> dict[str, tf.Tensor]:
        """`loss` (nats), `correct` and `examples` over all clients, float32 []."""
        hits = tf.equal(tf.argmax(logits, -1), self.labels)
        correct = tf.reduce_sum(tf.cast(hits, self.present.dtype) * self.present)
        return collections.OrderedDict(
            loss=tf.cast(loss, tf.float32),
            correct=tf.cast(correct, tf.float32),
            examples=tf.cast(tf.reduce_sum(self.present), tf.float32),
        )


class Problem(Protocol):
    """What a stack of clients minimises.

    Attributes:
      start: The weights sent, per weight [1, ...].
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

    Attributes:
      start: The weights sent, each [1, ...].
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
        if not self._model.convolves:
            return _gradients(self._model, weights, features, batch)
        return outlined(functools.partial(_gradients, self._model))(
            weights, features, batch
        )


def outlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose operations TensorFlow chooses apart from its caller's.

    oneDNN's gradient of pooling takes half the time of TensorFlow's own, but TensorFlow
    chooses it only if it meets the pooling first. In the graph of a loop, whose end
    leads back to its beginning, which of the two it meets first is up to chance.

    Args:
      function: Of tensors, in one or more arguments.
    """
    return tf.function(
        function, autograph=False, experimental_attributes={"_noinline": True}
    )


def full_gradients(
    model: StackedModel,
    weights: Sequence[tf.Tensor],
    features: tf.Tensor,
    labels: tf.Tensor,
) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """The gradient of every client's mean cross-entropy over all of its examples.

    Args:
      model: The model, stacked.
      weights: Each client's, per weight [C, ...].
      features: [C, B, ...] as stored.
      labels: [C, B].

    Returns:
      Per weight [C, ...]; and `loss` (nats), `correct` and `examples`, each summed
      over all examples, float32 [].
    """
    labels = tf.cast(labels, tf.int64)
    present = tf.ones_like(labels, weights[0].dtype)
    batch = Batch(tf.zeros_like(labels), labels, present, learning_rate=1.0)
    gradients, logits, loss = _gradients(model, weights, features, batch)
    return gradients, batch.sums(logits, loss)


def descend(
    problem: Problem, rule: SgdRule, order: tf.Tensor, labels: tf.Tensor
) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
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
    free = rule.factors(dtype)
    *batches, moving = _batches(order, labels, dtype)
    weights = [tf.tile(w, [clients] + [1] * (w.shape.rank - 1)) for w in problem.start]
    velocities = [tf.zeros_like(w) for w in weights] if rule.momentum else []
    # c, where it does not stay at the weights sent.
    centres = weights if rule.proximal and rule.centre_every else []
    sums = collections.OrderedDict((name, tf.constant(0.0)) for name in SUMS)

    def step(
        t: tf.Tensor, weights: Any, velocities: Any, centres: Any, sums: Any
    ) -> Any:
        own = (part[:, t] for part in batches)
        batch = Batch(*own, learning_rate=rule.learning_rate, number=t)
        gradients, logits, loss = problem.gradients(weights, batch)
        if centres:
            begins = tf.equal(t % rule.centre_every, 0)
            centres = tf.cond(begins, lambda: weights, lambda: centres)
        moved = [
            _step(rule, *tensors, moving[:, t])
            for tensors in zip(
                weights,
                velocities or [None] * len(weights),
                centres or problem.start,
                free or [None] * len(weights),
                gradients,
                strict=True,
            )
        ]
        weights = [w for w, _ in moved]
        velocities = [v for _, v in moved] if rule.momentum else []
        sums = tf.nest.map_structure(tf.add, sums, batch.sums(logits, loss))
        return t + 1, weights, velocities, centres, sums

    _, weights, _, _, sums = tf.while_loop(
        lambda t, *_: t < steps, step, (0, weights, velocities, centres, sums)
    )
    return weights, sums


def _batches(
    order: tf.Tensor, labels: tf.Tensor, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """What the steps' batches hold, and which clients move, each [C, steps, ...].

    All of it before the first step, and in 64 bits: a GPU leaves numbers of 32 to the
    processor, to which it would send them in every step.

    Args:
      order: [C, steps, B], see `descend`.
      labels: [C, N].
      dtype: Of the weights.

    Returns:
      `rows`, `labels` and `present` of `Batch`; and bool [C, steps].
    """
    order, labels = tf.cast(order, tf.int64), tf.cast(labels, tf.int64)
    absent = order < 0
    # What counts 0 times is no number where a model overflows: how wide and long
    # others' orders are must not add any to a client's own.
    rows = tf.where(absent, order[:, :, :1], order)
    given = tf.clip_by_value(rows, 0, tf.shape(labels, tf.int64)[1] - 1)
    asked = tf.gather(labels, given, batch_dims=1)
    # Where there is no example any class will do; a row beyond them has none.
    none = tf.zeros_like(asked)
    asked = tf.where(absent, none, tf.where(rows > given, none - 1, asked))
    present = tf.cast(tf.logical_not(absent), dtype)
    return given, asked, present, tf.logical_not(tf.reduce_all(absent, 2))


def _gradients(
    model: StackedModel, weights: Sequence[tf.Tensor], features: tf.Tensor, batch: Batch
) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(weights)
        logits = model(weights, features)
        loss, summed = batch.loss(logits)
    return tape.gradient(loss, weights), logits, summed


def _step(
    rule: SgdRule,
    weight: tf.Tensor,
    velocity: tf.Tensor | None,
    centre: tf.Tensor,
    free: tf.Tensor | None,
    gradient: tf.Tensor | SparseRows,
    moving: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """The next value of one weight and of its velocity; `moving` is bool [C].

    Who stands still gets nothing of its gradient: that is 0 only where it is finite.
    """
    by_gradient_alone = not (rule.momentum or rule.proximal)
    if isinstance(gradient, SparseRows):
        if by_gradient_alone and free is None:
            values = without(gradient.values, tf.logical_not(moving))
            return tf.tensor_scatter_nd_sub(weight, gradient.places, values), None
        gradient = gradient.dense(weight)
    if rule.proximal:
        gradient += rule.learning_rate * rule.proximal * (weight - centre)
    if free is not None:
        # Half the time of tf.where, and no number times 0 is 0 here too.
        gradient = tf.math.multiply_no_nan(gradient, free)
    still = tf.logical_not(moving)
    if velocity is not None:
        moved = rule.momentum * velocity + gradient
        velocity = gradient = with_rows_of(velocity, still, moved)
    return with_rows_of(weight, still, weight - gradient), velocity
