"""Accounts against numerical integration and simulation of the real quantities."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from tff_hdp.privacy import NoisePlan, PoissonSampling, account
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.sampled import SampledGaussian
from tff_hdp.privacy.spectrum import binomial_pool, noise_spectrum

DELTA = 1e-3


def losses_of_a_round(q, variances, probabilities, hidden, remove):
    """(loss, probability) of one round, on a fine grid of outputs.

    The observer sees the variance V and the output x ~ N(b, V), b in {0, 1} the
    client's participation, and b itself unless hidden.
    """
    losses, masses = [], []
    for v, p in zip(variances, probabilities, strict=True):
        sd = math.sqrt(v)
        edges = np.linspace(-9 * sd, 1 + 9 * sd, 20_001)
        x = (edges[1:] + edges[:-1]) / 2
        without, present = (
            np.diff(stats.norm.cdf(edges, mean, sd)) for mean in (0.0, 1.0)
        )
        # P(in) against P(out), where "out" has the client's update zeroed.
        if hidden:
            first, second = (1 - q) * without + q * present, without
            log_ratio = np.log1p(q * np.expm1((2 * x - 1) / (2 * v)))
            if not remove:
                first, log_ratio = second, -log_ratio
            losses.append(log_ratio)
            masses.append(p * first)
        else:
            losses.append((2 * x - 1) / (2 * v))
            masses.append(p * q * present)
    if not hidden:
        losses.append(np.zeros(1))
        masses.append(np.array([1 - q]))
    return np.concatenate(losses), np.concatenate(masses)


def composed_epsilon(losses, masses, rounds, delta, step=2e-4):
    """Epsilon after so many rounds, from a histogram of losses."""
    low = math.floor(losses.min() / step)
    histogram = np.bincount(
        np.round(losses / step).astype(int) - low, weights=masses, minlength=2
    )
    total = histogram
    for _ in range(rounds - 1):
        total = (
            np.convolve(total, histogram)
            if len(total) < 3000
            else fft(total, histogram)
        )
    grid = (np.arange(len(total)) + rounds * low) * step

    def excess(epsilon):
        above = grid > epsilon
        return float(total[above] @ -np.expm1(epsilon - grid[above])) - delta

    return optimize.brentq(excess, 0.0, grid[-1]) if excess(0.0) > 0 else 0.0


def fft(a, b):
    from scipy import signal

    return signal.fftconvolve(a, b)


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize(
    ("q", "fixed", "each", "others"),
    [
        (0.3, 1.0, 0.0, 0),
        (0.3, 1.0, 1.0, 6),
        (0.5, 0.5, 2.0, 3),
    ],
)
@pytest.mark.parametrize("rounds", [1, 4])
def test_pld_and_rdp_against_integration(hidden, q, fixed, each, others, rounds):
    pools = [binomial_pool(each, others, q)]
    mechanism = SampledGaussian(q, noise_spectrum(fixed, pools), hidden)
    counts = np.arange(others + 1) if each else np.zeros(1)
    probabilities = stats.binom.pmf(counts, others, q) if each else np.ones(1)
    exact = max(
        composed_epsilon(
            *losses_of_a_round(q, fixed + each * counts, probabilities, hidden, remove),
            rounds,
            DELTA,
        )
        for remove in (True, False)
    )
    key = frozenset([(mechanism, rounds)])
    pld, _ = epsilon_by_pld(key, DELTA)
    rdp, _ = epsilon_by_rdp(key, DELTA)
    assert pld == pytest.approx(exact, rel=2e-3)
    assert rdp >= pld


def test_unequal_zones_against_simulation():
    """Renyi moment of the released model, by drawing cohorts as the plan says."""
    sizes, rates, z = (6, 12, 24), (0.5, 0.3, 0.2), 1.3
    plan = NoisePlan(
        zone_sizes=sizes,
        sampling=PoissonSampling(rates),
        client_noise_multiplier=z,
        noising_clients=(6, 12, 10),
        zone_noise_multipliers=(0.0, 0.0, 0.7),
        server_noise_multiplier=0.4,
        mixing="equal",
    )
    rounds, delta = 20, 1e-4
    rows = account(plan, rounds, delta, ("rdp",))
    rng = np.random.default_rng(5)
    draws = 400_000
    step = np.array([1 / (3 * q * n) for q, n in zip(rates, sizes, strict=True)])
    against = "released_model", "ldp"
    released = [r for r in rows if (r.observer, r.client_kind) == against]
    assert [r.zone for r in released] == [0, 1, 2]
    for zone, row in enumerate(released):
        variance = np.full(draws, (z * step[zone]) ** 2)
        for j, noising in enumerate(plan.noising_clients):
            others = noising - (1 if j == zone else 0)
            taking_part = rng.binomial(others, rates[j], draws)
            variance += taking_part * (z * step[j]) ** 2
        variance += (0.7 * step[2]) ** 2 + (0.4 * step.max()) ** 2
        relative = variance / step[zone] ** 2
        epsilons = []
        for a in np.arange(1.25, 20, 0.25):
            moment = np.mean(np.exp(a * (a - 1) / (2 * relative)))
            rdp = math.log(1 - rates[zone] + rates[zone] * moment) / (a - 1)
            epsilons.append(
                rounds * rdp + math.log1p(-1 / a) - math.log(delta * a) / (a - 1)
            )
        assert row.epsilon_rdp == pytest.approx(min(epsilons), rel=0.01)


def test_noise_of_the_release_against_simulation():
    """The released multiplier is the real noise over the real sensitivity."""
    plan = NoisePlan(
        zone_sizes=(4, 8),
        sampling=PoissonSampling((1.0, 1.0)),
        client_noise_multiplier=0.5,
        noising_clients=(4, 0),
        zone_noise_multipliers=(0.0, 2.0),
        server_noise_multiplier=0.8,
        mixing=(0.25, 0.75),
    )
    rng = np.random.default_rng(6)
    draws = 200_000
    d, p, u = plan.denominators, plan.mixing_weights, plan.zone_sensitivities
    zone_0 = rng.normal(0, 0.5, (draws, 4)).sum(1) / d[0]
    zone_1 = rng.normal(0, 2.0 * u[1], draws)
    released = p[0] * zone_0 + p[1] * zone_1
    released += rng.normal(0, 0.8 * max(p[0] * u[0], p[1] * u[1]), draws)
    rows = [r for r in account(plan, 1, 1e-5, ()) if r.observer == "released_model"]
    # Everybody in zone 0, and in zone 1.
    assert [r.client_kind for r in rows] == ["ldp", "hdp"]
    for zone, row in enumerate(rows):
        assert row.noise_multiplier == pytest.approx(
            released.std() / (p[zone] * u[zone]), rel=0.01
        )
