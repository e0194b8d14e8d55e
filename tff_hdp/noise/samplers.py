"""Gaussian and Laplace noise of cryptographic randomness, safe in floating point.

A value is never added to noise in floating point and shown: the low bits of such a
sum tell the value (Mironov, CCS 2012). What is shown is the exact sum rounded to a
grid whose step hangs on the noise alone; rounding is post-processing, so the sum's
epsilon is the result's.
"""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_hdp.noise.words import secure_words

# The grid's step is the noise's standard deviation over this.
STEPS = 64

# By how much the probability of any result of one number may differ from the exact
# mechanism's, as a factor 1 +- this; `tff_hdp.privacy.composition` accounts for it.
# Logarithm, square root, cosine, their product and the sum are each right to a few of
# their last places (2^-52 of at most 20 STEPS < 2^11 steps), so a result's bounds lie
# within 2^-40 of a step of where they should, 20 standard deviations out (where a
# number lies with probability 2^-292).
RELATIVE_ERROR = 2.0**-39


def add_gaussian(values: Any, stddev: tf.Tensor | float) -> Any:
    """`values` plus independent Gaussian noise, rounded to a grid.

    Tails have no end: a uniform number that is too small for its bits gets more.

    Args:
      values: Structure of floating tensors.
      stddev: Standard deviation, float [], the same for every number; 0 adds
        nothing.

    Returns:
      A structure like `values`.
    """
    return _add(values, stddev, standard_normal)


def add_laplace(values: Any, stddev: tf.Tensor | float) -> Any:
    """`values` plus independent Laplace noise, rounded to a grid.

    Args:
      values: Structure of floating tensors.
      stddev: Standard deviation, sqrt(2) times the scale, float [].

    Returns:
      A structure like `values`.
    """
    return _add(values, stddev, _standard_laplace)


def gaussian(shape: Any, stddev: tf.Tensor | float) -> tf.Tensor:
    """Gaussian noise by itself, float32, on the grid of `add_gaussian`."""
    return add_gaussian(tf.zeros(shape), stddev)


def laplace(shape: Any, stddev: tf.Tensor | float) -> tf.Tensor:
    """Laplace noise by itself, float32, on the grid of `add_laplace`."""
    return add_laplace(tf.zeros(shape), stddev)


def _add(
    values: Any,
    stddev: tf.Tensor | float,
    standard: Callable[[tf.Tensor], tf.Tensor],
) -> Any:
    flat = tf.nest.flatten(values)
    sizes = tf.stack([tf.size(t) for t in flat])
    stddev = tf.cast(stddev, tf.float64)

    def noised() -> list[tf.Tensor]:
        # One draw for all tensors: a key and a stream cost something each.
        parts = tf.split(standard(tf.reduce_sum(sizes)), sizes, num=len(flat))
        return [
            _rounded_sum(t, part, stddev) for t, part in zip(flat, parts, strict=True)
        ]

    noisy = tf.cond(stddev > 0.0, noised, lambda: [tf.identity(t) for t in flat])
    return tf.nest.pack_sequence_as(values, noisy)


def _rounded_sum(value: tf.Tensor, unit: tf.Tensor, stddev: tf.Tensor) -> tf.Tensor:
    """`value` + stddev `unit` (float64 [size]), to the nearest step."""
    step = stddev / STEPS
    scaled = tf.cast(value, tf.float64) / step
    # Whole steps apart, so that a large value costs the noise no precision.
    whole = tf.floor(scaled)
    noise = tf.reshape(unit, tf.shape(value)) * STEPS
    total = whole + tf.floor(scaled - whole + noise + 0.5)
    return tf.cast(total * step, value.dtype)


def standard_normal(count: tf.Tensor) -> tf.Tensor:
    """float64 [count], by Box and Muller (1958)."""
    half = (count + 1) // 2
    high, low, turn = _words(3, half)
    radius = tf.sqrt(2.0 * _exponential(high, low))
    angle = tf.cast(turn, tf.float64) * (math.pi * 2.0**-63)
    pair = [radius * tf.cos(angle), radius * tf.sin(angle)]
    return tf.concat(pair, 0)[:count]


def uniform(count: tf.Tensor) -> tf.Tensor:
    """float64 [count] in (0, 1), by 63 bits."""
    words = tf.cast(_positive(secure_words(count)), tf.float64)
    return (words + 0.5) * 2.0**-63


def _standard_laplace(count: tf.Tensor) -> tf.Tensor:
    """float64 [count] of variance 1: the difference of two exponentials."""
    first, second = tf.split(_exponential(*_words(2, 2 * count)), 2)
    return (first - second) * math.sqrt(0.5)


def _exponential(high: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
    """Exponential numbers of mean 1 by words of 64 bits, two for each.

    -log of a uniform number of 126 bits, 63 of them behind the first that is not zero:
    where the first 63 are all zero (once in 2^63 numbers), what lies beyond 63 log(2)
    is an exponential number again, and drawn anew.
    """

    def draw(high: tf.Tensor, low: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = _positive(high)
        whole = tf.cast(first, tf.float64)
        uniform = whole + (tf.cast(_positive(low), tf.float64) + 0.5) * 2.0**-63
        return -tf.math.log(uniform * 2.0**-63), tf.equal(first, 0)

    def further(
        beyond: tf.Tensor, found: tf.Tensor, open_: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        beyond += 63.0 * math.log(2.0)
        more, again = draw(*_words(2, tf.size(found)))
        return beyond, tf.where(open_, beyond + more, found), open_ & again

    _, found, _ = tf.while_loop(
        lambda beyond, found, open_: tf.reduce_any(open_),
        further,
        (tf.constant(0.0, tf.float64), *draw(high, low)),
    )
    return found


def _words(rows: int, count: tf.Tensor) -> list[tf.Tensor]:
    """`rows` tensors of int64 [count]."""
    return tf.unstack(tf.reshape(secure_words(rows * count), [rows, count]))


def _positive(word: tf.Tensor) -> tf.Tensor:
    """0..2^63 - 1."""
    return tf.bitwise.bitwise_and(word, tf.constant(2**63 - 1, tf.int64))
