"""Prints the machine's best rate of float32 matrix products, in FLOP/s."""

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

_SIZE = 2048
_REPETITIONS = 12


def main() -> None:
    """Measures NumPy's and TensorFlow's product of two large square matrices."""
    a = np.random.default_rng(0).random((_SIZE, _SIZE), dtype=np.float32)
    tensor = tf.constant(a)
    seconds = min(
        _fastest(lambda: np.matmul(a, a)),
        _fastest(lambda: tf.matmul(tensor, tensor).numpy()),
    )
    print(2 * _SIZE**3 / seconds)


def _fastest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
