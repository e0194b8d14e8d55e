"""Mechanisms as values: each by its own numbers and by dp_accounting's on its event."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, stats

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FullParticipation, account, configurations
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.mechanisms import DiscreteGaussian, Gaussian, Laplace
from tff_hdp.privacy.plan import MIN_STEPS
from tff_hdp.privacy.sampled import FixedSizeGaussian, SampledGaussian
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.privacy.spectrum import Spectrum
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.views import view

DELTA, ROUNDS = 1e-5, 30
SAMPLED = SampledGaussian(0.2, Spectrum((1.5**2,), (0.0,)), hidden=True)
ALL = {
    "gaussian": Gaussian(2.0),
    "sampled": SAMPLED,
    "fixed_size": FixedSizeGaussian(50, 10, 2.0),
    "discrete": DiscreteGaussian(SAMPLED, 1e4),
    "laplace": Laplace(0.3),
}


def composed(accountant, mechanism):
    event = dp_accounting.SelfComposedDpEvent(mechanism.event, ROUNDS)
    return accountant.compose(event).get_epsilon(DELTA)


@pytest.mark.parametrize("name", ALL)
def test_epsilons_are_those_of_dp_accounting_on_the_event(name):
    mechanism = ALL[name]
    rounds = frozenset([(mechanism, ROUNDS)])
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    if name == "fixed_size":
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    theirs = composed(RdpAccountant(neighboring_relation=relation), mechanism)
    rdp, _ = epsilon_by_rdp(rounds, DELTA)
    # More orders can only help; of Laplace noise theirs takes the pure epsilon alone.
    assert rdp <= theirs * (1 + 1e-9)
    assert rdp > (0.8 if name == "laplace" else 0.99) * theirs
    pld, _ = epsilon_by_pld(rounds, DELTA)
    if name == "fixed_size":
        assert pld < rdp  # dp_accounting has none; see below
        return
    theirs = composed(PLDAccountant(relation), mechanism)
    assert pld == pytest.approx(theirs, rel=1e-3)
    assert pld <= rdp


def test_composed_gaussians_are_one_exactly():
    rounds = frozenset([(Gaussian(4.0), 3), (Gaussian(2.0), 5)])
    total = (3 / 16 + 5 / 4) ** -0.5
    exact = Gaussian(total).epsilon(DELTA)
    assert epsilon_by_pld(rounds, DELTA)[0] == pytest.approx(exact, rel=1e-4)
    assert exact < epsilon_by_rdp(rounds, DELTA)[0] < 1.1 * exact


# Laplace -----------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.3, 1.0])
@pytest.mark.parametrize("ratio", [0.2, 1.5])
def test_sampled_laplace_by_integration(q, ratio):
    """Delta of one round at some epsilons, participation shown to the observer."""
    mechanism = Laplace(ratio, q)
    pld = mechanism.pld(1, 1e-4)
    for epsilon in (0.0, 0.5 * ratio, 0.9 * ratio):

        def excess(x, epsilon=epsilon):
            present = stats.laplace.pdf(x, ratio)
            return max(present - math.exp(epsilon) * stats.laplace.pdf(x), 0.0)

        expected = q * integrate.quad(excess, 0.0, 60.0, limit=400)[0]
        found = pld.get_delta_for_epsilon(epsilon)
        assert found == pytest.approx(expected, rel=1e-3)
        assert found >= expected * (1 - 1e-6)
    # exp((a - 1) D) = 1 - q + q E_0[(p/q)^a].
    order = 3.0
    moment = integrate.quad(
        lambda x: (
            stats.laplace.pdf(x, ratio) ** order * stats.laplace.pdf(x) ** (1 - order)
        ),
        -40,
        40,
        points=[0.0, ratio],
    )[0]
    expected = math.log(1 - q + q * moment) / (order - 1)
    assert mechanism.rdp((order,))[0] == pytest.approx(expected, rel=1e-6)


def test_pure_epsilons_add_up_where_that_is_less():
    rounds = frozenset([(Laplace(20.0), 2), (Laplace(5.0), 1)])
    epsilon, notes = epsilon_by_rdp(rounds, DELTA)
    assert epsilon == 45.0
    assert "needs no delta" in " ".join(notes)
    # A Gaussian round among them, and there is no such sum.
    epsilon, notes = epsilon_by_rdp(rounds | {(Gaussian(1.0), 1)}, DELTA)
    assert 45.0 < epsilon < math.inf
    assert not notes


def test_a_vectors_laplace_noise_has_no_pld_and_an_unseen_sampling_no_event():
    vector = Laplace(0.5, coordinates=3)
    assert epsilon_by_pld(frozenset([(vector, 1)]), DELTA) == (None, (vector.no_pld,))
    np.testing.assert_array_equal(vector.rdp((2.0,)), Laplace(0.5).rdp((2.0,)))
    assert Laplace(0.5, 0.5).event is None
    assert dataclasses.replace(SAMPLED, hidden=False).event is None
    mixed = Spectrum((1.0, 2.0), (math.log(0.5),) * 2)
    assert SampledGaussian(0.2, mixed, hidden=True).event is None


# Discrete noise ----------------------------------------------------------------


def test_discrete_noise_of_too_few_steps_is_not_accounted():
    with pytest.raises(ArgumentError, match=r"steps is 9.0; allowed: at least 10"):
        DiscreteGaussian(SAMPLED, 9.0)


@pytest.mark.parametrize(
    ("name", "secured", "discrete"),
    [
        ("ldp", "secure_aggregation", True),
        ("hdp", "secure_aggregation", False),
        ("hdp", "secure_server", True),
        ("cdp", "secure_server", False),
    ],
)
def test_views_say_which_noise_is_discrete(name, secured, discrete):
    plan = configurations.CONFIGURATIONS[name](
        noise_multiplier=2.0,
        zone_sizes=(8, 8),
        sampling=FullParticipation(),
        **{secured: True},
    )
    encoded = with_encoding(plan, size=100, bits=24)
    kind = DiscreteGaussian if discrete else SampledGaussian
    found = view(AccountedRound(encoded), "released_model", 3, 0, name == "ldp")
    assert type(found.mechanism) is kind
    if discrete:
        steps = 2.0 / encoded.encoding.step
        assert found.mechanism.steps == pytest.approx(steps)
        assert steps > MIN_STEPS
    assert account(encoded, 5, DELTA) == account(plan, 5, DELTA)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(0.0), "multiplier is 0.0"),
        (lambda: Laplace(-1.0), "ratio is -1.0"),
        (lambda: Laplace(1.0, 1.5), "q is 1.5"),
        (lambda: Laplace(1.0, coordinates=0), "coordinates is 0"),
    ],
)
def test_values_out_of_range(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


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
