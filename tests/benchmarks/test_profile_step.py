"""Other forms of an operation compute what the operation does."""

import importlib

import numpy as np
from scipy import signal


def test_winograds_products_are_a_correlation(monkeypatch, repository):
    monkeypatch.syspath_prepend(repository / "benchmarks")
    profile_step = importlib.import_module("profile_step")
    to_sums, of_kernel, of_tile = (m.numpy() for m in profile_step._winograd())
    rng = np.random.default_rng(0)
    tile, kernel = rng.normal(size=(6, 6)), rng.normal(size=(5, 5))
    found = to_sums @ ((of_kernel @ kernel.ravel()) * (of_tile @ tile.ravel()))
    expected = signal.correlate2d(tile, kernel, mode="valid")
    np.testing.assert_allclose(found.reshape(2, 2), expected, rtol=1e-4, atol=1e-4)
