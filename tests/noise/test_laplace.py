"""The arithmetic of Laplace noise."""

import numpy as np
import tensorflow as tf

from tff_hdp.noise import STEPS, normals, samplers


def test_arithmetic_is_as_precise_as_the_error_says(monkeypatch):
    """Against 80-bit arithmetic, to 40 standard deviations as errors grow with them.

    A number's probability is that between two bounds, which both may have moved.
    """
    count = 200_000
    rng = np.random.default_rng(0)
    words = rng.integers(-(2**63), 2**63, 2 * count)
    words[::3] = np.abs(words[::3]) >> 17  # a third of them far out, of 46 bits
    monkeypatch.setattr(samplers, "secure_words", lambda _: tf.constant(words))
    further = rng.integers(0, 2**63, 2 * count)
    monkeypatch.setattr(
        normals, "secure_words", lambda size: tf.constant(further[: int(size)])
    )
    exact = np.longdouble
    high = (words & (2**63 - 1)).astype(exact)
    few = high < 2**45
    low = np.full(2 * count, exact(0.5))
    low[few] = (further[: few.sum()].astype(exact) + 0.5) / exact(2.0**63)
    first, second = np.split(-np.log((high + low) / exact(2.0**63)), 2)
    wanted = (first - second) * np.sqrt(exact(0.5))
    # Of so many steps to a standard deviation that rounding to one hides nothing.
    sigma = 2.0**46
    zeros = tf.zeros([count], tf.float64)
    one = tf.constant(1.0, tf.float64)
    found = samplers._laplace_sum(zeros, tf.constant(sigma, tf.float64), one)
    most = np.abs(wanted).max()
    assert most > 10
    moved = np.abs(found.numpy() / exact(sigma) - wanted).max() * STEPS
    assert 2.0 * moved * 40.0 / most < normals.RELATIVE_ERROR
