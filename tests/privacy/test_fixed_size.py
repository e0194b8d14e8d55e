"""Cohorts of a fixed size, drawn without replacement."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tff_hdp.privacy import FixedSizeSampling, NoisePlan, ThreatModel, account, worst
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.sampled import FixedSizeGaussian, SampledGaussian
from tff_hdp.privacy.spectrum import Spectrum


@pytest.mark.parametrize(("n", "k", "z"), [(50, 10, 0.5), (6000, 100, 0.77), (8, 7, 3)])
def test_one_draw_without_replacement_is_amplified_as_it_must_be(n, k, z):
    """Balle, Barthe and Gaboardi (2018): (ln(1 + q (e^eps - 1)), q delta), tight."""
    q, delta = k / n, 1e-5
    pld, _ = epsilon_by_pld(frozenset([(FixedSizeGaussian(n, k, z), 1)]), delta)
    base = gaussian_epsilon(z, delta / q)
    assert pld == pytest.approx(math.log1p(q * math.expm1(base)), rel=1e-4)


@pytest.mark.parametrize(
    ("n", "k", "z", "epsilon"),
    [
        (6000, 100, 1.54 / 2, 3.353),
        (50, 10, 1 / 2, 99.89),
        (50, 10, 10**0.5 / 2, 11.466),
    ],
)
def test_draws_without_replacement_compose(n, k, z, epsilon):
    """Two hundred rounds, against an independent computation on a grid of 1e-4."""
    rounds = frozenset([(FixedSizeGaussian(n, k, z), 200)])
    assert epsilon_by_pld(rounds, 1e-5)[0] == pytest.approx(epsilon, rel=2e-3)
    assert epsilon_by_pld(rounds, 1e-5)[0] < epsilon_by_rdp(rounds, 1e-5)[0]


def test_the_profile_without_replacement_is_the_mixtures():
    """delta at small epsilons against Gaussian tails written out."""
    n, k, z = 20, 6, 1.5
    pld, q = FixedSizeGaussian(n, k, z).pld(1, 0.002), k / n
    for e in (0.0, 0.1, 0.5):
        x = z * z * math.log((math.exp(e) - 1 + q) / q) + 0.5
        mass = q * stats.norm.sf(x, 1, z) + (1 - q) * stats.norm.sf(x, 0, z)
        exact = mass - math.exp(e) * stats.norm.sf(x, 0, z)
        assert pld.get_delta_for_epsilon(e) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("n", "k", "colluders"), [(5, 2, 2), (6, 4, 3), (6, 2, 4)])
def test_what_colluders_know_of_the_draw_is_accounted_by_chance(n, k, colluders):
    """Against every draw there is, the client's value 1 or 0 and all others' 0."""
    z = 0.8
    x = np.linspace(-12.0, 13.0, 200001)
    seen = {}
    for drawn in itertools.combinations(range(n), k):
        known = tuple(sorted(set(drawn) & set(range(1, colluders + 1))))
        here, there = seen.get(known, (0.0, 0.0))
        here = here + stats.norm.pdf(x, float(0 in drawn), z) / math.comb(n, k)
        there = there + stats.norm.pdf(x, 0.0, z) / math.comb(n, k)
        seen[known] = here, there
    pld = FixedSizeGaussian(n, k, z, colluders).pld(1, 0.002)
    for epsilon in (0.0, 0.2, 1.0):
        beyond = [np.maximum(p - math.exp(epsilon) * q, 0.0) for p, q in seen.values()]
        exact = sum(np.trapz(each, x) for each in beyond)
        assert pld.get_delta_for_epsilon(epsilon) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("n", "k", "z"), [(20, 2, 0.5), (9, 7, 2.0), (400, 300, 1.0)])
def test_colluders_give_no_more_away_than_the_whole_draw(n, k, z):
    """From nobody, as before, to all but the client, where all is known."""
    orders = (1.5, 2.0, 8.0, 63.5)
    revealed = SampledGaussian(k / n, Spectrum((z * z,), (0.0,)), hidden=False)
    rounds = [
        FixedSizeGaussian(n, k, z, colluders) for colluders in (0, 1, n // 2, n - 1)
    ]
    rdp = np.stack([m.rdp(orders) for m in (*rounds, revealed)])
    assert (np.diff(rdp, axis=0) >= -1e-12 * rdp[1:]).all()
    np.testing.assert_allclose(rdp[-2], rdp[-1], rtol=1e-12)
    pld = [epsilon_by_pld(frozenset([(m, 50)]), 1e-5)[0] for m in (*rounds, revealed)]
    assert pld[0] < pld[1] < pld[2] < pld[-1]
    assert pld[-2] == pytest.approx(pld[-1], rel=1e-6)


def assert_no_larger_epsilon(plan, rounds, observer, less, more):
    """Of who knows `less` than of who knows `more`, by both methods."""
    found, most = (
        worst(account(plan, rounds, 1e-5, ("rdp", "pld"), threat=threat), observer)
        for threat in (less, more)
    )
    assert found.epsilon_rdp <= most.epsilon_rdp * (1 + 1e-9)
    assert found.epsilon_pld <= most.epsilon_pld * (1 + 1e-6)


@pytest.mark.parametrize("colluders", [0, 3, 18, 19])
def test_an_observer_that_knows_less_of_the_cohort_has_no_larger_epsilon(colluders):
    plan = NoisePlan(
        zone_sizes=(20, 20),
        sampling=FixedSizeSampling((2, 2)),
        zone_noise_multipliers=(1.0, 1.0),
    )
    hidden, known = (
        ThreatModel(cohort_known=told, colluding_clients=colluders)
        for told in (False, True)
    )
    assert_no_larger_epsilon(plan, 50, "aggregator", hidden, known)


def test_a_fellow_that_knows_less_of_who_brings_noise_has_no_larger_epsilon():
    """One that is not drawn knows nobody's noise, whether or not it sees who is."""
    plan = NoisePlan(
        zone_sizes=(4,),
        sampling=FixedSizeSampling((2,)),
        client_noise_multiplier=0.5,
        noising_clients=(4,),
    )
    hidden, known = (
        ThreatModel(cohort_known=told, peers_known=told) for told in (False, True)
    )
    assert_no_larger_epsilon(plan, 20, "fellow_client", hidden, known)


def test_what_a_grid_costs_is_paid_by_the_bound_of_rounds_that_show_more_too():
    """Slack is an epsilon a round; here that bound is the less."""
    uneven = Spectrum((0.1, 4.0), (math.log(0.01), math.log(0.99)))
    found = []
    for slack in (0.0, 0.02):
        mechanism = FixedSizeGaussian(4, 2, 0.1**0.5, slack=slack, revealed=uneven)
        assert mechanism.if_more_is_seen != mechanism
        both = epsilon_by_pld(frozenset([(mechanism, 20)]), 1e-5)[0]
        shown = epsilon_by_pld(frozenset([(mechanism.if_more_is_seen, 20)]), 1e-5)[0]
        assert both == shown
        found.append(both)
    assert found[1] >= found[0] + 20 * 0.02
