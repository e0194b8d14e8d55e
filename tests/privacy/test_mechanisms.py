"""Mechanisms as values: each by its own numbers and by dp_accounting's on its event."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, optimize, stats

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FullParticipation, account, composition, configurations
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.divergences import (
    gaussian_delta,
    gaussian_epsilon,
    sampled_delta,
)
from tff_hdp.privacy.mechanisms import Gaussian, Laplace
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
    "laplace": Laplace(0.3),
}
EVENTS = {
    "gaussian": dp_accounting.GaussianDpEvent(2.0),
    "sampled": dp_accounting.PoissonSampledDpEvent(
        0.2, dp_accounting.GaussianDpEvent(1.5)
    ),
    "fixed_size": dp_accounting.SampledWithoutReplacementDpEvent(
        50, 10, dp_accounting.GaussianDpEvent(2.0)
    ),
    "laplace": dp_accounting.LaplaceDpEvent(1 / 0.3),
}


def composed(accountant, name):
    event = dp_accounting.SelfComposedDpEvent(EVENTS[name], ROUNDS)
    return accountant.compose(event).get_epsilon(DELTA)


@pytest.mark.parametrize("name", ALL)
def test_epsilons_are_those_of_dp_accounting_on_the_event(name):
    mechanism = ALL[name]
    rounds = frozenset([(mechanism, ROUNDS)])
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    if name == "fixed_size":
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    theirs = composed(RdpAccountant(neighboring_relation=relation), name)
    rdp, _ = epsilon_by_rdp(rounds, DELTA)
    # More orders can only help; of Laplace noise theirs takes the pure epsilon alone.
    assert rdp <= theirs * (1 + 1e-9)
    assert rdp > (0.8 if name == "laplace" else 0.99) * theirs
    pld, _ = epsilon_by_pld(rounds, DELTA)
    if name == "fixed_size":
        assert pld < rdp  # dp_accounting has none; see below
        return
    theirs = composed(PLDAccountant(relation), name)
    assert pld == pytest.approx(theirs, rel=1e-3)
    assert pld <= rdp


def test_composed_gaussians_are_one_exactly():
    rounds = frozenset([(Gaussian(4.0), 3), (Gaussian(2.0), 5)])
    total = (3 / 16 + 5 / 4) ** -0.5
    exact = gaussian_epsilon(total, DELTA)
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


def test_pure_epsilons_add_up_where_that_is_less(monkeypatch):
    rounds = frozenset([(Laplace(20.0), 2), (Laplace(5.0), 1)])
    epsilon, notes = epsilon_by_rdp(rounds, 1e-300)
    assert epsilon == 45.0
    assert "needs no delta" in " ".join(notes)
    # A number's law is off by a factor 1 +- e under either of the neighbours.
    monkeypatch.setattr(composition, "RELATIVE_ERROR", 1e-2)
    epsilon, _ = epsilon_by_rdp.__wrapped__(rounds, 1e-300, numbers=5.0)
    assert epsilon >= 45.0 + 2 * 5 * math.log1p(1e-2)
    # A Gaussian round among them, and there is no such sum.
    epsilon, notes = epsilon_by_rdp(rounds | {(Gaussian(1.0), 1)}, DELTA)
    assert 45.0 < epsilon < math.inf
    assert not notes


def test_a_vectors_laplace_noise_has_no_pld():
    vector = Laplace(0.5, coordinates=3)
    assert epsilon_by_pld(frozenset([(vector, 1)]), DELTA) == (None, (vector.no_pld,))
    assert vector.pure_epsilon == pytest.approx(0.5 * math.sqrt(3))


# Discrete noise ----------------------------------------------------------------


@pytest.mark.parametrize(("z", "steps"), [(0.5, 10), (1.0, 10), (2.0, 40)])
def test_discrete_noise_is_no_worse_than_what_is_accounted(z, steps):
    """Its hockey-stick divergence, summed over the grid, at one and at two rounds."""
    shift = round(steps / z)
    k = np.arange(-40 * steps, 40 * steps + 1)
    mass = np.exp(-((k / steps) ** 2) / 2)
    mass /= mass.sum()
    loss = (2 * k * shift - shift**2) / (2 * steps**2)
    discrete = Spectrum(((steps / shift) ** 2,), (0.0,))
    noise, slack = discrete.as_continuous(step=1 / shift)
    mechanism = SampledGaussian(1.0, noise, hidden=True, slack=slack)
    worse = 0
    for delta in (1e-1, 1e-3, 1e-5):
        claimed, _ = epsilon_by_pld(frozenset([(mechanism, 1)]), delta)
        # Moving the mass by the shift is weighing it by the loss.
        true = np.sum(mass * np.maximum(np.exp(loss) - math.exp(claimed), 0.0))
        assert true <= delta
        gaussian = gaussian_epsilon(steps / shift, delta)
        found = np.sum(mass * np.maximum(np.exp(loss) - math.exp(gaussian), 0.0))
        worse += found > delta
        assert gaussian < claimed < 1.1 * gaussian
        two = np.convolve(mass, mass)
        total = np.add.outer(loss[:1], np.zeros(1)).ravel()[0] * 2 + (
            np.arange(len(two)) * shift / steps**2
        )
        claimed, _ = epsilon_by_pld(frozenset([(mechanism, 2)]), delta)
        true = np.sum(two * np.maximum(np.exp(total) - math.exp(claimed), 0.0))
        assert true <= delta
    # Taken for a Gaussian it would break its promise somewhere.
    assert worse or z != 1.0


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
    found = view(AccountedRound(encoded), "released_model", 3, 0, name == "ldp")
    assert (found.mechanism.slack > 0) is discrete
    assert ("noise on a grid" in " ".join(found.assumptions)) is discrete
    for one, other in zip(
        account(encoded, 5, DELTA), account(plan, 5, DELTA), strict=True
    ):
        assert one.epsilon_pld == pytest.approx(other.epsilon_pld, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(0.0), "multiplier is 0.0"),
        (lambda: Laplace(-1.0), "ratio is -1.0"),
        (lambda: Laplace(1.0, 1.5), "q is 1.5"),
        (lambda: Laplace(1.0, coordinates=0), "coordinates is 0"),
        (lambda: gaussian_delta(1.0, -1.0), "z is -1.0"),
        (lambda: gaussian_delta(1.0, math.nan), "z is nan"),
    ],
)
def test_values_out_of_range(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


# What is computed ----------------------------------------------------------------


@pytest.mark.parametrize("e", [1e-3, 0.1])
def test_finite_precision_costs_what_the_extremes_of_its_error_allow(e, monkeypatch):
    """Against two coins, each off by the relative error as far as it may be."""
    numbers, epsilon, delta = 400, 40.0, 1e-6
    monkeypatch.setattr(composition, "RELATIVE_ERROR", e)
    loss = composition.precision_loss(numbers, epsilon, delta)
    # The ratio of all numbers' laws is a product of factors 1 +- e, either as likely.
    ups = np.arange(numbers + 1)
    ratio = ups * math.log1p(e) + (numbers - ups) * math.log1p(-e)
    beyond = stats.binom.logpmf(ups, numbers, (1 + e) / 2)[ratio > loss]
    allowed = math.log(1e-6 * delta) - epsilon
    assert not beyond.size or np.logaddexp.reduce(beyond) <= allowed
    assert loss < numbers * e
    # A few numbers cannot be off by more than each.
    assert composition.precision_loss(3, epsilon, delta) == 3 * e


@pytest.mark.parametrize("by", [epsilon_by_rdp, epsilon_by_pld])
@pytest.mark.parametrize(("numbers", "slack"), [(0, 0.01), (400, 0.0), (10**5, 0.02)])
def test_precision_and_slack_are_paid_for_in_epsilon_and_delta(
    by, numbers, slack, monkeypatch
):
    """Of Gaussian rounds, whose epsilon at any delta is known."""
    z, total = 3.0, ROUNDS * slack
    monkeypatch.setattr(composition, "RELATIVE_ERROR", 1e-3)

    def at(loss):
        delta = DELTA * math.exp(-loss - total)
        return gaussian_epsilon(z / math.sqrt(ROUNDS), delta) + total

    # The least loss that is one at the epsilon to which it leads.
    loss = 0.0
    for _ in range(50):
        loss = composition.precision_loss(numbers, at(loss), DELTA)
    mechanism = SampledGaussian(1.0, Spectrum((z * z,), (0.0,)), True, slack)
    # Not what is kept of other tests.
    found, _ = by.__wrapped__(frozenset({(mechanism, ROUNDS)}), DELTA, float(numbers))
    assert at(loss) + 2 * loss <= found < 1.2 * (at(loss) + 2 * loss)


def test_every_account_pays_for_finite_precision():
    plan = configurations.c4(
        zone_sizes=(50,),
        sampling=FullParticipation(),
        noise_multiplier=20.0,
        size=10**8,
    )
    rows = account(plan, 1000, DELTA, ("pld", "rdp"))
    ideal, _ = epsilon_by_pld(frozenset([(Gaussian(20.0), 1000)]), DELTA)
    found = rows[-1].epsilon_pld
    loss = composition.precision_loss(1e11, ideal, DELTA)
    assert ideal + 2 * loss < found < ideal * (1 + 1e-4)
    assert "1e+11 numbers" in rows[-1].assumptions
    # The worst case for every number would cost more than all else.
    assert 2 * loss < 1e-4 < 2e11 * composition.RELATIVE_ERROR


@pytest.mark.parametrize(
    ("z", "q", "count"),
    [
        (0.8, 0.4, 20),
        (1.0, 1e-3, 3000),
        (5.0, 1e-4, 100),
        (20.0, 0.01, 50),
        (0.3, 0.05, 5),
        (10.0, 0.95, 300),
        (2000.0, 0.2, 10),
    ],
)
def test_a_sampled_gaussian_is_dp_accountings(z, q, count):
    mechanism = SampledGaussian(q, Spectrum((z * z,), (0.0,)), hidden=True)
    grid = composition._grid(frozenset({(mechanism, count)}), DELTA)
    theirs = from_gaussian_mechanism(
        z, value_discretization_interval=grid, sampling_prob=q
    )
    ours = mechanism.pld(1, grid)
    epsilons = [
        pld.self_compose(count).get_epsilon_for_delta(DELTA) for pld in (ours, theirs)
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-5)
    for side in ("_pmf_remove", "_pmf_add"):
        assert getattr(ours, side).size <= 1.2 * getattr(theirs, side).size + 2


def test_a_sampled_gaussian_that_dp_accounting_refuses():
    """Its deltas rise by rounding, of which it says that they must not."""
    q, z, delta = 0.05, 0.0624, 0.049
    with pytest.raises(ValueError, match="non-increasing"):
        from_gaussian_mechanism(
            z, value_discretization_interval=0.0128, sampling_prob=q
        )

    def excess(epsilon):
        # (1-q) N(0) + q N(1) against N(0), where the densities' ratio is e^epsilon.
        x = z * z * math.log1p(math.expm1(epsilon) / q) + 0.5
        taken = q * stats.norm.sf((x - 1) / z) + (1 - q) * stats.norm.sf(x / z)
        return taken - math.exp(epsilon) * stats.norm.sf(x / z) - delta

    mechanism = SampledGaussian(q, Spectrum((z * z,), (0.0,)), hidden=True)
    epsilon, _ = epsilon_by_pld(frozenset({(mechanism, 1)}), delta)
    exact = optimize.brentq(excess, 10.0, 200.0)
    assert exact <= epsilon <= exact * (1 + 1e-4)


@pytest.mark.parametrize("z", [0.01, 0.3, 1.0, 50.0])
def test_what_is_not_computed_of_a_mean_delta_is_0_or_1(z):
    epsilon = np.linspace(-60.0, 2.0 / z**2 + 60.0 / z, 20_001)
    spectrum = Spectrum((z * z, 4 * z * z), (math.log(0.25), math.log(0.75)))
    found = sampled_delta(epsilon, 1.0, spectrum, hidden=False, remove=True)
    every = 0.25 * gaussian_delta(epsilon, z) + 0.75 * gaussian_delta(epsilon, 2 * z)
    np.testing.assert_allclose(found, every, rtol=1e-12, atol=0)


def test_hardly_any_noise_at_all_is_accounted():
    """With probability 1 to a float's last digit there was none: 1 less it was 0."""
    hardly = Spectrum((0.0, 1.0), (-1e-30, math.log(1e-30)))
    seldom = SampledGaussian(1e-18, hardly, hidden=False)
    given, bare = seldom.given_noise()
    assert (given.spectrum.variances, bare) == ((1.0,), 1e-18)
    assert given.spectrum.log_probabilities == pytest.approx((0.0,))
    epsilon, why = epsilon_by_rdp(frozenset({(seldom, 10)}), DELTA)
    assert epsilon < 1e-3
    assert "1e-17 of delta pays for rounds without noise" in why


@pytest.mark.parametrize("z", [2.0, 2000.0])
def test_rounds_without_noise_take_their_share_of_delta(z):
    """Delta is 1 if there is such a round, and else that of Gaussians."""
    share = 0.99 * DELTA / ROUNDS
    rounds = []
    for count, bare in ((10, 2 * share), (20, share / 2)):
        noise = Spectrum((0.0, z * z), (math.log(bare), math.log1p(-bare)))
        rounds.append((SampledGaussian(1.0, noise, hidden=True), count))
    some = 1 - (1 - 2 * share) ** 10 * (1 - share / 2) ** 20
    left = (DELTA - some) / (1 - some)
    exact = gaussian_epsilon(z / math.sqrt(ROUNDS), left)
    rdp, pld = (
        by(frozenset(rounds), DELTA)[0] for by in (epsilon_by_rdp, epsilon_by_pld)
    )
    assert exact * (1 - 1e-6) <= pld <= rdp < 1.3 * exact + 1e-3
    # What precision costs of delta leaves nothing for such rounds.
    spent = ROUNDS * share * (1 + 1e-9)
    assert epsilon_by_rdp(frozenset(rounds), spent, numbers=1.0)[0] is None
