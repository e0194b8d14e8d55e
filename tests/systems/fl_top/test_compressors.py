"""Compressors against NumPy, SciPy and scikit-learn."""

import numpy as np
import pytest
import scipy.fft
import scipy.stats
import tensorflow as tf
from sklearn.linear_model import orthogonal_mp

from tests.thinning import thinned
from tff_hdp.systems.fl_top import compressors
from tff_hdp.systems.fl_top.compressed_sensing import (
    CompressedSensing,
    kth_greatest,
    largest_coefficients,
)
from tff_hdp.systems.fl_top.compressors import (
    FixedSubset,
    Identity,
    RandomSubset,
    draw_subset,
)
from tff_hdp.systems.fl_top.cosines import CosineTransform

ROUND = tf.constant(3)


def sparse_vector(size, nonzeros, seed):
    rng = np.random.default_rng(seed)
    x = np.zeros(size, np.float32)
    x[rng.choice(size, nonzeros, replace=False)] = rng.normal(size=nonzeros)
    return x


def test_a_subset_is_distinct_and_the_same_for_all_parties():
    first = draw_subset(1000, 300, 7, ROUND).numpy()
    assert len(set(first)) == 300
    assert first.min() >= 0 and first.max() < 1000
    np.testing.assert_array_equal(first, draw_subset(1000, 300, 7, ROUND))
    for seed, number in ((7, 4), (8, 3)):
        other = draw_subset(1000, 300, seed, tf.constant(number)).numpy()
        assert set(first) != set(other)


@pytest.mark.parametrize("deviations", [10.0, 0.0, -3.0])
@pytest.mark.parametrize("size", [1, 40, 500, 999, 1000])
def test_the_greatest_lots_win_whatever_the_bound(monkeypatch, deviations, size):
    # Too high a bound keeps winners out, and all lots are sorted then.
    monkeypatch.setattr(compressors, "_DEVIATIONS", deviations)
    given = {"seed": [7, 3], "minval": None, "maxval": None, "dtype": tf.int32}
    lots = tf.random.stateless_uniform([1000], **given).numpy()
    winners = np.sort(np.argsort(lots)[1000 - size :])
    np.testing.assert_array_equal(draw_subset(1000, size, 7, ROUND), winners)


def test_every_weight_is_equally_likely_to_be_drawn():
    rounds, population, size = 2000, 37, 5
    counts = np.zeros(population)
    draw = tf.function(lambda number: draw_subset(population, size, 1, number))
    for number in tf.range(rounds):
        counts[draw(number).numpy()] += 1
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    "values",
    [
        np.abs(np.random.default_rng(0).standard_t(2, size=999)),
        np.repeat([3.0, 0.25, 0.0], 333),
        # Next to each other, down to the last bit; and less than any normal number.
        np.random.default_rng(1).permutation(1.0 + np.arange(999) * 2.0**-23),
        np.random.default_rng(2).permutation(np.arange(999) * 2.0**-149),
        [*np.geomspace(1e-38, 1e38, 998), np.inf],
    ],
    ids=["spread", "ties", "last bits", "denormal", "all sizes"],
)
def test_the_kth_greatest_is_that_of_the_sorted(values):
    values = np.array(values, np.float32)
    found = [kth_greatest(tf.constant(values), k) for k in (1, 2, 334, 500, 998, 999)]
    expected = np.sort(values)[::-1][[0, 1, 333, 499, 997, 998]]
    np.testing.assert_array_equal(found, expected)


def test_a_fixed_subset_exchanges_its_coordinates_alone():
    initial = np.arange(6, dtype=np.float32)
    subset = FixedSubset(initial, np.array([1, 4]))
    assert (subset.upload_size, subset.download_size) == (2, 2)
    weights = tf.constant([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    np.testing.assert_array_equal(subset.send(weights), [8, 5])
    updates = tf.constant([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [9.0] * 6])
    np.testing.assert_array_equal(subset.compress(updates, ROUND), [[1, 4], [9, 9]])
    # What was not exchanged is w_0's.
    np.testing.assert_array_equal(
        subset.receive(subset.send(weights)), [0, 8, 2, 3, 5, 5]
    )
    np.testing.assert_array_equal(
        subset.decompress(tf.constant([1.0, 2.0]), ROUND), [0, 1, 0, 0, 2, 0]
    )


@pytest.mark.parametrize(
    "coordinates",
    [
        *([], [1, 1], [4, 2], [0, 6], [-1, 2], [0, 2**32 + 1]),
        *([1.2, 1.7], [0, np.nan, 2], [False, True], [[0, 1]]),
        np.array([4, 2], np.uint32),
    ],
)
def test_bad_coordinates_are_refused(coordinates):
    with pytest.raises(ValueError, match=r"coordinates is .*; allowed: rising ones"):
        FixedSubset(np.zeros(6, np.float32), np.array(coordinates))


def test_a_random_subset_sends_all_down_and_few_up():
    subset = RandomSubset(50, 5, seed=2)
    assert (subset.upload_size, subset.download_size) == (5, 50)
    chosen = subset.trainable(ROUND).numpy()
    sent = subset.compress(tf.range(50.0)[tf.newaxis], ROUND)
    np.testing.assert_array_equal(sent, chosen[np.newaxis])
    whole = subset.decompress(tf.range(1.0, 6.0), ROUND).numpy()
    np.testing.assert_array_equal(whole[chosen], [1, 2, 3, 4, 5])
    assert np.count_nonzero(whole) == 5


def test_identity_changes_nothing():
    identity = Identity(4)
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    assert identity.trainable(ROUND) is None
    np.testing.assert_array_equal(identity.receive(identity.send(x)), x)
    np.testing.assert_array_equal(identity.compress(x[tf.newaxis], ROUND)[0], x)
    np.testing.assert_array_equal(identity.decompress(x, ROUND), x)


def test_measurements_are_cosine_coefficients():
    x = np.random.default_rng(0).normal(size=[3, 90]).astype(np.float32)
    sensing = CompressedSensing(90, 40, seed=5)
    padded = np.pad(x, [(0, 0), (0, 10)]).reshape(3, 10, 10)
    whole = scipy.fft.dctn(padded, axes=(1, 2), norm="ortho").reshape(3, 100)
    chosen = draw_subset(100, 40, 5, ROUND).numpy()
    np.testing.assert_allclose(
        sensing.compress(x, ROUND), whole[:, chosen], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("side", [1, 2, 3, 6, 7, 30])
def test_the_transform_is_scipys_and_has_its_inverse(side):
    x = np.random.default_rng(0).normal(size=[2, side, side]).astype(np.float32)
    transform = CosineTransform(side)
    found = transform.forward(x)
    places = transform.places(tf.range(side**2))
    np.testing.assert_allclose(
        tf.gather(tf.reshape(found, [2, -1]), places, axis=1),
        scipy.fft.dctn(x, axes=(1, 2), norm="ortho").reshape(2, -1),
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(transform.inverse(found), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [81, 90])
def test_the_adjoint_is_the_adjoint(size):
    rng = np.random.default_rng(1)
    sensing = CompressedSensing(size, 40, seed=5)
    x, y = rng.normal(size=size), rng.normal(size=40)
    x, y = x.astype(np.float32), y.astype(np.float32)
    forward = sensing.measure(x[np.newaxis], sensing.chosen(ROUND))[0]
    assert np.dot(forward, y) == pytest.approx(
        np.dot(x, sensing.adjoint(y, sensing.chosen(ROUND))), rel=1e-4, abs=1e-4
    )


@pytest.mark.parametrize("seed", thinned(range(5), every=3))
def test_sparse_updates_are_recovered(seed):
    size, nonzeros, measurements = 2000, 40, 400
    x = sparse_vector(size, nonzeros, seed)
    sensing = CompressedSensing(
        size, measurements, seed, sparsity=nonzeros, iterations=60
    )
    measured = sensing.compress(x[np.newaxis], ROUND)[0]
    found = sensing.decompress(measured, ROUND).numpy()
    assert np.linalg.norm(found - x) < 1e-3 * np.linalg.norm(x)


def test_recovery_is_that_of_orthogonal_matching_pursuit():
    size, nonzeros, measurements = 144, 5, 60
    x = sparse_vector(size, nonzeros, seed=11)
    sensing = CompressedSensing(size, measurements, 3, sparsity=nonzeros, iterations=60)
    matrix = sensing.measure(tf.eye(size), sensing.chosen(ROUND)).numpy().T
    measured = matrix @ x
    expected = orthogonal_mp(matrix, measured, n_nonzero_coefs=nonzeros)
    found = sensing.decompress(tf.constant(measured), ROUND)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_recovery_of_what_is_not_sparse_stays_bounded():
    x = np.random.default_rng(2).normal(size=900).astype(np.float32)
    residuals = []
    for iterations in (1, 3, 10, 30):
        sensing = CompressedSensing(900, 100, 4, iterations=iterations)
        measured = sensing.compress(x[np.newaxis], ROUND)
        found = sensing.decompress(measured[0], ROUND)
        again = sensing.compress(found[tf.newaxis], ROUND)
        residuals.append(float(tf.norm(measured - again) / tf.norm(measured)))
    assert residuals == sorted(residuals, reverse=True)
    assert residuals[-1] < 1.0


@pytest.mark.parametrize(("size", "kept"), [(42, 10), (3, 1)])
def test_a_quarter_as_many_weights_as_measurements_are_recovered(size, kept):
    """K / 4 by default, and one at least: of numbers of which no two are alike."""
    x = np.random.default_rng(3).normal(size=[1, 90]).astype(np.float32)
    sensing = CompressedSensing(90, size, 4, iterations=2)
    found = sensing.decompress(sensing.compress(x, ROUND)[0], ROUND)
    assert np.count_nonzero(found) == kept


def test_the_largest_coefficients_are_those_of_scipys_transform():
    update = np.random.default_rng(2).normal(size=81).astype(np.float32)
    found = largest_coefficients(update, 10)
    exact = np.abs(scipy.fft.dctn(update.reshape(9, 9), norm="ortho").ravel())
    assert set(found) == set(np.argsort(exact)[-10:])
    fixed = CompressedSensing(81, 10, 3, coefficients=found)
    assert not fixed.is_random
    for number in (0, 7):
        measured = fixed.compress(tf.constant(update)[tf.newaxis], tf.constant(number))
        np.testing.assert_allclose(np.abs(measured[0]), exact[found], atol=1e-5)


def test_nothing_is_recovered_from_nothing():
    sensing = CompressedSensing(90, 40, seed=5)
    np.testing.assert_array_equal(sensing.decompress(tf.zeros(40), ROUND), np.zeros(90))
