import math

import numpy as np
import pytest
from scipy import stats

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.mechanisms import Gaussian, Laplace
from tff_hdp.privacy.sampled import FixedSizeGaussian, SampledGaussian
from tff_hdp.privacy.spectrum import Spectrum
from tff_hdp.privacy.tradeoff import (
    Tradeoff,
    composed_tradeoff,
    orthogonal_identification,
)


def tradeoff(mechanism, rounds=1):
    return composed_tradeoff(frozenset({(mechanism, rounds)}))


def sampled(q, z):
    return SampledGaussian(q, Spectrum((z * z,), (0.0,)), hidden=True)


def from_pld(mechanism, rounds):
    """The curve without the closed form, from the same mechanism's PLD."""
    pld = mechanism.pld(rounds, 1e-3)
    epsilons = np.linspace(0, 12, 1000)
    return Tradeoff(None, epsilons, np.asarray(pld.get_delta_for_epsilon(epsilons)))


def test_known_rates():
    rates = tradeoff(Gaussian(1.0)).power(np.array([0.001, 0.01, 0.1]))
    np.testing.assert_allclose(rates, [0.0183, 0.0924, 0.3891], atol=1e-4)


@pytest.mark.parametrize(
    ("z", "rounds"),
    [
        pytest.param(1.0, 1, marks=pytest.mark.slow),
        pytest.param(2.0, 1, marks=pytest.mark.slow),
        (3.0, 5),
    ],
)
def test_closed_form_and_pld_agree(z, rounds):
    exact, numeric = tradeoff(Gaussian(z), rounds), from_pld(Gaussian(z), rounds)
    fpr = np.array([1e-3, 0.01, 0.1, 0.4, 0.9])
    np.testing.assert_allclose(numeric.power(fpr), exact.power(fpr), rtol=2e-3)
    # Pessimistic: never below what is exact.
    assert np.all(numeric.power(fpr) > exact.power(fpr) - 1e-9)
    assert numeric.auc == pytest.approx(exact.auc, abs=1e-3)
    assert numeric.advantage == pytest.approx(exact.advantage, abs=1e-3)


def test_rounds_of_several_mechanisms_are_seen_together():
    together = composed_tradeoff(frozenset({(Gaussian(3.0), 4), (Gaussian(9.0), 18)}))
    assert together.mu == pytest.approx(math.sqrt(4 / 9 + 18 / 81))
    assert composed_tradeoff(frozenset()).mu == 0.0
    # Without the victim both losses are at their largest in exp(-3) / 4 of all cases.
    together = composed_tradeoff(frozenset({(Laplace(1.0), 1), (Laplace(2.0), 1)}))
    fpr = np.array([1e-3, 0.012])
    np.testing.assert_allclose(together.power(fpr), math.exp(3) * fpr, rtol=3e-3)
    assert together.power(0.03) < math.exp(3) * 0.03 - 0.01


def test_every_point_keeps_epsilon_and_delta():
    """TPR <= e^eps FPR + delta, for the epsilon of Balle and Wang's closed form."""
    bound = tradeoff(Gaussian(1.5))
    fpr = np.linspace(1e-4, 1, 500)
    for delta in (1e-5, 1e-2):
        epsilon = gaussian_epsilon(1.5, delta)
        gap = np.exp(epsilon) * fpr + delta - bound.power(fpr)
        assert gap.min() > -1e-9
    # Touched somewhere, or the bound were not the tightest.
    assert gap.min() < 1e-4


def test_sampling_bound_holds_for_the_likelihood_ratio_test():
    """The best test of one sampled round, its rates by numerical integration."""
    q, z = 0.2, 0.8
    bound = tradeoff(sampled(q, z))
    x = np.linspace(-12, 14, 400_001)
    out, inside = stats.norm.pdf(x, 0, z), stats.norm.pdf(x, 1, z)
    mixed = (1 - q) * out + q * inside
    step = x[1] - x[0]
    for threshold in (0.3, 1.0, 2.0):
        above = x > threshold
        fpr, tpr = out[above].sum() * step, mixed[above].sum() * step
        assert tpr <= bound.power(fpr) + 1e-6
        assert tpr > bound.power(fpr) - 0.02


def test_nothing_seen_and_nothing_guaranteed():
    fpr = np.array([0.0, 0.3, 1.0])
    np.testing.assert_allclose(tradeoff(Gaussian(1.0), 0).power(fpr), fpr)
    nothing = Tradeoff(math.inf)
    assert nothing.power(fpr).tolist() == [1.0, 1.0, 1.0]
    assert orthogonal_identification(np.inf, 10) == 1.0
    assert nothing.auc == nothing.advantage == nothing.identification(9) == 1.0


def test_laplace_is_bounded_by_its_pure_epsilon():
    bound = tradeoff(Laplace(1.0))
    fpr = np.array([0.01, 0.1, 0.18])  # beyond e^-1 / 2 the curve bends
    np.testing.assert_allclose(bound.power(fpr), np.e * fpr, rtol=2e-3)


def test_mechanism_without_a_pld_is_refused():
    with pytest.raises(ArgumentError, match="PLD"):
        tradeoff(Laplace(1.0, coordinates=5))


def test_epsilons_whose_exponentials_no_float_holds_bound_nothing():
    """1 - delta falls on a line from 0 to 755, beyond the floats' e^709.8."""
    epsilons = np.linspace(0, 755, 2000)
    bound = Tradeoff(None, epsilons, 1 - epsilons / 755)
    fpr = np.array([0.0, 1e-300, 1e-3, 1.0])
    within = epsilons[epsilons < 709]
    up = np.exp(within) * fpr[:, np.newaxis] + 1 - within / 755
    down = 1 - np.exp(-within) * (within / 755 - fpr[:, np.newaxis])
    least = np.minimum(np.minimum(up, down).min(-1), 1)
    np.testing.assert_allclose(bound.power(fpr)[1:], least[1:], rtol=1e-12)
    assert bound.power(0.0) == 0.0
    assert 0.99 < bound.advantage < bound.auc < 1.0


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 5.0, 12.0, 40.0])
def test_area_and_advantage_are_no_less_than_those_of_the_curve(epsilon):
    """Randomised response: two straight lines that meet at e^eps / (1 + e^eps)."""
    bound = Tradeoff(None, np.array([epsilon]), np.array([0.0]))
    advantage = math.tanh(epsilon / 2)
    area = (1 + advantage) / 2
    assert bound.advantage == pytest.approx(advantage, abs=1e-15)
    assert area - 1e-12 < bound.auc < area + 1.25e-5


@pytest.mark.filterwarnings("error")
def test_noise_that_hides_nothing_bounds_by_who_takes_part():
    """Losses beyond 1e5: neighbours are told apart if the client came, in 2 of 10."""
    bound = tradeoff(FixedSizeGaussian(10, 2, 0.002))
    fpr = np.array([0.0, 1e-3, 0.1, 0.5, 0.9])
    expected = np.minimum(fpr + 0.2, 1)
    np.testing.assert_allclose(bound.power(fpr), expected, atol=1e-6)
    assert bound.advantage == pytest.approx(0.2, abs=1e-6)
    assert bound.auc == pytest.approx(0.68, abs=1e-6)


def test_noise_too_small_for_any_grid_is_refused():
    """A grid of 1e-3 over its losses would have 10^11 points."""
    with pytest.raises(ArgumentError, match=r"mechanism is .* a grid of 50\.\d"):
        tradeoff(sampled(0.2, 1e-4))


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
def test_orthogonal_canaries_against_a_simulation(mu):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(200_000, 10))
    scores[:, 0] += mu
    found = np.mean(scores.argmax(1) == 0)
    expected = orthogonal_identification(mu, 10)
    assert found == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(200_000))
    assert expected <= Tradeoff(mu).identification(10) + 1e-9


def test_identification_bound_as_known():
    assert Tradeoff(1.0).identification(10) == pytest.approx(0.389, abs=1e-3)
    assert orthogonal_identification(1.0, 10) == pytest.approx(0.34, abs=5e-3)


@pytest.mark.parametrize("candidates", [0, -3, math.nan, 1.5])
def test_guesses_among_no_number_of_canaries_are_refused(candidates):
    with pytest.raises(ArgumentError, match="candidates"):
        orthogonal_identification(1.0, candidates)


@pytest.mark.parametrize("fpr", [-1e-9, 1.5, np.nan, [0.5, np.inf]])
@pytest.mark.parametrize(
    "bound", [Tradeoff(1.0), Tradeoff(np.inf), Tradeoff(None, np.ones(1), np.zeros(1))]
)
def test_what_is_no_rate_has_no_power(bound, fpr):
    with pytest.raises(ArgumentError, match=r"^fpr is .*rates in \[0, 1\]"):
        bound.power(fpr)


@pytest.mark.parametrize("q", [0.5, 1.0])
def test_what_a_grid_costs_is_in_the_bound_on_attacks(q):
    """(epsilon, delta) without is (epsilon + slack, e^slack delta) with it."""
    plain, grid = (
        tradeoff(SampledGaussian(q, Spectrum((4.0,), (0.0,)), True, slack))
        for slack in (0.0, 0.1)
    )
    assert grid.power(0.01) >= math.exp(0.09) * plain.power(0.01)
