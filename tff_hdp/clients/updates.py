"""The updates of a stack of clients, and what is done to them."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.clipping import beside, global_norm
from tff_hdp.runtime import environment


@dataclasses.dataclass(frozen=True)
class OuterProducts:
    """Every client's update of a kernel as what it is the outer product of.

    Norms and sums of a stack need no more: of all that a kernel's size is only one sum
    is formed (after Goodfellow 2015, "Efficient per-example gradient computations").

    Attributes:
      left: float32 [C, a].
      right: float32 [C, b].
    """

    left: tf.Tensor
    right: tf.Tensor

    def formed(self) -> tf.Tensor:
        """The updates, float32 [C, a, b]."""
        return self.left[:, :, tf.newaxis] * self.right[:, tf.newaxis]


def norms(updates: tf.Tensor | OuterProducts) -> tf.Tensor:
    """L2 norm of every client's update of one weight, [C]; not finite if one is not.

    Args:
      updates: [C, ...].
    """
    if isinstance(updates, OuterProducts):
        # One may be so large, and the other so small, that their squares leave float32.
        sides = (tf.cast(t, tf.float64) for t in (updates.left, updates.right))
        return tf.cast(math.prod(map(norms, sides)), updates.left.dtype)
    return global_norm([updates], stacked=True)


def weighted_sums(
    updates: Sequence[tf.Tensor | OuterProducts], factors: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """sum_c factors_zc u_c of every weight's updates, each [Z, ...].

    Args:
      updates: Per weight, [C, ...].
      factors: Per weight, [Z, C]; where all of a client's are 0, its u_c may be
        anything.
    """
    sides = [
        (u.left, u.right) if isinstance(u, OuterProducts) else (u,) for u in updates
    ]
    dropped = tf.reduce_all(tf.equal(tf.concat(factors, 0), 0.0), 0)
    return [
        tf.matmul(factor[:, :, tf.newaxis] * left[0], right, transpose_a=True)
        if left
        else _combined(factor, right)
        for (*left, right), factor in zip(without(sides, dropped), factors, strict=True)
    ]


def _combined(factor: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """[Z, ...] of factors [Z, C] and updates [C, ...]."""
    shape = updates.shape[1:]
    # `tf.tensordot` finds shapes out by operations, whose numbers a GPU copies.
    flat = tf.reshape(updates, [-1, shape.num_elements()])
    return tf.reshape(tf.matmul(factor, flat), [-1, *shape])


def without(values: Any, dropped: tf.Tensor) -> Any:
    """Tensors [C, ...], with zeros for the clients dropped, bool [C]."""

    def zeroed(value: tf.Tensor) -> tf.Tensor:
        return tf.where(beside(dropped, value), tf.zeros([], value.dtype), value)

    def all_zeroed() -> Any:
        return tf.nest.map_structure(zeroed, values)

    if environment.gpus():  # which would wait for the answer
        return all_zeroed()
    return tf.cond(tf.reduce_any(dropped), all_zeroed, lambda: values)


def with_rows_of(value: tf.Tensor, kept: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """`new` [C, ...], but with the rows of `value` where `kept`, bool [C].

    Args:
      value: [C, ...].
      kept: Which clients'.
      new: The result of an operation, used by nothing else: it is written over.
    """
    if environment.gpus():
        return tf.where(beside(kept, value), value, new)
    # That, like a scatter, would copy all of it.
    places = tf.where(kept)
    rows = tf.cast(places[:, 0], tf.int32)
    return tf.raw_ops.InplaceUpdate(x=new, i=rows, v=tf.gather_nd(value, places))


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Every example's cross-entropy in nats; NaN where the label is no class.

    TensorFlow's own ends the round of all clients at such a label. Here the update
    that it asks for is not finite, and is screened as any such update.

    Args:
      labels: Integers [...].
      logits: [..., classes].

    Returns:
      [...] of the logits' dtype.
    """
    # A GPU keeps numbers of 64 bits with the logits; those of 32 stay behind.
    labels, classes = tf.cast(labels, tf.int64), logits.shape[-1]
    wrong = out_of_range(labels, classes)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.reshape(tf.where(wrong, tf.zeros_like(labels), labels), [-1]),
        tf.reshape(logits, [-1, classes]),
    )
    return spoilt(tf.reshape(losses, tf.shape(labels)), wrong)


def out_of_range(ids: tf.Tensor, size: int) -> tf.Tensor:
    """Where numbers are none of 0..size - 1, bool, of their shape."""
    # Not in 32 bits, in which a wider number may become one that is in range.
    ids = tf.cast(ids, tf.int64)
    return tf.logical_or(ids < 0, ids >= size)


def spoilt(values: tf.Tensor, wrong: tf.Tensor) -> tf.Tensor:
    """`values`, NaN where `wrong`, and with a gradient of NaN there."""
    # A factor, for NaN to reach the gradient too.
    return values * tf.where(wrong, tf.cast(float("nan"), values.dtype), 1.0)


def sum_over_clients(
    value_of: Callable[[tf.Tensor | int], Any],
    clients: tf.Tensor,
    *,
    parallel_iterations: int = 10,
) -> Any:
    """Adds up `value_of(c)` over so many clients c (int32 []), tensor by tensor."""

    def add(client: tf.Tensor, total: Any) -> Any:
        return client + 1, tf.nest.map_structure(tf.add, total, value_of(client))

    _, total = tf.while_loop(
        lambda client, _: client < clients,
        add,
        (tf.constant(1), value_of(0)),
        parallel_iterations=parallel_iterations,
    )
    return total
