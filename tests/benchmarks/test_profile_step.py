"""Other forms of an operation compute what the operation does."""

import importlib

import numpy as np
import pytest
import tensorflow as tf
from scipy import signal


@pytest.fixture
def profile_step(monkeypatch, repository):
    monkeypatch.syspath_prepend(repository / "benchmarks")
    return importlib.import_module("profile_step")


def test_winograds_products_are_a_correlation(profile_step):
    to_sums, of_kernel, of_tile = (m.numpy() for m in profile_step._winograd())
    rng = np.random.default_rng(0)
    tile, kernel = rng.normal(size=(6, 6)), rng.normal(size=(5, 5))
    found = to_sums @ ((of_kernel @ kernel.ravel()) * (of_tile @ tile.ravel()))
    expected = signal.correlate2d(tile, kernel, mode="valid")
    np.testing.assert_allclose(found.reshape(2, 2), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("side", "channels", "out"), [(32, 3, 6), (16, 6, 16)])
def test_row_blocks_convolve(profile_step, side, channels, out):
    x = tf.random.stateless_normal([2, side, side, channels], (0, 1))
    kernel = tf.random.stateless_normal([5, 5, channels, out], (0, 2))
    expected = tf.nn.conv2d(x, kernel, strides=1, padding="SAME")
    found = profile_step._by_row_blocks(x, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
