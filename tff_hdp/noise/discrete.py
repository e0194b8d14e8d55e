"""Discrete Gaussian noise of cryptographic randomness, for sums of integers."""

import numpy as np
import tensorflow as tf

from tff_hdp.errors import require
from tff_hdp.noise.normals import standard_normal
from tff_hdp.noise.samplers import uniform

# Below this many steps a rounded Gaussian is too far from a discrete one to start from.
LEAST_SIGMA = 4.0
# How much of a cell lies between a node of the Gauss-Legendre rule and its middle, and
# the nodes' weights: right to the last place to 14 standard deviations.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def discrete_gaussian(sigma: float, size: int) -> tf.Tensor:
    """Samples P(k) proportional to exp(-k^2 / (2 sigma^2)) on the integers.

    A rounded Gaussian is k with the average of that function over k's cell; kept with
    a probability in proportion to the function's value over its average, it is k with
    the value itself. Nearly all are kept.

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
    at_zero = _cell_average(tf.zeros([1], tf.float64), sigma)[0]
    tries = size + size // 16 + 64

    def draw(found: tf.Tensor) -> tuple[tf.Tensor]:
        k = tf.round(sigma * standard_normal(tries))
        kept = uniform(tries) * _cell_average(k, sigma) < at_zero
        return (tf.concat([found, tf.cast(k[kept], tf.int64)], 0),)

    (found,) = tf.while_loop(
        lambda found: tf.size(found) < size,
        draw,
        (tf.zeros([0], tf.int64),),
        shape_invariants=(tf.TensorShape([None]),),
    )
    return tf.ensure_shape(found[:size], [size])


def _cell_average(k: tf.Tensor, sigma: float) -> tf.Tensor:
    """Average over k's cell of exp(-x^2 / (2 sigma^2)), over its value at k."""
    total = tf.zeros_like(k)
    for node, weight in zip(_NODES / 2, _WEIGHTS / 2, strict=True):
        total += weight * tf.exp(-node * (k + node / 2) / sigma**2)
    return total
