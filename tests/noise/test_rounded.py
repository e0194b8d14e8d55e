"""Noise by few bits against noise by all of them, in NumPy's float64."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.noise import rounded

CODES = 2**16
PAIRS = 200_000


def by_all_bits(high, turn, stddev):
    """Numbers of radii by 63 bits and turns by 64, as floats."""
    radius = stddev * np.sqrt(-2.0 * np.log((high + 0.5) * 2.0**-63))
    angle = 2.0 * np.pi * turn * 2.0**-64
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def drawn(seed):
    """First bits and parts: all radii, all turns, and more of both."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, CODES, (2, PAIRS)).astype(np.uint16)
    codes[0, :CODES] = codes[1, CODES : 2 * CODES] = np.arange(CODES)
    part = rng.random((2, PAIRS))
    part[:, ::7] = 0.0
    part[:, 1::7] = 0.5
    return codes, part


@pytest.mark.parametrize("stddev", [0.3, 32.0, 63.9, 202.0, 3000.0])
def test_numbers_that_are_settled_round_alike_whatever_bits_follow(stddev):
    codes, part = drawn(0)
    near, unsettled = rounded.settle(
        tf.constant(part), tf.constant(codes), tf.constant(stddev, tf.float64)
    )
    settled = np.ones(PAIRS, bool)
    settled[unsettled.numpy()] = False
    assert settled.any()
    rng = np.random.default_rng(1)
    for radius_bits in (0.0, 1e-9, rng.random(PAIRS), 1.0 - 1e-9):
        for turn_bits in (0.0, rng.random(PAIRS), 1.0):
            high = (codes[0] + radius_bits) * 2.0**47
            turn = (codes[1] + turn_bits) * 2.0**48
            exact = np.rint(part + by_all_bits(high, turn, stddev))
            np.testing.assert_array_equal(near.numpy()[:, settled], exact[:, settled])


@pytest.mark.parametrize(
    ("stddev", "least", "most"), [(63.9, 0.015, 0.04), (202, 0.05, 0.1)]
)
def test_few_pairs_are_left_open(stddev, least, most):
    codes, part = drawn(2)
    stddev = tf.constant(stddev, tf.float64)
    _, unsettled = rounded.settle(tf.constant(part), tf.constant(codes), stddev)
    # Of turns alone, 4 numbers in 5 of a pair's are as far from a half step.
    assert least < len(unsettled) / PAIRS < most


@pytest.mark.parametrize("size", [1, 2, 7, 50_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sum_is_what_all_bits_give(monkeypatch, size, dtype):
    rng = np.random.default_rng(3)
    asked = []

    def words(count):
        made = rng.integers(-(2**63), 2**63, int(count))
        asked.append(made)
        return tf.constant(made)

    monkeypatch.setattr(rounded, "secure_words", words)
    values = (rng.standard_normal(size) * 1e4).astype(dtype)
    stddev, step = 5.3, 0.125
    found = rounded.rounded_sum(
        tf.constant(values),
        tf.constant(stddev / step, tf.float64),
        tf.constant(step, tf.float64),
    )

    half = (size + 1) // 2
    codes = asked[0].view(np.uint16)[: 2 * half].reshape(2, half)
    scaled = np.zeros(2 * half)
    scaled[:size] = values.astype(np.float64) / step
    scaled = scaled.reshape(2, half)
    part = scaled - np.floor(scaled)
    steps = tf.constant(stddev / step, tf.float64)
    _, unsettled = rounded.settle(tf.constant(part), tf.constant(codes), steps)
    high, turn = (codes + 0.5) * np.array([[2.0**47], [2.0**48]])
    if len(unsettled):
        rest = asked[1].reshape(2, -1)
        here = unsettled.numpy()
        high[here] = codes[0, here] * 2.0**47 + (rest[0] & (2**47 - 1))
        turn[here] = codes[1, here] * 2.0**48 + (rest[1] & (2**48 - 1))
    exact = np.floor(scaled) + np.rint(part + by_all_bits(high, turn, stddev / step))
    exact = (exact * step).reshape(-1)[:size].astype(dtype)
    np.testing.assert_array_equal(found, exact)
    assert (size < 1000) or len(asked) == 2
