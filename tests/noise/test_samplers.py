"""Noise against scipy's distributions, to its tails, and its grid."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tff_hdp.noise import (
    STEPS,
    add_gaussian,
    add_laplace,
    gaussian,
    laplace,
    samplers,
)
from tff_hdp.privacy import composition

LAWS = [
    (gaussian, stats.norm()),
    (laplace, stats.laplace(scale=0.5**0.5)),
]
SAMPLES = 4_000_000


def cells(law, edges):
    """Probabilities between edges, and beyond them, of a law rounded to the grid."""
    # A number rounds up at half a step.
    inner = np.diff(law.cdf(np.asarray(edges) - 0.5 / STEPS))
    return np.concatenate(
        [[law.cdf(edges[0] - 0.5 / STEPS)], inner, [law.sf(edges[-1] - 0.5 / STEPS)]]
    )


@pytest.mark.parametrize(("draw", "law"), LAWS)
def test_counts_in_bins_are_those_of_the_law(draw, law):
    sample = draw([SAMPLES], 1.0).numpy().astype(np.float64)
    edges = np.arange(-4 * STEPS, 4 * STEPS + 1, 8) / STEPS
    found = np.histogram(sample, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
    test = stats.chisquare(found, SAMPLES * cells(law, edges))
    # A right sampler fails once in a million runs.
    assert test.pvalue > 1e-6


@pytest.mark.parametrize(("draw", "law"), LAWS)
def test_every_step_near_the_middle_has_its_share(draw, law):
    sample = draw([SAMPLES], 3.0).numpy().astype(np.float64) / 3.0 * STEPS
    whole = np.rint(sample).astype(int)
    np.testing.assert_allclose(sample, whole, atol=1e-4)
    edges = np.arange(-20, 21) / STEPS
    found = np.histogram(whole, np.arange(-20, 21) - 0.5)[0]
    expected = SAMPLES * cells(law, edges)[1:-1]
    assert np.abs(found - expected).max() < 5.5 * expected.max() ** 0.5


@pytest.mark.parametrize("sigmas", [3.0, 4.0, 4.7])
def test_tails_are_as_heavy_as_they_should(sigmas):
    sample = np.abs(gaussian([8_000_000], 1.0).numpy())
    bound = np.ceil(sigmas * STEPS) / STEPS
    expected = 8e6 * 2 * stats.norm.sf(bound - 0.5 / STEPS)
    found = int(np.sum(sample >= bound - 1e-6))
    assert stats.poisson.cdf(found, expected) > 1e-6
    assert stats.poisson.sf(found - 1, expected) > 1e-6


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tails_to_seven_sigma():
    """2e10 draws; TensorFlow's own generator never passes 5.68."""
    bounds = np.arange(3 * STEPS, 7 * STEPS + 1, STEPS // 2) / STEPS
    counts = np.zeros(len(bounds))
    largest, draws, size = 0.0, 10_000, 2_000_000
    for _ in range(draws):
        sample = np.abs(gaussian([size], 1.0).numpy())
        far = sample[sample > 2.9]
        largest = max(largest, float(far.max()))
        counts += [np.sum(far >= b - 1e-6) for b in bounds]
    expected = draws * size * 2 * stats.norm.sf(bounds - 0.5 / STEPS)
    for bound, found, mean in zip(bounds, counts, expected, strict=True):
        assert stats.poisson.cdf(found, mean) > 1e-5, (bound, found, mean)
        assert stats.poisson.sf(found - 1, mean) > 1e-5, (bound, found, mean)
    assert largest > 5.68


def test_tails_have_no_end(monkeypatch):
    """Words of zeros lead on: n times 63 bits, then what the next words say."""
    zeros, ones = tf.zeros([3], tf.int64), tf.ones([3], tf.int64) * 5
    draws = iter([zeros, zeros[:2], tf.concat([zeros[:1], ones[:1]], 0), ones[:2]])
    monkeypatch.setattr(samplers, "secure_words", lambda count: next(draws))
    far = samplers.standard_normal(tf.constant(2)).numpy()
    # The third draw's words are 0 and 5, so its first is zero too.
    bits = 3 * 63 * np.log(2.0) - np.log((5 + 5.5 * 2.0**-63) * 2.0**-63)
    np.testing.assert_allclose(far, [np.sqrt(2 * bits), 0.0], rtol=1e-14, atol=1e-12)


def test_tails_lead_on_as_often_as_they_should(monkeypatch):
    """Where 62 of 63 bits are zero always, every second number is drawn again."""
    rng = np.random.default_rng(0)

    def words(count):
        drawn = rng.integers(0, 2**63, int(count))
        drawn[: int(count) // 2] &= 1
        return tf.constant(drawn)

    monkeypatch.setattr(samplers, "secure_words", words)
    count = 100_000
    high, low = samplers._words(2, tf.constant(count))
    turns = samplers._exponential(high, low).numpy() / np.log(2.0)
    # What is left of a number 1.low between 62 and 63 bits.
    again = np.floor(turns / 63)
    assert stats.kstest(63 - turns + 63 * again, _log2_of_one_to_two).pvalue > 1e-6
    found = np.bincount(again.astype(int), minlength=3)[:3]
    assert (
        stats.chisquare(
            [*found, count - found.sum()], count * np.array([0.5, 0.25, 0.125, 0.125])
        ).pvalue
        > 1e-6
    )


def _log2_of_one_to_two(x):
    """Distribution function of log2(1 + u), u uniform."""
    return np.clip(2.0**x - 1.0, 0.0, 1.0)


def test_arithmetic_is_as_precise_as_the_error_says(monkeypatch):
    """Against 80-bit arithmetic, to 20 standard deviations as errors grow with them.

    A number's probability is that between two bounds, which both may have moved.
    """
    words = np.random.default_rng(0).integers(-(2**63), 2**63, [3, 200_000])
    words[0, ::2] = np.abs(words[0, ::2]) >> 40  # half of them far out in the tail
    monkeypatch.setattr(
        samplers, "secure_words", lambda _: tf.constant(words.ravel(), tf.int64)
    )
    found = samplers.standard_normal(tf.constant(words[0].size * 2)).numpy()
    high, low = (words[:2] & (2**63 - 1)).astype(np.longdouble)
    uniform = (high + (low + 0.5) / np.longdouble(2.0**63)) / np.longdouble(2.0**63)
    radius = np.sqrt(-2 * np.log(uniform))
    # The angle's own rounding moves no bound: it is uniform to 2^-53 of a turn.
    angle = (words[2].astype(np.float64) * (np.pi * 2.0**-63)).astype(np.longdouble)
    exact = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    assert np.abs(exact).max() > 8
    further = 20.0 / np.abs(exact).max()
    moved = np.abs(found - exact).max() * STEPS * further
    assert 2.0 * moved < samplers.RELATIVE_ERROR


@pytest.mark.parametrize("add", [add_gaussian, add_laplace])
def test_sums_lie_on_a_grid_whatever_the_value(add):
    """So the low bits of a noised value say nothing of it (Mironov 2012)."""
    stddev = 0.37
    values = tf.constant([0.0, 1e-3, 1.0 / 3, 17.123456, -5.5e3], tf.float64)
    for _ in range(20):
        steps = add(values, stddev).numpy() / (stddev / STEPS)
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)


def test_rounding_moves_no_mean():
    """A value between two grid points is met in the mean."""
    step = 0.01 / STEPS
    sample = add_gaussian(tf.fill([SAMPLES], tf.constant(0.3 * step, tf.float64)), 0.01)
    assert abs(sample.numpy().mean() - 0.3 * step) < 5 * 0.01 / SAMPLES**0.5


def test_structures_keep_their_form_and_every_number_its_own_noise():
    values = {"a": tf.zeros([200, 3]), "b": [tf.zeros([]), tf.zeros([0, 4])]}
    noised = add_gaussian(values, 1.0)
    tf.nest.assert_same_structure(noised, values)
    assert noised["a"].shape == (200, 3)
    assert noised["b"][1].shape == (0, 4)
    columns = noised["a"].numpy().T
    assert np.abs(np.corrcoef(columns)[np.triu_indices(3, 1)]).max() < 0.4
    assert not np.array_equal(noised["a"], add_gaussian(values, 1.0)["a"])


def test_no_noise_changes_nothing():
    value = tf.constant([1.0, 1.0 / 3])
    np.testing.assert_array_equal(add_gaussian(value, 0.0), value)


def test_numbers_of_one_draw_are_independent():
    pairs = gaussian([2, SAMPLES // 2], 1.0).numpy()
    radius = np.sqrt((pairs**2).sum(0))
    # Rayleigh: one minus exp(-r^2/2) is uniform.
    assert stats.kstest(radius[:200_000], stats.rayleigh.cdf).pvalue > 1e-6
    assert abs(np.corrcoef(pairs)[0, 1]) < 5 / (SAMPLES // 2) ** 0.5


def test_the_account_knows_of_the_precision():
    assert samplers.RELATIVE_ERROR == composition.RELATIVE_ERROR
