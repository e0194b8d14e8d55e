"""The zoned mean against plain numpy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp.aggregators import (
    WEIGHT_TYPE,
    HierarchicalMeanFactory,
    round_events,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    configurations,
)
from tff_hdp.privacy.secure import with_encoding

SIZES = (5, 3, 4)
SAMPLING = PoissonSampling((0.5,) * 3)
FLOATS = tff.TensorType(np.float32, [3])
pytestmark = pytest.mark.usefixtures("in_process_default")


# Without noise ---------------------------------------------------------------


@pytest.mark.parametrize("zones", [[0, 0, 0], [0, 1, 2], [2, 0, 2, 1, 0, 0], [1]])
def test_without_noise_any_zoning_gives_the_weighted_mean(
    updates, profiles, aggregate, flat, native_context, zones
):
    del native_context
    values = updates(len(zones))
    w = np.linspace(0.3, 1.0, len(zones)).astype(np.float32)
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, profiles(zones, w.tolist()))
    expected = np.average([flat(v) for v in values], axis=0, weights=w)
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


def test_equals_tffs_own_mean(
    updates, profiles, value_type, aggregate, flat, native_context
):
    del native_context
    values = updates(6, seed=1)
    clients = profiles([0, 1, 1, 2, 2, 2], [0.2, 1.0, 0.5, 0.25, 0.75, 0.5])
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, clients)
    tff_mean = tff.aggregators.MeanFactory().create(value_type, tff.to_type(np.float32))
    expected = tff_mean.next(
        tff_mean.initialize(), values, [c["weight"] for c in clients]
    )
    np.testing.assert_allclose(
        flat(output.result), flat(expected.result), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("mixing", ["weighted", "equal", (0.5, 0.2, 0.3)])
def test_fixed_denominator(updates, profiles, aggregate, flat, mixing):
    values, zones, w = updates(4, seed=2), [0, 0, 1, 2], [1.0, 0.5, 1.0, 0.25]
    plan = configurations.none(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        estimator="fixed",
        mixing=mixing,
        zone_weights=(4.0, 2.5, 3.0),
    )
    (output,) = aggregate(plan, values, profiles(zones, w))
    denominators = 0.5 * np.array([4.0, 2.5, 3.0])
    p = {"weighted": denominators / denominators.sum(), "equal": np.full(3, 1 / 3)}
    p = p.get(mixing, mixing) if isinstance(mixing, str) else np.array(mixing)
    expected = sum(
        p[z] * a * flat(v) / denominators[z]
        for v, z, a in zip(values, zones, w, strict=True)
    )
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("present", [1, 4])
def test_bounded_denominator(updates, profiles, aggregate, flat, present):
    values = updates(present, seed=3)
    plan = configurations.none(
        zone_sizes=(8,), sampling=PoissonSampling((0.25,)), estimator="bounded"
    )
    (output,) = aggregate(plan, values, profiles([0] * present))
    expected = sum(flat(v) for v in values) / max(2.0, present)
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


def test_empty_cohort_without_noise_changes_nothing(aggregate, flat):
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, [], [])
    assert not flat(output.result).any()
    assert output.measurements["clients"].tolist() == [0, 0, 0]


def test_upper_levels_leave_the_mean_alone(updates, profiles, aggregate, flat):
    values = updates(3, seed=9)
    levels = (Level(parents=(0, 0, 1), noise_multipliers=(0.0, 1e-8)),)
    plan = NoisePlan(
        zone_sizes=(1, 1, 1),
        sampling=FullParticipation(),
        upper_levels=levels,
        clipping=Clipping(clip_norm=1e3),
    )
    (output,) = aggregate(plan, values, profiles([0, 1, 2]))
    expected = np.mean([flat(v) for v in values], axis=0)
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-4)


# Clipping and screening ------------------------------------------------------


@pytest.fixture
def clipped(flat):
    """Scales an update down to a norm, as one vector."""

    def clip(update, norm):
        vector = flat(update).astype(np.float64)
        return vector * min(1.0, norm / np.linalg.norm(vector))

    return clip


@pytest.mark.parametrize("config", thinned(["c1", "c4", "c2"], every=2))
def test_clips_flat_at_every_level(updates, profiles, aggregate, clipped, flat, config):
    """With next to no noise the result is the mean of the clipped updates."""
    values = [*updates(2, seed=4, scale=3.0), *updates(2, seed=5, scale=1e-3)]
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=1e-6,
        clipping=Clipping(clip_norm=2.0),
    )
    (output,) = aggregate(plan, values, profiles([0, 1, 1, 2]))
    expected = sum(clipped(v, 2.0) for v in values) / (0.5 * sum(SIZES))
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-4)


def test_clips_per_layer(updates, profiles, aggregate):
    values = updates(1, seed=6, scale=5.0)
    norms = (3.0, 4.0)
    plan = configurations.c2(
        zone_sizes=(1,),
        sampling=FullParticipation(),
        noise_multiplier=1e-7,
        clipping=Clipping(clip_norm=5.0, kind="per_layer", layer_norms=norms),
    )
    (output,) = aggregate(plan, values, profiles([0]))
    result = [np.linalg.norm(t) for t in tf.nest.flatten(output.result)]
    np.testing.assert_allclose(result, norms, rtol=1e-4)


def test_layer_norms_must_fit_the_update(value_type):
    plan = configurations.c2(
        zone_sizes=(1,),
        sampling=FullParticipation(),
        noise_multiplier=1.0,
        clipping=Clipping(clip_norm=1.0, kind="per_layer", layer_norms=(1.0,)),
    )
    with pytest.raises(ArgumentError, match=r"layer_norms is 1\.0; allowed: 2 n"):
        HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)


@pytest.mark.parametrize(
    ("config", "poison"),
    thinned(["none", "c2"], [np.nan, np.inf, -np.inf, 1e25], every=2),
)
def test_non_finite_update_is_left_out_and_counted(
    updates, profiles, aggregate, clipped, flat, poison, config
):
    values = updates(3, seed=7)
    values[1]["bias"][3] = poison
    if config == "none":
        plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
        expected = (flat(values[0]) + flat(values[2])) / 2
    else:
        plan = configurations.c2(
            zone_sizes=SIZES,
            sampling=SAMPLING,
            noise_multiplier=1e-7,
            clipping=Clipping(clip_norm=1.0),
        )
        expected = (clipped(values[0], 1.0) + clipped(values[2], 1.0)) / 6
    (output,) = aggregate(plan, values, profiles([0, 1, 2]))
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-5)
    assert output.measurements["rejected"] == 1
    assert output.measurements["clients"].sum() == 3


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_half_precision_is_averaged_and_measured(dtype, profiles):
    plan = configurations.none(zone_sizes=(2, 1), sampling=FullParticipation())
    halves = dtype.as_numpy_dtype
    process = HierarchicalMeanFactory(plan).create(
        tff.TensorType(halves, [4]), WEIGHT_TYPE
    )
    values = [np.full([4], value, halves) for value in (200, 400, 600)]
    output = process.next(process.initialize(), values, profiles([0, 0, 1]))
    assert output.result.dtype == halves
    np.testing.assert_array_equal(output.result, values[1])
    assert output.measurements["rejected"] == 0
    assert output.measurements["update_norm"] == 800.0


def test_norms_are_of_what_is_in_the_sum(updates, profiles, aggregate, flat):
    """Of none whose update, weight or zone is refused."""
    values = updates(5, seed=3)
    values[1]["bias"][0] = np.inf
    clients = profiles([0, 0, 0, 9, 1], [1.0, 1.0, 2.0, 1.0, 0.5])
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, clients)
    measured = output.measurements
    assert measured["rejected"] == 3
    kept = [flat(values[i]) for i in (0, 4)]
    norms = [np.linalg.norm(v) for v in kept]
    assert measured["update_norm"] == pytest.approx(sum(norms) / 5, rel=1e-5)
    biases = [np.linalg.norm(values[i]["bias"]) for i in (0, 4)]
    assert measured["tensor_norms"][0] == pytest.approx(sum(biases) / 5, rel=1e-5)


def test_a_rejected_client_stays_in_a_bounded_denominator(
    updates, profiles, aggregate, flat
):
    """Else the released denominator would tell whose data was rejected."""
    values = updates(4, seed=7)
    values[3]["bias"][0] = np.nan
    plan = configurations.none(
        zone_sizes=(8,), sampling=PoissonSampling((0.25,)), estimator="bounded"
    )
    (output,) = aggregate(plan, values, profiles([0] * 4))
    expected = sum(flat(v) for v in values[:3]) / 4
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


def test_a_plan_that_tops_up_is_refused(value_type):
    plan = NoisePlan(
        zone_sizes=(2,),
        sampling=FullParticipation(),
        client_noise_multiplier=1.0,
        noising_clients=(2,),
        top_up=True,
    )
    with pytest.raises(ArgumentError, match=r"plan.top_up is True"):
        HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.5, float("nan")])
def test_weight_out_of_range_is_left_out_and_counted(
    updates, profiles, aggregate, flat, weight
):
    values = updates(2, seed=8)
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, profiles([0, 1], [1.0, weight]))
    np.testing.assert_allclose(flat(output.result), flat(values[0]), atol=1e-6)
    assert output.measurements["rejected"] == 1


def test_a_client_of_an_unknown_zone_is_rejected(updates, profiles, aggregate, flat):
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    values = updates(2)
    (output,) = aggregate(plan, values, profiles([3, 1]))
    assert output.measurements["rejected"] == 1
    np.testing.assert_allclose(flat(output.result), flat(values[1]), atol=1e-6)


def test_integer_updates_are_refused():
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    with pytest.raises(TypeError, match="int32"):
        HierarchicalMeanFactory(plan).create(tff.to_type((np.int32, [3])), WEIGHT_TYPE)


PLANS = {
    "plain": configurations.c2(
        zone_sizes=(2, 1),
        sampling=FullParticipation(),
        noise_multiplier=1e-7,
        clipping=Clipping(clip_norm=2.0),
    ),
    "per layer": configurations.c2(
        zone_sizes=(2, 1),
        sampling=FullParticipation(),
        noise_multiplier=1.0,
        clipping=Clipping(clip_norm=2.0, kind="per_layer"),
    ),
    "secure": with_encoding(
        configurations.c1(
            zone_sizes=(2, 1),
            sampling=FullParticipation(),
            noise_multiplier=1e-5,
            clipping=Clipping(clip_norm=2.0),
            secure_aggregation=True,
        ),
        size=5,
        bits=30,
    ),
}


@pytest.mark.parametrize(
    ("value_type", "words"),
    [
        (tff.to_type([]), r"^tensors of an update is none; allowed: one or more"),
        (tff.StructType([]), r"^value_type is <>; allowed: tensors, in lists"),
        (tff.StructType([FLOATS]), r"^value_type is <float32\[3\]>; allowed: tens"),
        (tff.to_type([(np.float32, [0]), FLOATS]), r"^shape of an .* is \(0,\); all"),
        (tff.to_type((np.float32, [None])), r"^shape of an .* is \(None,\); allowed: "),
    ],
)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_updates_of_no_known_size_are_refused(plan, value_type, words):
    with pytest.raises(ArgumentError, match=words):
        HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)


@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_updates_may_be_of_several_dtypes(profiles, clipped, flat, kind):
    rng = np.random.default_rng(10)
    values = [[rng.normal(size=3).astype(np.float32), rng.normal(size=2)]] * 2
    values.append([3.0 * part for part in values[0]])
    mixed = tff.to_type([(np.float32, [3]), (np.float64, [2])])
    process = HierarchicalMeanFactory(PLANS[kind]).create(mixed, WEIGHT_TYPE)
    output = process.next(process.initialize(), values, profiles([0, 0, 1]))
    assert [part.dtype for part in output.result] == [np.float32, np.float64]
    expected = np.mean([clipped(value, 2.0) for value in values], axis=0)
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-3)


@pytest.mark.parametrize("plan", [None, "x", {}])
def test_what_is_no_plan_is_refused_by_name(plan):
    with pytest.raises(ArgumentError, match=r"^plan is .*; allowed: a NoisePlan"):
        HierarchicalMeanFactory(plan)


@pytest.mark.parametrize("queries", ["x", {}, 0, [None]])
def test_what_is_no_queries_is_refused_by_name(queries):
    factory = HierarchicalMeanFactory(PLANS["plain"], queries=queries)
    with pytest.raises(ArgumentError, match=r"^queries is .*; allowed: a LevelQueries"):
        factory.create(tff.to_type([(np.float32, [3])]), WEIGHT_TYPE)


@pytest.mark.parametrize("odd", [{"aggregator": {}}, {}, [], "x", 1.0])
def test_events_of_something_else_are_refused_by_name(odd):
    """Such as all metrics of a round."""
    with pytest.raises(ArgumentError, match=r"^measurements is .*allowed: metrics"):
        round_events(odd)
