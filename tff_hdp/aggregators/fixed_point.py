"""`FixedPoint` in TensorFlow: real vectors as integers to be summed modulo 2^b."""

import tensorflow as tf

from tff_hdp.protocols.secagg.fixed_point import FixedPoint


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
