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
import scipy.fft
import tensorflow as tf

from tff_hdp.systems.fl_top.compressors import Compressor, draw_subset

# A shrunken step must fall this far under the bound that makes it a descent.
_SAFETY = 0.99
_SHRINK = 2.0
_MOST_SHRINKS = 20


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
        self._cosines = scipy.fft.dct(
            np.eye(self._side), axis=0, norm="ortho", workers=1
        ).astype(np.float32)

    def measure(self, updates: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """A x for each of C vectors [C, n]: [C, K]."""
        side = self._side
        padded = tf.pad(updates, [[0, 0], [0, side**2 - self.num_weights]])
        square = tf.reshape(padded, [-1, side, side])
        cosines = tf.constant(self._cosines)
        coefficients = tf.matmul(
            tf.matmul(cosines[tf.newaxis], square), cosines, transpose_b=True
        )
        flat = tf.reshape(coefficients, [-1, side**2])
        return tf.gather(flat, self._chosen(round_number), axis=1)

    def adjoint(self, measured: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """A^T y, [n], of one vector of measurements [K]."""
        side = self._side
        chosen = self._chosen(round_number)[:, tf.newaxis]
        square = tf.reshape(tf.scatter_nd(chosen, measured, [side**2]), [side, side])
        cosines = tf.constant(self._cosines)
        back = tf.matmul(tf.matmul(cosines, square, transpose_a=True), cosines)
        return tf.reshape(back, [-1])[: self.num_weights]

    def compress(self, updates: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return self.measure(updates, round_number)

    def decompress(self, update: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class; the recovery."""

        def forward(x: tf.Tensor) -> tf.Tensor:
            return self.measure(x[tf.newaxis], round_number)[0]

        def step(i: tf.Tensor, x: tf.Tensor, support: tf.Tensor) -> Any:
            downhill = self.adjoint(update - forward(x), round_number)
            on_support = tf.where(support, downhill, 0.0)
            rate = _ratio(on_support, forward(on_support), otherwise=0.0)

            def too_long(new: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
                # Always a descent while the support stays.
                moved = tf.reduce_any(tf.not_equal(tf.not_equal(new, 0.0), support))
                bound = _ratio(new - x, forward(new - x), otherwise=float("inf"))
                return tf.logical_and(moved, rate > _SAFETY * bound)

            _, new, _ = tf.while_loop(
                lambda tries, new, rate: tf.logical_and(
                    tries < _MOST_SHRINKS, too_long(new, rate)
                ),
                lambda tries, new, rate: (
                    tries + 1,
                    self._threshold(x + rate / _SHRINK * downhill),
                    rate / _SHRINK,
                ),
                (0, self._threshold(x + rate * downhill), rate),
            )
            return i + 1, new, tf.not_equal(new, 0.0)

        first = self.adjoint(update, round_number)
        start = tf.zeros_like(first)
        _, x, _ = tf.while_loop(
            lambda i, *_: i < self._iterations,
            step,
            (0, start, tf.not_equal(self._threshold(first), 0.0)),
        )
        return x

    def _chosen(self, round_number: tf.Tensor) -> tf.Tensor:
        if self._coefficients is not None:
            return tf.constant(self._coefficients, tf.int32)
        return draw_subset(self._side**2, self.upload_size, self._seed, round_number)

    def _threshold(self, x: tf.Tensor) -> tf.Tensor:
        """Keeps the `sparsity` entries of largest magnitude."""
        least = tf.math.top_k(tf.abs(x), self._sparsity).values[-1]
        return tf.where(tf.abs(x) >= least, x, 0.0)


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
    found = whole.measure(tf.constant(update)[tf.newaxis], tf.constant(0))[0].numpy()
    return np.sort(np.argsort(-np.abs(found), kind="stable")[:size]).astype(np.int32)


def _ratio(x: tf.Tensor, measured: tf.Tensor, *, otherwise: float) -> tf.Tensor:
    """||x||^2 / ||A x||^2, or `otherwise` where A x = 0."""
    whole, seen = tf.reduce_sum(x**2), tf.reduce_sum(measured**2)
    return tf.where(seen > 0.0, whole / tf.maximum(seen, 1e-30), otherwise)
