import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.secagg import noise
from tff_hdp.protocols.secagg.masks import SecureRandom


def seeded(number):
    return SecureRandom(bytes([number]) * 32)


def pmf(sigma, radius):
    x = np.arange(-radius, radius + 1)
    weights = np.exp(-(x.astype(np.float64) ** 2) / (2 * sigma**2))
    return x, weights / weights.sum()


def check_against_pmf(samples, sigma):
    radius = max(2, math.ceil(12 * sigma))
    x, probabilities = pmf(sigma, radius)
    assert np.abs(samples).max() <= radius
    counts = np.bincount(samples + radius, minlength=len(x))
    # Pool the tails so that every cell expects at least ten.
    expected = probabilities * len(samples)
    cells = np.searchsorted(np.cumsum(expected), np.arange(10, len(samples), 10))
    edges = np.unique(np.concatenate([[0], cells + 1, [len(x)]]))
    pooled = np.add.reduceat(counts, edges[:-1])
    wanted = np.add.reduceat(expected, edges[:-1])
    keep = wanted > 5
    statistic = ((pooled - wanted)[keep] ** 2 / wanted[keep]).sum()
    assert scipy.stats.chi2.sf(statistic, keep.sum() - 1) > 1e-4


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 2.5, 17.3])
def test_samples_follow_the_pmf(sigma):
    samples = noise.discrete_gaussian(sigma, 40_000, random=seeded(1))
    check_against_pmf(samples, sigma)


@pytest.mark.parametrize("sigma", [0.5, 3.0, 1e3, 1e7])
def test_moments(sigma):
    n = 100_000
    samples = noise.discrete_gaussian(sigma, n, random=seeded(2)).astype(float)
    radius = min(math.ceil(12 * sigma), 20_000)
    x, probabilities = pmf(min(sigma, 1e3), radius)
    variance = (x**2 * probabilities).sum() if sigma <= 1e3 else sigma**2
    assert abs(samples.mean()) < 5 * np.sqrt(variance / n)
    assert samples.var() == pytest.approx(variance, rel=0.02)
    if sigma > 100:
        assert abs(scipy.stats.kurtosis(samples)) < 0.1
        assert scipy.stats.kstest(samples / sigma, "norm").pvalue > 1e-4


def test_close_calls_are_decided_exactly(monkeypatch):
    # With the margin at 1 every single decision takes the exact way.
    monkeypatch.setattr(noise, "_MARGIN", 1.0)
    check_against_pmf(noise.discrete_gaussian(1.7, 800, random=seeded(3)), 1.7)


def test_both_ways_of_deciding_agree(monkeypatch):
    quick = noise.discrete_gaussian(0.9, 1, random=seeded(4))
    assert quick.shape == (1,)
    for exponent in (Fraction(0), Fraction(1), Fraction(1, 3), Fraction(25, 7)):
        at = int(math.exp(-exponent) * 2**64) << 128
        step = 1 << 160
        if exponent:
            assert not noise._below_exp(at + step, exponent)
        assert noise._below_exp(at - step, exponent)


def test_no_noise_and_bad_sigmas():
    np.testing.assert_array_equal(noise.discrete_gaussian(0.0, 3), np.zeros(3))
    for sigma in (-1.0, 2.0**41, float("nan")):
        with pytest.raises(ArgumentError, match="sigma is"):
            noise.discrete_gaussian(sigma, 1)


def test_fresh_noise_differs_from_call_to_call():
    one, two = (noise.discrete_gaussian(50.0, 20) for _ in range(2))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize(("sigma", "k"), [(0.5, 2), (0.5, 4), (0.7, 3), (1.0, 6)])
def test_the_gap_of_a_sum_bounds_the_true_one(sigma, k):
    # The exact law of the sum, by convolution, against the discrete Gaussian of
    # k times the variance; compared where both are well above rounding.
    radius = 60
    _, single = pmf(sigma, radius)
    total = single
    for _ in range(k - 1):
        total = np.convolve(total, single)
    y = np.arange(-(len(total) // 2), len(total) // 2 + 1)
    target = np.exp(-(y.astype(float) ** 2) / (2 * k * sigma**2))
    target /= target.sum()
    inside = (target > 1e-12) & (total > 1e-12)
    gap = np.abs(np.log(total[inside] / target[inside])).max()
    assert gap <= noise.sum_gap(sigma, k)
    assert noise.sum_gap(sigma, 1) == 0.0
    assert noise.sum_gap(4.0, k) < 1e-60


@pytest.mark.parametrize(("sigma", "k", "shift"), [(0.6, 3, 1), (1.0, 2, 2)])
def test_concentrated_privacy_bounds_the_true_divergence(sigma, k, shift):
    # One coordinate: the exact law of the noise, moved by the sensitivity.
    _, total = pmf(sigma, 40)
    for _ in range(k - 1):
        total = np.convolve(total, pmf(sigma, 40)[1])
    p, q = total[shift:], total[:-shift]
    inside = (p > 1e-30) & (q > 1e-30)
    epsilon = noise.concentrated_epsilon(shift, sigma, k, 1)
    for alpha in (1.5, 2.0, 4.0):
        moment = (p[inside] ** alpha * q[inside] ** (1 - alpha)).sum()
        divergence = np.log(moment) / (alpha - 1)
        assert divergence <= alpha * epsilon**2 / 2
        # And it is not loose: the continuous Gaussian's is within a tenth.
        assert divergence >= 0.9 * alpha * (shift / sigma) ** 2 / (2 * k)


def test_from_a_step_on_there_is_as_much_noise_as_is_asked_for():
    """Why secure sums take no narrower shares."""
    for sigma, lacks in ((0.5, 1 / 7), (1.0, 2e-7)):
        x, single = pmf(sigma, 40)
        assert 1 - (x**2 * single).sum() / sigma**2 == pytest.approx(lacks, rel=0.06)


@pytest.mark.parametrize(
    ("sensitivity", "sigma", "clients", "size", "name"),
    [
        # Narrower noise does not keep what the theorem says of wider.
        (1.0, 0.35, 2, 1, "sigma"),
        (1.0, -1.0, 3, 1, "sigma"),
        (1.0, np.nan, 2, 1, "sigma"),
        (-1.0, 1.0, 3, 1, "sensitivity"),
        (np.nan, 1.0, 3, 1, "sensitivity"),
        (1.0, 1.0, 0, 1, "num_clients"),
        (1.0, 1.0, 2.5, 1, "num_clients"),
        (1.0, 1.0, 3, -5, "size"),
    ],
)
def test_what_no_bound_holds_for_is_refused(sensitivity, sigma, clients, size, name):
    with pytest.raises(ArgumentError, match=f"^{name} is "):
        noise.concentrated_epsilon(sensitivity, sigma, clients, size)


@pytest.mark.parametrize(("sigma", "size"), [(-1.0, 3), (np.nan, 3), (1, -1)])
def test_no_samples_of_what_is_no_distribution(sigma, size):
    with pytest.raises(ArgumentError, match=r"^(sigma|size) is "):
        noise.discrete_gaussian(sigma, size)


def test_concentrated_privacy_of_wide_noise_is_the_gaussians():
    epsilon = noise.concentrated_epsilon(30.0, 10.0, 9, 10**6)
    assert epsilon == pytest.approx(30.0 / 30.0)
