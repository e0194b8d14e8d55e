"""FL-CS: clients send a few cosine coefficients; the server recovers a sparse sum.

A client's update x [n] is laid out as an m x m square, m = ceil(sqrt(n)), and
transformed by the orthonormal two-dimensional DCT (type II). Of its m^2
coefficients K, the same for all clients of a round, are the measurements y = A x:
random ones, drawn anew every round, or those that are largest in an update on public
data. From the aggregate of y the server finds a vector with few
non-zeros and the same measurements, by normalised iterative hard thresholding
(Blumensath and Davies 2010, "Normalized iterative hard thresholding: guaranteed
stability and performance").

The FL-TOP paper takes FL-CS from Kerkouche et al. (2020). Of the coefficients its
section 5 says "largest Fourier coefficients", not of what nor whether they are chosen
anew; of the solver, "standard optimization techniques".
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.systems.fl_top.compressors import Compressor, draw_subset
from tff_hdp.systems.fl_top.cosines import CosineTransform

# 1 - c there: a shrunken step must fall this far under the bound that makes it a
# descent. By kappa (1 - c) it shrinks.
_SAFETY = 0.99
_SHRINK = 2.0
_MOST_SHRINKS = 20
# Upper halves of float32 numbers that are not negative.
_BINS = 2**15


class CompressedSensing(Compressor):
    """K cosine coefficients up, all n weights down.

    Args:
      num_weights: n.
      size: K.
      seed: Public, in 0..2^31 - 1.
      sparsity: Non-zeros to recover; None takes K / 4, about as many as K
        measurements can tell.
      iterations: Of the recovery.
      coefficients: [K] int32, those to measure in every round; None draws them.
    """

    def __init__(
        self,
        num_weights: int,
        size: int,
        seed: int,
        *,
        sparsity: int | None = None,
        iterations: int = 30,
        coefficients: np.ndarray | None = None,
    ) -> None:
        self.num_weights = self.download_size = num_weights
        self.upload_size = size
        self.is_random = coefficients is None
        self._seed, self._coefficients = seed, coefficients
        self._sparsity = sparsity or max(1, size // 4)
        self._iterations = iterations
        self._side = math.isqrt(num_weights - 1) + 1
        self._cosines = CosineTransform(self._side)

    def measure(self, updates: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        """A x for each of C vectors [C, n]: [C, K]; `chosen` as by the method."""
        side = self._side
        padded = tf.pad(updates, [[0, 0], [0, side**2 - self.num_weights]])
        found = self._cosines.forward(tf.reshape(padded, [-1, side, side]))
        places = self._cosines.places(chosen)
        return tf.gather(tf.reshape(found, [-1, side**2]), places, axis=1)

    def adjoint(self, measured: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        """A^T y, [n], of one vector of measurements [K]; `chosen` as above."""
        side = self._side
        places = self._cosines.places(chosen)[:, tf.newaxis]
        coefficients = tf.scatter_nd(places, measured, [side**2])
        back = self._cosines.inverse(tf.reshape(coefficients, [1, side, side]))
        return tf.reshape(back, [-1])[: self.num_weights]

    def chosen(self, round_number: tf.Tensor) -> tf.Tensor:
        """Which coefficients a round measures, int32 [K], of m^2."""
        if self._coefficients is not None:
            return tf.constant(self._coefficients, tf.int32)
        return draw_subset(self._side**2, self.upload_size, self._seed, round_number)

    def compress(self, updates: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return self.measure(updates, self.chosen(round_number))

    def decompress(self, update: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class; the recovery."""
        # Once: with many coefficients a draw takes longer than a transform.
        chosen = self.chosen(round_number)

        def forward(x: tf.Tensor) -> tf.Tensor:
            return self.measure(x[tf.newaxis], chosen)[0]

        def step(
            i: tf.Tensor, x: tf.Tensor, seen: tf.Tensor, support: tf.Tensor
        ) -> Any:
            downhill = self.adjoint(update - seen, chosen)
            on_support = tf.where(support, downhill, 0.0)
            mu = _ratio(on_support, forward(on_support), otherwise=0.0)

            def tried(mu: tf.Tensor) -> tuple[tf.Tensor, ...]:
                new = self._threshold(x + mu * downhill)
                return mu, new, forward(new - x)

            def too_long(mu: tf.Tensor, new: tf.Tensor, change: tf.Tensor) -> Any:
                # Always a descent while the support stays.
                moved = tf.reduce_any(tf.not_equal(tf.not_equal(new, 0.0), support))
                bound = _ratio(new - x, change, otherwise=float("inf"))
                return tf.logical_and(moved, mu > _SAFETY * bound)

            _, _, new, change = tf.while_loop(
                lambda tries, *at: tf.logical_and(tries < _MOST_SHRINKS, too_long(*at)),
                lambda tries, mu, *_: (tries + 1, *tried(mu / _SHRINK)),
                (0, *tried(mu)),
            )
            return i + 1, new, seen + change, tf.not_equal(new, 0.0)

        first = self.adjoint(update, chosen)
        _, x, _, _ = tf.while_loop(
            lambda i, *_: i < self._iterations,
            step,
            (
                *(0, tf.zeros_like(first), tf.zeros_like(update)),
                tf.not_equal(self._threshold(first), 0.0),
            ),
        )
        return x

    def _threshold(self, x: tf.Tensor) -> tf.Tensor:
        """Keeps the `sparsity` entries of largest magnitude."""
        least = kth_greatest(tf.abs(x), self._sparsity)
        return tf.where(tf.abs(x) >= least, x, 0.0)


def kth_greatest(x: tf.Tensor, k: int) -> tf.Tensor:
    """The k-th of x [n] in falling order, float32 that is not negative.

    Counts by sign, exponent and the seven highest bits of the mantissa; only what is
    in the bin of the k-th is sorted. Bits of such numbers are in the order of the
    numbers.
    """
    bits = tf.bitcast(x, tf.int32)
    bins = tf.bitwise.right_shift(bits, 16)
    counts = tf.math.bincount(bins, minlength=_BINS, maxlength=_BINS)
    # Of each bin and those above it.
    at_least = tf.cumsum(counts, reverse=True)
    own = tf.math.count_nonzero(at_least >= k, dtype=tf.int32) - 1
    left = k - (at_least[own] - counts[own])
    among = tf.boolean_mask(bits, tf.equal(bins, own))
    return tf.bitcast(tf.math.top_k(among, left).values[-1], tf.float32)


def largest_coefficients(update: np.ndarray, size: int) -> np.ndarray:
    """Which K cosine coefficients of an update are largest, int32 in rising order.

    Args:
      update: [n].
      size: K.
    """
    every = (math.isqrt(len(update) - 1) + 1) ** 2
    whole = CompressedSensing(
        len(update), every, 0, coefficients=np.arange(every, dtype=np.int32)
    )
    chosen = whole.chosen(tf.constant(0))
    found = whole.measure(tf.constant(update)[tf.newaxis], chosen)[0].numpy()
    return np.sort(np.argsort(-np.abs(found), kind="stable")[:size]).astype(np.int32)


def _ratio(x: tf.Tensor, measured: tf.Tensor, *, otherwise: float) -> tf.Tensor:
    """||x||^2 / ||A x||^2, or `otherwise` where A x = 0."""
    whole, seen = tf.reduce_sum(x**2), tf.reduce_sum(measured**2)
    return tf.where(seen > 0.0, whole / tf.maximum(seen, 1e-30), otherwise)
