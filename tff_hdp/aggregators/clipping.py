"""Screens and clips updates: of one client, or of a stack of clients each by itself."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Structure = Any  # nested structure of tensors


def global_norm(tensors: Sequence[tf.Tensor], *, stacked: bool = False) -> tf.Tensor:
    """The L2 norm of all tensors together, in the widest of float32 and theirs.

    In float16 the squares of 256 and more would overflow.

    Args:
      tensors: Of any shapes.
      stacked: Whether they are of C clients, each tensor [C, ...].

    Returns:
      The norm, []; each client's, [C], where stacked.
    """
    tensors = list(map(tf.convert_to_tensor, tensors))
    dtypes = [tf.float32, *(tensor.dtype for tensor in tensors)]
    widest = max(dtypes, key=lambda dtype: dtype.size)

    def of(tensor: tf.Tensor) -> tf.Tensor:
        squares = tf.square(tf.cast(tensor, widest))
        axes = range(int(stacked), squares.shape.rank)
        return tf.reduce_sum(squares, list(axes)) if axes else squares

    return tf.sqrt(tf.add_n(list(map(of, tensors))))


def screen(
    update: Structure,
    *,
    stacked: bool = False,
    instead: tf.Tensor | float = 0.0,
) -> tuple[Structure, tf.Tensor]:
    """Replaces an update whose norm is not finite in float32.

    That is one with a NaN, an infinity, or values so large that their squares
    overflow: clipping would turn those into NaN. Squares are taken in float32, or in
    float64 if a tensor is of that.

    Args:
      update: Structure of float tensors.
      stacked: Whether of C clients', see `global_norm`.
      instead: What a rejected update counts as, of a shape that broadcasts.

    Returns:
      The update or `instead` in its shape, and whether it was rejected: bool [], or [C]
      where stacked.
    """
    update = tf.nest.map_structure(tf.convert_to_tensor, update)
    norm = global_norm(tf.nest.flatten(update), stacked=stacked)
    finite = tf.math.is_finite(tf.cast(norm, tf.float32))
    kept = tf.nest.map_structure(
        lambda t: tf.where(beside(finite, t), t, tf.cast(instead, t.dtype)), update
    )
    return kept, tf.logical_not(finite)


def clip(
    update: Structure, most: tf.Tensor | float, *, stacked: bool = False
) -> tuple[Structure, tf.Tensor]:
    """Clips an update to an L2 norm.

    Args:
      update: Structure of float tensors.
      most: Of what norm it may be: [], or each client's, [C]; infinity clips nothing.
      stacked: Whether of C clients', see `global_norm`.

    Returns:
      The update, and its norm before, float32 [], or [C] where stacked.
    """
    update = tf.nest.map_structure(tf.convert_to_tensor, update)
    # In float32 squares vanish of what a clip that adapts may come to cut.
    parts = [tf.cast(t, tf.float64) for t in tf.nest.flatten(update)]
    norm = global_norm(parts, stacked=stacked)
    # A norm that is not a number makes the update none either.
    shrunk = tf.math.divide_no_nan(tf.cast(most, tf.float64), norm)
    factor = tf.minimum(tf.ones_like(norm), shrunk)
    clipped = tf.nest.map_structure(
        lambda t: t * beside(tf.cast(factor, t.dtype), t), update
    )
    return clipped, tf.cast(norm, tf.float32)


def beside(values: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """Values [C] in a shape that broadcasts to tensor [C, ...]; others as they are."""
    further = tensor.shape.rank - values.shape.rank
    if values.shape.rank == 0 or further == 0:
        return values
    return tf.reshape(values, [-1] + [1] * further)
