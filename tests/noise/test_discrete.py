"""The discrete Gaussian against its probabilities, written down."""

import numpy as np
import pytest
from scipy import stats

from tff_hdp.errors import ArgumentError
from tff_hdp.noise import discrete_gaussian


@pytest.mark.parametrize("sigma", [4.0, 10.0, 33.3])
def test_counts_are_those_of_the_law(sigma):
    size = 400_000
    sample = discrete_gaussian(sigma, size).numpy()
    assert sample.dtype == np.int64
    assert sample.shape == (size,)
    whole = np.arange(-int(20 * sigma), int(20 * sigma) + 1)
    probabilities = np.exp(-(whole**2) / (2 * sigma**2))
    probabilities /= probabilities.sum()
    near = np.abs(whole) <= int(3.5 * sigma)
    expected = size * np.append(probabilities[near], probabilities[~near].sum())
    found = np.array([np.sum(sample == k) for k in whole[near]])
    found = np.append(found, size - found.sum())
    # A right sampler fails once in a million runs.
    assert stats.chisquare(found, expected).pvalue > 1e-6


def test_it_is_not_a_rounded_gaussian():
    """At 4 steps the two differ enough in variance to be told apart."""
    size = 4_000_000
    sample = discrete_gaussian(4.0, size).numpy()
    error = 16 * (2 / size) ** 0.5
    assert abs(sample.var() - 16.0) < 5 * error
    assert abs(sample.var() - (16.0 + 1 / 12)) > 2 * error


def test_large_parameters_and_none():
    sample = discrete_gaussian(2.0**30, 100_000).numpy()
    assert abs(sample.std() / 2.0**30 - 1) < 5 / (2 * 100_000) ** 0.5
    assert discrete_gaussian(10.0, 0).shape == (0,)


@pytest.mark.parametrize("sigma", [3.9, 0.0, -1.0, 2.0**41, float("nan")])
def test_parameters_out_of_range_are_refused(sigma):
    with pytest.raises(ArgumentError, match="sigma is"):
        discrete_gaussian(sigma, 3)
