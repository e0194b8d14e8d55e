"""tensorflow-privacy's queries get noise of the project's own, wherever they stand."""

import collections
import functools

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp
from tensorflow_privacy.privacy.dp_query.nested_query import NestedSumQuery

from tff_hdp import noise
from tff_hdp.aggregators import queries
from tff_hdp.aggregators.queries import (
    GaussianSumQuery,
    clip_of,
    with_secure_noise,
)
from tff_hdp.errors import ArgumentError


def adaptive():
    return tfp.QuantileAdaptiveClipSumQuery(
        initial_l2_norm_clip=1.0,
        noise_multiplier=1.0,
        target_unclipped_quantile=0.5,
        learning_rate=0.2,
        clipped_count_stddev=5.0,
        expected_num_records=100,
    )


QUERIES = {
    "plain": (lambda: tfp.GaussianSumQuery(1.0, 2.0), tf.zeros([3])),
    "normalised": (
        lambda: tfp.NormalizedQuery(tfp.GaussianSumQuery(1.0, 2.0), 1.0),
        tf.zeros([3]),
    ),
    "nested": (
        lambda: NestedSumQuery([tfp.GaussianSumQuery(1.0, 2.0)] * 2),
        [tf.zeros([3]), tf.zeros([2])],
    ),
    "adaptive": (adaptive, tf.zeros([3])),
}


def run(query, record):
    state = query.initial_global_state()
    params = query.derive_sample_params(state)
    total = query.accumulate_record(params, query.initial_sample_state(record), record)
    return query.get_noised_result(total, state)


@pytest.mark.parametrize(
    ("name", "clip"),
    [("plain", 1.0), ("normalised", 1.0), ("nested", 2**0.5), ("adaptive", 1.0)],
)
def test_the_norm_of_a_clip_is_that_of_the_record(name, clip):
    """Adaptive clipping's count of clipped updates is clipped too, to 1/2."""
    build, _ = QUERIES[name]
    assert float(clip_of(build().initial_global_state())) == pytest.approx(clip)


@pytest.mark.parametrize("name", QUERIES)
def test_no_noise_is_left_to_tensorflow(name, monkeypatch):
    """With the project's noise switched off nothing is added at all."""
    build, record = QUERIES[name]
    drawn = []

    def none(values, stddev):
        drawn.append(float(stddev))
        return values

    monkeypatch.setattr(queries, "add_gaussian", none)
    result, _, _ = run(with_secure_noise(build()), record)
    assert drawn
    assert all(not np.any(t) for t in tf.nest.flatten(result))


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_released_and_accounted_stays(name):
    build, record = QUERIES[name]
    ours, _, event = run(with_secure_noise(build()), record)
    theirs, _, expected = run(build(), record)
    tf.nest.assert_same_structure(ours, theirs)
    assert event == expected
    assert any(np.any(t) for t in tf.nest.flatten(ours))


class Halved(tfp.GaussianSumQuery):
    """Does something of its own to records."""

    def preprocess_record_impl(self, params, record):
        record, norm = super().preprocess_record_impl(params, record)
        return tf.nest.map_structure(lambda t: 0.5 * t, record), norm


class Quiet(tfp.GaussianSumQuery):
    """Says it noises, and does not."""

    def get_noised_result(self, sample_state, global_state):
        _, state, event = super().get_noised_result(sample_state, global_state)
        return sample_state, state, event


def test_a_class_that_leaves_noise_to_its_base_gets_this_noise(monkeypatch):
    monkeypatch.setattr(queries, "add_gaussian", lambda values, stddev: values)
    result, _, event = run(with_secure_noise(Halved(1.0, 3.0)), tf.fill([3], 0.2))
    np.testing.assert_allclose(result, [0.1] * 3)
    assert event.noise_multiplier == 3.0


def test_a_class_made_from_ours_stays_as_it_is():
    class Own(GaussianSumQuery):
        pass

    query = Own(1.0, 3.0)
    assert with_secure_noise(query) is query


def test_a_class_whose_own_noise_would_pass_for_gaussian_is_refused():
    for query in (
        Quiet(1.0, 3.0),
        NestedSumQuery([Quiet(1.0, 3.0), tfp.GaussianSumQuery(1.0, 3.0)]),
    ):
        with pytest.raises(ArgumentError, match="query is Quiet"):
            with_secure_noise(query)


class Unclipped(tfp.GaussianSumQuery):
    """Says its clip norm, and does not clip."""

    def preprocess_record_impl(self, params, record):
        return record, tf.constant(0.0)


class UnclippedAlone(GaussianSumQuery):
    def preprocess_record(self, params, record):
        return record


@pytest.mark.parametrize("kind", [Unclipped, UnclippedAlone])
def test_what_a_class_of_ones_own_makes_is_clipped_once_more(kind, monkeypatch):
    monkeypatch.setattr(queries, "add_gaussian", lambda values, stddev: values)
    record = tf.constant([30.0, 40.0, 0.0])
    for query in (kind(1.0, 3.0), NestedSumQuery(kind(1.0, 3.0))):
        result, _, _ = run(with_secure_noise(query), record)
        np.testing.assert_allclose(result, [0.6, 0.8, 0.0], rtol=1e-6)


def test_a_clip_norm_that_is_not_the_accounted_one_is_refused():
    class Wide(tfp.GaussianSumQuery):
        def derive_sample_params(self, global_state):
            return 100.0 * global_state.l2_norm_clip

    with pytest.raises(ArgumentError, match="query is Wide; allowed: one that leaves"):
        with_secure_noise(Wide(1.0, 3.0))


class Scaled(NestedSumQuery):
    """Clips, and makes what it clipped a thousand times as large."""

    def preprocess_record(self, params, record):
        clipped = super().preprocess_record(params, record)
        return tf.nest.map_structure(lambda t: 1000.0 * t, clipped)


class ScaledSum(GaussianSumQuery):
    """Does so once it is clipped and summed."""

    def accumulate_preprocessed_record(self, state, record):
        grown = tf.nest.map_structure(lambda t: 1000.0 * t, record)
        return super().accumulate_preprocessed_record(state, grown)


class ScaledInDisguise(GaussianSumQuery):
    @functools.wraps(tfp.GaussianSumQuery.derive_sample_params)
    def derive_sample_params(self, global_state):
        return 1000.0 * global_state.l2_norm_clip


class ScaledPart(tfp.NoPrivacySumQuery):
    def preprocess_record(self, params, record):
        return tf.nest.map_structure(lambda t: 1000.0 * t, record)


@pytest.mark.parametrize(
    "query",
    [
        Scaled(tfp.GaussianSumQuery(1.0, 1.0)),
        tfp.NormalizedQuery(Scaled(tfp.GaussianSumQuery(1.0, 1.0)), 10.0),
        ScaledSum(1.0, 1.0),
        ScaledInDisguise(1.0, 1.0),
        ScaledPart(),
    ],
    ids=lambda query: type(query).__name__,
)
def test_nothing_makes_a_record_larger_than_its_clip(query):
    with pytest.raises(ArgumentError, match="query is Scaled"):
        with_secure_noise(query)


class Foreign(tfp.SumAggregationDPQuery):
    """Draws by TensorFlow and says it is Gaussian, with a state that shows a clip."""

    def initial_global_state(self):
        return collections.OrderedDict(l2_norm_clip=tf.constant(1.0))

    def get_noised_result(self, sample_state, global_state):
        noised = sample_state + tf.random.normal(tf.shape(sample_state))
        return noised, global_state, dp_accounting.GaussianDpEvent(1.0)


def test_a_class_of_ones_own_that_noises_is_refused():
    for query in (Foreign(), tfp.NormalizedQuery(Foreign(), 1.0)):
        with pytest.raises(ArgumentError, match="query is Foreign; allowed: one"):
            with_secure_noise(query)


def test_other_queries_stay_as_they_are():
    query = tfp.NoPrivacySumQuery()
    result, _, _ = run(with_secure_noise(query), tf.ones([3]))
    np.testing.assert_array_equal(result, np.ones(3))


def test_the_noise_is_as_strong_as_asked_for():
    query = GaussianSumQuery(1.0, 2.5)
    state = query.initial_global_state()
    result, _, _ = query.get_noised_result(tf.zeros([200_000]), state)
    assert abs(np.std(result) / 2.5 - 1) < 5 / (2 * 200_000) ** 0.5
    steps = result.numpy() / noise.grid_step(2.5)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)


@pytest.mark.parametrize("clip", [1.0, 1e15, 1e-12, 1e-21, 1e-30])
@pytest.mark.parametrize("size", [0.0, 1e-5, 0.3, 1.0, 7.0, 1e6])
@pytest.mark.parametrize("query", [GaussianSumQuery, Unclipped, UnclippedAlone])
def test_nothing_is_longer_than_the_clip_however_short_that_is(query, size, clip):
    """A clip that adapts to updates of zeros comes to lengths whose squares vanish."""
    rng = np.random.default_rng(0)
    record = [np.float32(clip * size * rng.normal(size=n)) for n in (1000, 5, ())]
    query = with_secure_noise(query(1.0, 3.0))
    found = query.preprocess_record(tf.constant(clip), list(map(tf.constant, record)))
    whole = np.concatenate([np.ravel(part).astype(np.float64) for part in record])
    expected = whole / max(1.0, np.linalg.norm(whole) / clip)
    found = np.concatenate([np.ravel(part).astype(np.float64) for part in found])
    assert np.linalg.norm(found) <= clip * (1 + 1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("size", [0.0, 0.3, 1.0, 7.0, 1e15])
def test_ours_clips_as_tensorflow_privacys(size):
    rng = np.random.default_rng(0)
    record = [
        tf.constant(size * rng.normal(size=shape), tf.float32)
        for shape in ([4, 3], [5], [])
    ]
    ours, theirs = (
        query.preprocess_record_impl(tf.constant(1.0), record)
        for query in (GaussianSumQuery(1.0, 3.0), tfp.GaussianSumQuery(1.0, 3.0))
    )
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    for own, other in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)
