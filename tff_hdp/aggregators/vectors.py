"""Updates as vectors: tensors joined into one, and real numbers as integers."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tff_hdp.protocols.secagg.fixed_point import FixedPoint


def join(tensors: Sequence[tf.Tensor], *, leading: int = 0) -> tf.Tensor:
    """Vectors [..., n] of tensors [..., *shape], in their order.

    Args:
      tensors: Of one dtype and the same leading axes.
      leading: How many axes lead; 1 for the stacked tensors of C clients.
    """
    parts = []
    for tensor in map(tf.convert_to_tensor, tensors):
        size = tensor.shape[leading:].num_elements()
        shape = tf.concat([tf.shape(tensor)[:leading], [size]], 0)
        parts.append(tf.reshape(tensor, shape))
    return tf.concat(parts, -1)


def split(vectors: tf.Tensor, shapes: Sequence[Sequence[int]]) -> list[tf.Tensor]:
    """Tensors [..., *shape] of vectors [..., n]: the reverse of `join`.

    Args:
      vectors: [..., n].
      shapes: Of the tensors, with n numbers in all.
    """
    vectors = tf.convert_to_tensor(vectors)
    leading = tf.shape(vectors)[:-1]
    parts = tf.split(vectors, [math.prod(shape) for shape in shapes], -1)
    return [
        tf.reshape(part, tf.concat([leading, tf.constant(shape, tf.int32)], 0))
        for part, shape in zip(parts, map(list, shapes), strict=True)
    ]


def encode(vectors: tf.Tensor, encoding: FixedPoint) -> tf.Tensor:
    """Clips and rounds, as `FixedPoint.encode` before it reduces modulo 2^b.

    Args:
      vectors: Real numbers of any shape, all finite.
      encoding: Clip and step.

    Returns:
      int64 of the same shape, to which integer noise or a mask may be added.
    """
    clipped = tf.clip_by_value(
        tf.cast(vectors, tf.float64), -encoding.clip, encoding.clip
    )
    return tf.cast(tf.round(clipped / encoding.step), tf.int64)


def decode(sums: tf.Tensor, encoding: FixedPoint) -> tf.Tensor:
    """What sums of encoded vectors stand for, float64.

    Args:
      sums: int64 of any shape, right modulo 2^b.
      encoding: Step and b.
    """
    return tf.cast(centred(sums, encoding.bits), tf.float64) * encoding.step


def centred(integers: tf.Tensor, bits: int) -> tf.Tensor:
    """The representatives modulo 2^bits in [-2^(bits-1), 2^(bits-1)), int64."""
    half = 2 ** (bits - 1)
    return tf.math.floormod(integers + half, 2 * half) - half
