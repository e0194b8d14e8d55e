"""Other forms of an operation compute what the operation does."""

import importlib

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy import signal


@pytest.fixture
def step_forms(monkeypatch, repository):
    monkeypatch.syspath_prepend(repository / "benchmarks")
    return importlib.import_module("step_forms")


def _normal(*shape):
    return tf.random.stateless_normal(shape, (0, len(shape)))


def test_winograds_products_are_a_correlation(step_forms):
    to_sums, of_kernel, of_tile = (m.numpy() for m in step_forms.winograd())
    rng = np.random.default_rng(0)
    tile, kernel = rng.normal(size=(6, 6)), rng.normal(size=(5, 5))
    found = to_sums @ ((of_kernel @ kernel.ravel()) * (of_tile @ tile.ravel()))
    expected = signal.correlate2d(tile, kernel, mode="valid")
    np.testing.assert_allclose(found.reshape(2, 2), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("side", "channels", "out"), [(32, 3, 6), (16, 6, 16)])
@pytest.mark.parametrize("form", ["by_row_blocks", "by_winograd", "by_fft"])
def test_other_forms_convolve(step_forms, form, side, channels, out):
    x = tf.random.stateless_normal([2, side, side, channels], (0, 1))
    kernel = tf.random.stateless_normal([5, 5, channels, out], (0, 2))
    expected = tf.nn.conv2d(x, kernel, strides=1, padding="SAME")
    found = getattr(step_forms, form)(x, kernel)
    if form == "by_fft":
        found = tf.transpose(found, [0, 2, 3, 1])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_columns_convolve_each_client_by_its_own_kernel(step_forms):
    x, kernels = _normal(3, 2, 8, 8, 4), _normal(3, 5, 5, 4, 6)
    found = step_forms.by_columns(x, kernels)
    for own, kernel, columns in zip(x, kernels, found, strict=True):
        expected = tf.nn.conv2d(own, kernel, strides=1, padding="SAME")
        shown = tf.reshape(columns, expected.shape)
        np.testing.assert_allclose(shown, expected, rtol=1e-4, atol=1e-4)


def test_maxima_of_halves_pool(step_forms):
    x = _normal(2, 8, 6, 3)
    expected = tf.nn.max_pool2d(x, 2, 2, "VALID")
    np.testing.assert_array_equal(step_forms.by_halves(x), expected)


def test_every_form_computes_and_the_docs_have_its_row(step_forms, repository):
    forms = step_forms.forms()
    rows = pd.read_csv(repository / "docs/results/benchmarks/step_forms.csv")
    assert {name.replace("  ", "… ") for name in forms} <= set(rows["part"])
    for function, operations in forms.values():
        assert all(np.isfinite(np.sum(part)) for part in tf.nest.flatten(function()))
        assert operations >= 0
