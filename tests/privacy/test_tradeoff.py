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
    area_interval,
    area_under,
    composed_tradeoff,
    orthogonal_identification,
    roc,
    tradeoff,
)


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
    nothing = tradeoff(None, 3)
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


def test_a_right_mechanism_is_not_refuted_and_a_wrong_one_is():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 8000))
    bound = tradeoff(Gaussian(1.0))
    right = roc(1 + noise[0], noise[1])
    assert not right.refutes(bound)
    assert right.auc == pytest.approx(bound.auc, abs=4 * right.auc_error)
    assert right.auc_error == pytest.approx(0.0039, abs=5e-4)
    # Half of the noise was forgotten.
    assert roc(1 + noise[0] / 2, noise[1] / 2).refutes(bound)


def test_band_holds_as_often_as_it_says():
    rng = np.random.default_rng(3)
    bound = tradeoff(Gaussian(1.0))
    refuted = sum(
        roc(1 + rng.normal(size=200), rng.normal(size=200), confidence=0.9).refutes(
            bound
        )
        for _ in range(200)
    )
    assert refuted <= 20


@pytest.mark.parametrize("candidates", [0, -3, math.nan, 1.5])
def test_guesses_among_no_number_of_canaries_are_refused(candidates):
    with pytest.raises(ArgumentError, match="candidates"):
        orthogonal_identification(1.0, candidates)


@pytest.mark.parametrize("scores", [[1.0] * 7, [0.0] * 8 + [np.nan]])
def test_bad_scores_are_refused(scores):
    with pytest.raises(ArgumentError, match="scores_in"):
        roc(scores, [0.0] * 8)


@pytest.mark.parametrize("scores", [[], [0.0, np.nan], [np.inf]])
@pytest.mark.parametrize("area", [area_under, area_interval])
def test_an_area_of_what_is_no_score_is_refused(area, scores):
    """What is not a number ranked above all that are."""
    with pytest.raises(ArgumentError, match=r"^scores_in"):
        area(scores, [0.0])
    with pytest.raises(ArgumentError, match=r"^scores_out"):
        area([0.0], scores)
    with pytest.raises(ArgumentError, match="confidence is 1"):
        area_interval([0.0], [1.0], 1.0)


@pytest.mark.parametrize("fpr", [-1e-9, 1.5, np.nan, [0.5, np.inf]])
@pytest.mark.parametrize(
    "bound", [Tradeoff(1.0), Tradeoff(np.inf), Tradeoff(None, np.ones(1), np.zeros(1))]
)
def test_what_is_no_rate_has_no_power(bound, fpr):
    with pytest.raises(ArgumentError, match=r"^fpr is .*rates in \[0, 1\]"):
        bound.power(fpr)


@pytest.mark.parametrize(
    ("mu", "scores", "part"), [(0.7, 300, 0.3), (3.0, 100, 0.5), (6.0, 300, 0.4)]
)
def test_the_area_refutes_a_good_part_of_mu_and_never_more(mu, scores, part):
    """200 attacks on Gaussian noise, so many scores a side, at 99.9 %."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        inside, outside = rng.normal(mu, 1, scores), rng.normal(0, 1, scores)
        found.append(roc(np.sort(inside), np.sort(outside)).refuted_mu)
    assert sum(value > mu for value in found) <= 1
    assert part * mu < np.mean(found) < mu


def test_an_attack_without_errors_refutes_what_its_trials_can():
    perfect = roc(np.full(300, 8.0), np.zeros(300))
    assert perfect.refuted_mu == pytest.approx(
        math.sqrt(2) * stats.norm.ppf(0.001 ** (1 / 300))
    )


def test_a_blind_attack_refutes_nothing():
    blind = roc(np.arange(300.0), np.arange(300.0) + 0.5)
    assert blind.refuted_mu == 0.0


@pytest.mark.parametrize("q", [0.5, 1.0])
def test_what_a_grid_costs_is_in_the_bound_on_attacks(q):
    """(epsilon, delta) without is (epsilon + slack, e^slack delta) with it."""
    plain, grid = (
        tradeoff(SampledGaussian(q, Spectrum((4.0,), (0.0,)), True, slack))
        for slack in (0.0, 0.1)
    )
    assert grid.power(0.01) >= math.exp(0.09) * plain.power(0.01)
