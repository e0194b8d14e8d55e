"""Gaussian noise on a grid by as few random bits as settle it.

What is shown of a normal number is the step of the grid that it rounds to. A quarter
of its bits settle that for nine numbers in ten; only the others get the rest of theirs.
The result is the one that all bits of all numbers would give. Where TensorFlow
operations make the bits, they take most of the time of noise.
"""

import math

import tensorflow as tf

from tff_hdp.noise.normals import box_muller
from tff_hdp.noise.words import secure_words

# Of a pair of numbers, radius and turn have 64 bits each, of which so many come first.
_FIRST_BITS = 16
_FIRST = 2**_FIRST_BITS
# Half of what the first bits leave open of a turn, pi / _FIRST, and 5 % for float32.
_OPEN_TURN = 1.05 * math.pi / _FIRST


def rounded_sum(values: tf.Tensor, sigma: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """`values` plus Gaussian noise, to the nearest step.

    Args:
      values: float32 or float64 [n].
      sigma: The noise's standard deviation, in steps, float64 [], positive.
      step: Of the grid, float64 [], a power of two.

    Returns:
      A tensor like `values`.
    """
    size = tf.size(values)
    half = (size + 1) // 2
    # Whole steps apart, so that a large value costs the noise no precision.
    scaled = tf.cast(values, tf.float64) / step
    whole = tf.floor(scaled)
    part = tf.reshape(tf.pad(scaled - whole, [[0, 2 * half - size]]), [2, half])
    codes = tf.reshape(tf.bitcast(secure_words((half + 1) // 2), tf.uint16), [-1])
    codes = tf.reshape(codes[: 2 * half], [2, half])
    near, unsettled = settle(part, codes, sigma)
    near = tf.cond(
        tf.size(unsettled) > 0,
        lambda: _by_all_bits(near, unsettled, part, codes, sigma),
        lambda: near,
    )
    total = whole + tf.reshape(near, [-1])[:size]
    return tf.cast(total * step, values.dtype)


def settle(
    part: tf.Tensor, codes: tf.Tensor, sigma: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """What numbers plus noise round to, as far as the noise's first bits tell.

    Args:
      part: float64 [2, n], each in [0, 1].
      codes: The first bits of n radii and n turns, uint16 [2, n].
      sigma: Of the noise, float64 [].

    Returns:
      Whole numbers, float64 [2, n], and the pairs of which one at least may still
      round to another, int32 [unsettled].
    """
    sigma = tf.cast(sigma, tf.float32)
    first, turn = tf.unstack(tf.cast(codes, tf.float32))
    radius = sigma * tf.sqrt(-2.0 * tf.math.log((first + 0.5) / _FIRST))
    turn = (turn + 0.5) * (2.0 * math.pi / _FIRST)
    x, y = radius * tf.cos(turn), radius * tf.sin(turn)
    x_part, y_part = tf.unstack(tf.cast(part, tf.float32))
    x_near, y_near = tf.round(x + x_part), tf.round(y + y_part)
    # The uniform number of the radius lies between first and first + 1, the logarithm
    # within 1 / first; where that is 0, it can be anything. To turn moves one number
    # of the pair by the other.
    radius_error = 1.01 * sigma**2 / (first * radius)
    room = tf.maximum(
        tf.abs(x + x_part - x_near) + _OPEN_TURN * tf.abs(y),
        tf.abs(y + y_part - y_near) + _OPEN_TURN * tf.abs(x),
    )
    unsettled = tf.where(room + radius_error + _OPEN_TURN**2 * radius > 0.5)
    near = tf.cast(tf.stack([x_near, y_near]), tf.float64)
    return near, tf.cast(unsettled[:, 0], tf.int32)


def _by_all_bits(
    near: tf.Tensor,
    pairs: tf.Tensor,
    part: tf.Tensor,
    codes: tf.Tensor,
    sigma: tf.Tensor,
) -> tf.Tensor:
    """`near` [2, n], with what some pairs (int32 [m]) round to by all their bits."""
    known = tf.cast(tf.gather(codes, pairs, axis=1), tf.int64)
    further = tf.reshape(secure_words(2 * tf.size(pairs)), [2, -1])
    # The first bit of a word for a radius is not looked at.
    shifts = tf.constant(
        [[2 ** (63 - _FIRST_BITS)], [2 ** (64 - _FIRST_BITS)]], tf.int64
    )
    high, turn = tf.unstack(
        known * shifts + tf.bitwise.bitwise_and(further, shifts - 1)
    )
    settled = tf.round(tf.gather(part, pairs, axis=1) + sigma * box_muller(high, turn))
    # One row at a time: the first index of a scatter is the row.
    rows = [
        tf.tensor_scatter_nd_update(row, pairs[:, tf.newaxis], new)
        for row, new in zip(tf.unstack(near), tf.unstack(settled, 2), strict=True)
    ]
    return tf.stack(rows)
