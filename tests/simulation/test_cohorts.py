"""Cohorts have the distribution that is accounted, and resume exactly."""

import numpy as np
import pytest
from scipy import stats

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FixedSizeSampling, PoissonSampling, configurations
from tff_hdp.simulation.cohorts import CohortSampler, fresh_entropy
from tff_hdp.topology import Zoning

ZONING = Zoning(tuple("abcdefghij"), (0, 1, 0, 1, 0, 1, 0, 1, 1, 1))


def sampler(sampling, entropy=7):
    plan = configurations.none(zone_sizes=ZONING.zone_sizes, sampling=sampling)
    return CohortSampler(plan=plan, zoning=ZONING, entropy=entropy)


def test_poisson_takes_each_client_independently_with_its_zones_q():
    draws = np.zeros([4000, 10])
    cohorts = sampler(PoissonSampling((0.3, 0.6)))
    for number in range(len(draws)):
        draws[number, cohorts.draw(number)] += 1
    assert draws.max() == 1
    expected = np.where(np.asarray(ZONING.zone_of) == 0, 0.3, 0.6)
    # Five standard errors of a share over 4000 draws are below 0.04.
    np.testing.assert_allclose(draws.mean(0), expected, atol=0.04)
    correlation = np.corrcoef(draws.T)[np.triu_indices(10, 1)]
    assert np.abs(correlation).max() < 0.08
    sizes = np.bincount(draws[:, expected == 0.6].sum(1).astype(int), minlength=7)
    binomial = stats.binom.pmf(np.arange(7), 6, 0.6) * len(draws)
    assert stats.chisquare(sizes, binomial).pvalue > 1e-4


@pytest.mark.parametrize(("least", "taken"), [(0, True), (1, False), (2, False)])
def test_nobody_is_drawn_more_often_than_the_account_says(monkeypatch, least, taken):
    """Numbers have 53 bits: of q = 1.5 * 2^-53 only the first one is drawn."""
    cohorts = sampler(PoissonSampling((1.5 * 2.0**-53, 1.0)))
    words = np.full(10, least << 11, "<u8")
    monkeypatch.setattr(cohorts, "_words", lambda *_: words)
    expected = [i for i, z in enumerate(ZONING.zone_of) if z == 1 or taken]
    assert sorted(cohorts.draw(1)) == expected
    monkeypatch.setattr(cohorts, "_words", lambda *_: np.full(10, 2**64 - 1, "<u8"))
    assert sorted(cohorts.draw(1)) == [i for i, z in enumerate(ZONING.zone_of) if z]


def test_fixed_size_takes_exactly_k_of_each_zone_uniformly():
    cohorts = sampler(FixedSizeSampling((1, 4)))
    counts = np.zeros(10)
    for number in range(3000):
        cohort = cohorts.draw(number)
        zones = np.asarray(ZONING.zone_of)[cohort]
        assert np.bincount(zones).tolist() == [1, 4]
        assert len(set(cohort)) == 5
        counts[cohort] += 1
    expected = 3000 * np.where(np.asarray(ZONING.zone_of) == 0, 1 / 4, 4 / 6)
    np.testing.assert_allclose(counts, expected, rtol=0.15)


@pytest.mark.parametrize(
    "sampling", [PoissonSampling((0.3, 1)), FixedSizeSampling((1, 4))]
)
def test_no_generator_that_can_be_run_backwards_draws_a_cohort(sampling, monkeypatch):
    """Half of a cohort would give away NumPy's state, and with it the other half."""
    monkeypatch.delattr(np.random, "default_rng")
    drawn = [tuple(sampler(sampling).draw(number)) for number in range(20)]
    assert len(set(drawn)) > 5


@pytest.mark.parametrize(
    "sampling", [PoissonSampling((0.5, 0.7)), FixedSizeSampling((3, 4))]
)
def test_the_order_of_a_cohort_tells_nothing_of_its_clients_numbers(sampling):
    for number in range(20):
        cohort = sampler(sampling).draw(number)
        assert cohort.tolist() == sorted(cohort, key=lambda c: (ZONING.zone_of[c], c))


def test_a_round_can_be_drawn_again_alone():
    first, again = (sampler(PoissonSampling((0.5, 0.5))) for _ in range(2))
    cohorts = [first.draw(number) for number in range(6)]
    np.testing.assert_array_equal(again.draw(4), cohorts[4])
    assert len({tuple(c) for c in cohorts}) > 1
    other = sampler(PoissonSampling((0.5, 0.5)), entropy=8)
    assert any(tuple(other.draw(i)) != tuple(cohorts[i]) for i in range(6))


def test_fresh_entropy_is_fresh():
    assert fresh_entropy() != fresh_entropy()


def test_plan_and_zoning_must_agree():
    plan = configurations.none(zone_sizes=(5, 5), sampling=PoissonSampling((0.5, 0.5)))
    with pytest.raises(ValueError, match=r"plan\.zone_sizes is 5,5; .*\(4, 6\)"):
        CohortSampler(plan=plan, zoning=ZONING, entropy=1)


@pytest.mark.parametrize("entropy", [None, -19, 1.9, True, "79", b"79"])
def test_a_secret_that_is_no_number_is_refused_and_not_told(entropy):
    with pytest.raises(ArgumentError, match=r"^entropy is of type") as error:
        sampler(PoissonSampling((0.5, 0.5)), entropy=entropy)
    assert "9" not in str(error.value)


def test_every_client_and_round_has_a_generator_of_its_own():
    cohorts = sampler(PoissonSampling((0.3, 0.6)))
    drawn = {
        (number, client): cohorts.batch_generators(number)(client).integers(2**63)
        for number in (1, 2)
        for client in (0, 1, 11)
    }
    assert len(set(drawn.values())) == len(drawn)
    again = sampler(PoissonSampling((0.3, 0.6))).batch_generators(2)(11)
    assert again.integers(2**63) == drawn[2, 11]


def test_a_client_that_knows_its_generator_does_not_know_the_secret():
    """Nothing of the secret is in a generator's seed: NumPy's can be run backwards."""
    secret = fresh_entropy()
    cohorts = sampler(PoissonSampling((0.3, 0.6)), entropy=secret)
    generator = cohorts.batch_generators(1)(3)
    seeded_with = generator.bit_generator.seed_seq.bytes
    assert len(seeded_with) == 32
    assert secret.to_bytes(16) not in seeded_with
    assert seeded_with != cohorts.batch_generators(1)(4).bit_generator.seed_seq.bytes


def test_a_clients_generator_starts_from_all_of_its_seed():
    """As O'Neill's PCG64 (2014, XSL-RR of 128 bits) is seeded, in whole numbers."""
    generator = sampler(PoissonSampling((0.3, 0.6))).batch_generators(1)(3)
    seed = generator.bit_generator.seed_seq.bytes
    whole = [int.from_bytes(seed[i : i + 8], "little") for i in range(0, 32, 8)]
    start, stream = (high << 64 | low for high, low in (whole[:2], whole[2:]))
    increment = (2 * stream + 1) % 2**128

    def step(state):
        return (state * 0x2360ED051FC65DA44385DF649FCCF645 + increment) % 2**128

    state = step(step(0) + start)
    for _ in range(3):
        state = step(state)
        mixed, turn = (state >> 64 ^ state) % 2**64, state >> 122
        wanted = (mixed >> turn | mixed << 64 - turn) % 2**64
        assert generator.bit_generator.random_raw() == wanted


def test_a_round_released_again_has_a_cohort_independent_of_the_first():
    """Two sums over one cohort would be more than two rounds of the account."""
    cohorts = sampler(PoissonSampling((0.3, 0.6)))
    draws = np.zeros([2, 3000, 10])
    for number in range(draws.shape[1]):
        for earlier in (0, 1):
            draws[earlier, number, cohorts.draw(number, earlier=earlier)] = 1
    for client in range(10):
        # Five standard errors of a correlation over 3000 draws.
        assert abs(np.corrcoef(draws[:, :, client])[0, 1]) < 5 / np.sqrt(3000)
    again = cohorts.draw(3, earlier=2)
    np.testing.assert_array_equal(again, cohorts.draw(3, earlier=2))
    first = cohorts.generator(3, stream=2).random(4)
    np.testing.assert_array_equal(first, cohorts.generator(3, stream=2).random(4))
    assert set(first).isdisjoint(cohorts.generator(3, stream=2, earlier=1).random(4))
