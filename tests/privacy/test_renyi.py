import functools
import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, special, stats

from tff_hdp.privacy.composition import LARGE_ORDERS, ORDERS
from tff_hdp.privacy.divergences import (
    _log_even_moments,
    log_moments,
    without_replacement_moments,
)
from tff_hdp.privacy.sampled import SampledGaussian
from tff_hdp.privacy.spectrum import (
    Spectrum,
    binomial_pool,
    hypergeometric_pool,
    noise_spectrum,
)


@pytest.mark.parametrize(
    ("q", "z"), [(0.2, 1.0), (0.2, 0.1), (1 / 60, 1.54), (0.9, 0.3), (0.5, 10.0)]
)
def test_moments_match_dp_accounting(q, z):
    # Below 1.1 dp_accounting's series is cut off at e^-30 and the digits go.
    orders = tuple(a for a in ORDERS if a >= 1.1)
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    theirs = RdpAccountant(orders).compose(event).rdp
    ours = log_moments(q, z, orders) / (np.array(orders) - 1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("order", [1.011, 1.5, 2.0, 7.3, 20.0])
def test_moments_match_quadrature(order):
    q, z = 0.3, 0.8

    def integrand(x):
        ratio = 1 - q + q * math.exp((2 * x - 1) / (2 * z * z))
        return math.exp(stats.norm.logpdf(x, 0, z) + order * math.log(ratio))

    whole, _ = integrate.quad(integrand, -12, 32, limit=500, points=[0.0, order])
    assert log_moments(q, z, (order,))[0] == pytest.approx(math.log(whole), rel=1e-8)


def exact_without_replacement(q, z, order):
    """Theorem 27 of Wang et al. term by term, in as many digits as it takes."""
    with mpmath.workdps(400):
        moments = [mpmath.exp(mpmath.mpf(i) * (i - 1) / 2 / z**2) for i in range(257)]

        @functools.cache
        def difference(i):
            terms = (
                (-1) ** k * mpmath.binomial(i, k) * moments[k] for k in range(i + 1)
            )
            return mpmath.fsum(terms)

        total = mpmath.mpf(1)
        for i in range(2, order + 1):
            bound = 2 * moments[i]
            if i == 2:
                bound = min(bound, 4 * (moments[2] - 1))
            else:
                even = difference(i // 2 * 2) * difference((i + 1) // 2 * 2)
                bound = min(bound, 4 * mpmath.sqrt(even))
            total += mpmath.mpf(q) ** i * mpmath.binomial(order, i) * bound
        return float(mpmath.log(total))


@pytest.mark.parametrize(
    ("q", "z", "order"),
    [
        *((0.2, 10.0, 2), (0.2, 10.0, 3), (0.2, 10.0, 64)),
        *((0.7, 100.0, 63), (0.2, 1000.0, 128), (0.99, 1.0, 40)),
        *((0.3, 0.5, 20), (0.3, 0.49, 20), (1e-4, 2.0, 50), (0.01, 100.0, 256)),
    ],
)
def test_moments_without_replacement_are_exact(q, z, order):
    always = np.array([q]), np.ones(1)
    found = without_replacement_moments(*always, z, (float(order),))[0]
    expected = exact_without_replacement(q, z, order)
    assert found == pytest.approx(expected, rel=1e-9)
    # Between whole orders, on the line between them (Corollary 10).
    orders = (float(order), order + 0.25, order + 1.0)
    ends = without_replacement_moments(*always, z, orders)
    assert ends[1] == pytest.approx(0.75 * ends[0] + 0.25 * ends[2], rel=1e-12)


@pytest.mark.parametrize("power", [0, 2, 30, 256])
def test_even_moments_around_one(power):
    place = power // 2
    # Of much noise, those of a Gaussian of deviation 1 / z: (2k - 1)!! / z^2k.
    z = 1e7
    double = special.gammaln(power + 1) - special.gammaln(place + 1)
    expected = double - place * math.log(2) - power * math.log(z)
    assert _log_even_moments(z)[place] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    z = 10.0
    with mpmath.workdps(400):
        terms = [
            (-1) ** i
            * mpmath.binomial(power, i)
            * mpmath.exp(mpmath.mpf(i) * (i - 1) / 2 / z**2)
            for i in range(power + 1)
        ]
        exact = float(mpmath.log(mpmath.fsum(terms)))
    assert _log_even_moments(z)[place] == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("z", [0.02, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("q", [1e-4, 0.2, 0.99, 1.0])
def test_moments_without_replacement_match_dp_accounting(q, z):
    """Where z is so small that its differences keep their digits."""
    orders = (1.0001, 1.5, 2.0, 2.5, 7.3, 20.0, 63.5, 256.0, 256.5, 300.0, 1024.0)
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        10**4, round(q * 10**4), dp_accounting.GaussianDpEvent(z)
    )
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    theirs = RdpAccountant(orders, relation).compose(event).rdp
    found = without_replacement_moments(np.array([q]), np.ones(1), z, orders)
    np.testing.assert_allclose(found / (np.asarray(orders) - 1), theirs, rtol=1e-9)


def test_large_orders_keep_tiny_moments():
    # For z >> order the moment is q^2 a (a-1) / 2z^2 to first order.
    q, z, order = 0.01, 1e8, LARGE_ORDERS[-1]
    expected = q * q * order * (order - 1) * math.expm1(1 / (z * z)) / 2
    assert log_moments(q, z, (order,))[0] == pytest.approx(expected, rel=1e-6)


def test_revealed_participation_formula():
    # ln(1 - q + q E exp(a(a-1) / 2(K z^2 + V))) / (a-1), K = 1 + Bin(19, q).
    q, z, fixed = 0.3, 0.7, 0.4
    spectrum = noise_spectrum(fixed + z * z, [binomial_pool(z * z, 19, q)])
    rdp = SampledGaussian(q, spectrum, hidden=False).rdp((3.5,))[0]
    k = 1 + np.arange(20)
    mean = stats.binom.pmf(k - 1, 19, q) @ np.exp(3.5 * 2.5 / (2 * (k * z * z + fixed)))
    assert rdp == pytest.approx(math.log(1 - q + q * mean) / 2.5, rel=1e-12)


def test_hiding_participation_never_costs():
    spectrum = noise_spectrum(0.5, [binomial_pool(0.5, 30, 0.2)])
    hidden = SampledGaussian(0.2, spectrum, hidden=True).rdp(ORDERS)
    revealed = SampledGaussian(0.2, spectrum, hidden=False).rdp(ORDERS)
    assert np.all(hidden <= revealed * (1 + 1e-12))


def test_spectrum_of_equal_pools_is_one_binomial():
    pools = [binomial_pool(2.0, n, 0.3) for n in (3, 5, 7)]
    spectrum = noise_spectrum(1.0, pools)
    assert spectrum.variances == pytest.approx(1.0 + 2.0 * np.arange(16))
    np.testing.assert_allclose(
        np.exp(spectrum.log_probabilities), stats.binom.pmf(np.arange(16), 15, 0.3)
    )


def test_spectrum_of_unequal_pools_by_enumeration():
    spectrum = noise_spectrum(
        0.5, [binomial_pool(1.0, 2, 0.3), binomial_pool(4, 1, 0.6)]
    )
    expected = {}
    for a in range(3):
        for b in range(2):
            p = stats.binom.pmf(a, 2, 0.3) * stats.binom.pmf(b, 1, 0.6)
            expected[0.5 + a + 4 * b] = expected.get(0.5 + a + 4 * b, 0) + p
    assert dict(
        zip(spectrum.variances, np.exp(spectrum.log_probabilities), strict=True)
    ) == pytest.approx(expected)


def test_many_unequal_pools_round_variance_down():
    rng = np.random.default_rng(1)
    sizes, weights = rng.integers(5, 30, 12), rng.uniform(0.2, 3.0, 12)
    spectrum = noise_spectrum(
        1.0,
        [
            binomial_pool(float(w), int(n), 0.25)
            for n, w in zip(sizes, weights, strict=True)
        ],
    )
    mean = 1.0 + 0.25 * float(sizes @ weights)
    assert np.exp(spectrum.log_probabilities).sum() == pytest.approx(1.0)
    assert 0.99 * mean < np.exp(spectrum.log_probabilities) @ spectrum.variances <= mean


@pytest.mark.parametrize(("zones", "size", "q"), [(3, 4, 0.3), (300, 40, 0.05)])
def test_zones_alike_that_may_be_left_out_by_direct_convolution(zones, size, q):
    """Exact where there are few, else rounded down by less than 1 %."""
    pools = [binomial_pool(0.5, size, q).left_out_below(2)] * zones
    spectrum = noise_spectrum(1.0, pools)
    one = stats.binom.pmf(np.arange(size + 1), size, q)
    one[0], one[1] = one[0] + one[1], 0.0
    total = np.ones(1)
    for _ in range(zones):
        total = np.convolve(total, one)
    variances, exact = 1.0 + 0.5 * np.arange(len(total)), np.cumsum(total)
    if zones == 3:
        there = total > 0
        assert spectrum.variances == pytest.approx(variances[there])
        np.testing.assert_allclose(np.exp(spectrum.log_probabilities), total[there])
        return

    def chance_of_no_more(than):
        return exact[np.searchsorted(variances, than, side="right") - 1]

    found, at = np.cumsum(np.exp(spectrum.log_probabilities)), spectrum.variances
    assert np.all(found >= chance_of_no_more(at) - 1e-9)
    assert np.all(found <= chance_of_no_more(1.01 * np.asarray(at)) + 1e-9)


def test_compact_is_pessimistic_and_keeps_the_mass():
    spectrum = noise_spectrum(1.0, [binomial_pool(1.0, 3000, 0.05)])
    compact = spectrum.compact()
    assert len(compact.variances) < 400 < len(spectrum.variances)
    assert np.exp(compact.log_probabilities).sum() == pytest.approx(1.0, abs=1e-12)
    for order in (2.0, 8.0):
        full = SampledGaussian(0.1, spectrum, hidden=False).rdp((order,))
        rounded = SampledGaussian(0.1, compact, hidden=False).rdp((order,))
        assert full <= rounded <= full * (1 + 1e-9)


def test_nobody_else_adds_nothing():
    """A zone of one client."""
    for arrival in (1.0, 0.8):
        pool = hypergeometric_pool(1.0, others=0, noising=0, drawn=0, arrival=arrival)
        assert noise_spectrum(2.0, [pool]).variances == (2.0,)


def test_hypergeometric_pool_with_dropouts_by_simulation():
    pool = hypergeometric_pool(1.0, others=12, noising=7, drawn=5, arrival=0.8)
    rng = np.random.default_rng(2)
    drawn = rng.hypergeometric(7, 5, 5, size=200_000)
    counts = np.bincount(rng.binomial(drawn, 0.8), minlength=6) / 200_000
    np.testing.assert_allclose(np.exp(pool.log_pmf), counts, atol=0.005)


def test_a_round_without_noise_has_no_divergence_bound():
    bare = SampledGaussian(0.5, Spectrum((0.0, 1.0), (math.log(0.1),) * 2), False)
    assert np.all(np.isinf(bare.rdp((2.0, 3.0))))
