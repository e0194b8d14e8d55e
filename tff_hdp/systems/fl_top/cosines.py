"""The two-dimensional cosine transform of square matrices, by matrix products.

Cosines of even frequency are the same from both ends of a row, those of odd frequency
the other way round: the sums and the differences of mirrored entries are transformed
apart, by matrices of half the size, in half the arithmetic of whole ones. On CPUs that
is sooner done than TensorFlow's FFT, as of `tf.signal.dct` (docs/benchmarks.md).
"""

import numpy as np
import scipy.fft
import tensorflow as tf


class CosineTransform:
    """The orthonormal DCT (type II) over both axes of m x m matrices, and its inverse.

    Along both axes coefficients are in the order 0, 2, 4, ..., 1, 3, 5, ...

    Args:
      side: m, at least 1.
    """

    def __init__(self, side: int) -> None:
        self._side = side
        self._half = side // 2
        cosines = scipy.fft.dct(np.eye(side), axis=0, norm="ortho", workers=1)
        cosines = cosines.astype(np.float32)
        # With m odd the entry in the middle is its own mirror image.
        self._even = cosines[::2, : side - self._half]
        self._odd = cosines[1::2, : self._half]

    def places(self, coefficients: tf.Tensor) -> tf.Tensor:
        """Where coefficients, by frequency as row m + column, are in flat results."""
        side = self._side
        frequencies = (coefficients // side, coefficients % side)
        row, column = (f // 2 + f % 2 * (side - self._half) for f in frequencies)
        return row * side + column

    def forward(self, squares: tf.Tensor) -> tf.Tensor:
        """Coefficients [C, m, m] of matrices [C, m, m]."""
        even, odd = tf.constant(self._even), tf.constant(self._odd)
        sums, differences = self._folded(squares, axis=2)
        across = [
            tf.matmul(sums, even, transpose_b=True),
            tf.matmul(differences, odd, transpose_b=True),
        ]
        sums, differences = self._folded(tf.concat(across, 2), axis=1)
        return tf.concat(
            [
                tf.matmul(even[tf.newaxis], sums),
                tf.matmul(odd[tf.newaxis], differences),
            ],
            1,
        )

    def inverse(self, coefficients: tf.Tensor) -> tf.Tensor:
        """The matrices [C, m, m] of coefficients [C, m, m]."""
        even, odd = tf.constant(self._even), tf.constant(self._odd)
        sizes = [self._side - self._half, self._half]
        of_even, of_odd = tf.split(coefficients, sizes, 1)
        down = self._unfolded(
            tf.matmul(even[tf.newaxis], of_even, transpose_a=True),
            tf.matmul(odd[tf.newaxis], of_odd, transpose_a=True),
            axis=1,
        )
        of_even, of_odd = tf.split(down, sizes, 2)
        return self._unfolded(tf.matmul(of_even, even), tf.matmul(of_odd, odd), axis=2)

    def _folded(self, x: tf.Tensor, axis: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums and differences of mirrored entries; sums end with the middle one."""
        sizes = [self._half, self._side - 2 * self._half, self._half]
        head, middle, tail = tf.split(x, sizes, axis)
        mirrored = tf.reverse(tail, [axis])
        return tf.concat([head + mirrored, middle], axis), head - mirrored

    def _unfolded(self, same: tf.Tensor, opposite: tf.Tensor, axis: int) -> tf.Tensor:
        """The inverse of `_folded`, of parts that are alike and opposite mirrored."""
        sizes = [self._half, self._side - 2 * self._half]
        same, middle = tf.split(same, sizes, axis)
        tail = tf.reverse(same - opposite, [axis])
        return tf.concat([same + opposite, middle, tail], axis)
