"""Discrete Gaussian noise of cryptographic randomness, for sums of integers."""

import math

import numpy as np
import tensorflow as tf

from tff_hdp.errors import require
from tff_hdp.noise.normals import standard_normal
from tff_hdp.noise.words import nonnegative, secure_words

# Below this many steps a rounded Gaussian is too far from a discrete one to start from.
LEAST_SIGMA = 4.0
# Beyond this many a float64, 20 standard deviations out, has too few bits beneath a
# step for `normals.RELATIVE_ERROR`.
_MOST_SIGMA = 2**11 / 20
# How much of a cell lies between a node of the Gauss-Legendre rule and its middle, and
# the nodes' weights: right to the last place to 14 standard deviations.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def discrete_gaussian(sigma: float, size: int) -> tf.Tensor:
    """Samples P(x) proportional to f(x) = exp(-x^2 / (2 sigma^2)) on the integers.

    A Gaussian rounded to cells of w integers is cell k with the average of f over it.
    With one of the cell's w integers, each as likely, it is x = w k + u with that
    average too; kept with a probability in proportion to f(x) over it, it is x with
    f(x) itself. Where sigma is small w is 1 and nearly all are kept; else w is what
    leaves sigma / w below 103, and four of five are.

    The law is as far from this as `normals.RELATIVE_ERROR` says. Beyond 20 standard
    deviations, where a number lies with probability 2^-292, f is cut off.

    Args:
      sigma: The parameter, in steps; at least `LEAST_SIGMA`.
      size: How many samples.

    Returns:
      int64 [size].

    Raises:
      ArgumentError: If `sigma` is out of range.
    """
    ok = LEAST_SIGMA <= sigma <= 2.0**40
    require(ok, "sigma", sigma, f"{LEAST_SIGMA:g}..2^40 steps")
    width, last, edge = _cells(sigma)
    cells = sigma / width
    at_last = _cell_average(tf.constant([last], tf.float64), cells)[0]
    tries = int(1.07 * edge * size) + 64

    def draw(found: tf.Tensor) -> tuple[tf.Tensor]:
        k = tf.round(cells * standard_normal(tries))
        bits = tf.bitwise.bitwise_and(nonnegative(secure_words(tries)), width - 1)
        u = bits - width // 2
        v = tf.cast(u, tf.float64) / width
        value = tf.exp(-v * (k + v / 2) / cells**2)
        kept = _uniform(tries) * edge * _cell_average(k, cells) < value * at_last
        x = width * tf.cast(k, tf.int64) + u
        return (tf.concat([found, x[kept]], 0),)

    (found,) = tf.while_loop(
        lambda found: tf.size(found) < size,
        draw,
        (tf.zeros([0], tf.int64),),
        shape_invariants=(tf.TensorShape([None]),),
    )
    return tf.ensure_shape(found[:size], [size])


def _uniform(count: int) -> tf.Tensor:
    """float64 [count] in (0, 1), by 63 bits."""
    words = tf.cast(nonnegative(secure_words(count)), tf.float64)
    return (words + 0.5) * 2.0**-63


def _cells(sigma: float) -> tuple[int, float, float]:
    """w, and the cell and value there by which f(x) over its cell's average is bounded.

    It is largest at 0, or at the inner edge of the last cell within 20 standard
    deviations.
    """
    width = 2 ** max(0, math.ceil(math.log2(sigma / _MOST_SIGMA)))
    if width == 1:
        return 1, 0.0, 1.0
    last = 20.0 * sigma / width
    return width, last, math.exp((last - 0.25) / (2 * (sigma / width) ** 2))


def _cell_average(k: tf.Tensor, sigma: float) -> tf.Tensor:
    """Average of exp(-x^2 / (2 sigma^2)) over k +- 1/2, over its value at k."""
    total = tf.zeros_like(k)
    for node, weight in zip(_NODES / 2, _WEIGHTS / 2, strict=True):
        total += weight * tf.exp(-node * (k + node / 2) / sigma**2)
    return total
