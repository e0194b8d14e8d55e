"""Prints the machine's best rate of float32 matrix products, in FLOP/s."""

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

_REPETITIONS = 12


def main() -> None:
    """Measures NumPy's and TensorFlow's product of two large square matrices."""
    size = 8192 if tf.config.list_physical_devices("GPU") else 2048
    a = np.random.default_rng(0).random((size, size), dtype=np.float32)
    tensor = tf.constant(a)
    # The sum, which must wait for the product, is all that leaves a GPU.
    seconds = _fastest(lambda: tf.reduce_sum(tf.matmul(tensor, tensor)).numpy())
    if size == 2048:
        seconds = min(seconds, _fastest(lambda: np.matmul(a, a)))
    print(2 * size**3 / seconds)


def _fastest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
