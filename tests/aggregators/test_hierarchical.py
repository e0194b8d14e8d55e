"""The zoned mean against plain numpy, and its noise against the plan."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory, LevelQueries
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    configurations,
)

SHAPES = collections.OrderedDict(kernel=[40, 50], bias=[50])
VALUE_TYPE = tff.to_type(
    collections.OrderedDict((k, (np.float32, v)) for k, v in SHAPES.items())
)
SIZES = (5, 3, 4)
SAMPLING = PoissonSampling((0.5,) * 3)
pytestmark = pytest.mark.usefixtures("native_context")


def updates(count, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return [
        collections.OrderedDict(
            (k, (scale * rng.normal(size=s)).astype(np.float32))
            for k, s in SHAPES.items()
        )
        for _ in range(count)
    ]


def zeros(count):
    return [tf.nest.map_structure(np.zeros_like, u) for u in updates(count)]


def weights(zones, w=None, carries=True):
    w = [1.0] * len(zones) if w is None else w
    carries = [carries] * len(zones) if isinstance(carries, bool) else carries
    return [
        collections.OrderedDict(weight=a, zone=z, carries_noise=c)
        for a, z, c in zip(w, zones, carries, strict=True)
    ]


def flat(value):
    return np.concatenate([np.ravel(t) for t in tf.nest.flatten(value)])


def clipped(update, norm):
    vector = flat(update).astype(np.float64)
    return vector * min(1.0, norm / np.linalg.norm(vector))


def aggregate(plan, values, profiles, *, queries=None, rounds=1):
    process = HierarchicalMeanFactory(plan, queries=queries).create(
        VALUE_TYPE, WEIGHT_TYPE
    )
    state = process.initialize()
    outputs = []
    for _ in range(rounds):
        outputs.append(process.next(state, values, profiles))
        state = outputs[-1].state
    return outputs


# Without noise ---------------------------------------------------------------


@pytest.mark.parametrize("zones", [[0, 0, 0], [0, 1, 2], [2, 0, 2, 1, 0, 0], [1]])
def test_without_noise_any_zoning_gives_the_weighted_mean(zones):
    values = updates(len(zones))
    w = np.linspace(0.3, 1.0, len(zones)).astype(np.float32)
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, weights(zones, w.tolist()))
    expected = np.average([flat(v) for v in values], axis=0, weights=w)
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


def test_equals_tffs_own_mean():
    values = updates(6, seed=1)
    profiles = weights([0, 1, 1, 2, 2, 2], [0.2, 1.0, 0.5, 0.25, 0.75, 0.5])
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, profiles)
    tff_mean = tff.aggregators.MeanFactory().create(VALUE_TYPE, tff.to_type(np.float32))
    expected = tff_mean.next(
        tff_mean.initialize(), values, [p["weight"] for p in profiles]
    )
    np.testing.assert_allclose(
        flat(output.result), flat(expected.result), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("mixing", ["weighted", "equal", (0.5, 0.2, 0.3)])
def test_fixed_denominator(mixing):
    values, zones, w = updates(4, seed=2), [0, 0, 1, 2], [1.0, 0.5, 1.0, 0.25]
    plan = configurations.none(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        estimator="fixed",
        mixing=mixing,
        zone_weights=(4.0, 2.5, 3.0),
    )
    (output,) = aggregate(plan, values, weights(zones, w))
    denominators = 0.5 * np.array([4.0, 2.5, 3.0])
    p = {"weighted": denominators / denominators.sum(), "equal": np.full(3, 1 / 3)}
    p = p.get(mixing, mixing) if isinstance(mixing, str) else np.array(mixing)
    expected = sum(
        p[z] * a * flat(v) / denominators[z]
        for v, z, a in zip(values, zones, w, strict=True)
    )
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("present", [1, 4])
def test_bounded_denominator(present):
    values = updates(present, seed=3)
    plan = configurations.none(
        zone_sizes=(8,), sampling=PoissonSampling((0.25,)), estimator="bounded"
    )
    (output,) = aggregate(plan, values, weights([0] * present))
    expected = sum(flat(v) for v in values) / max(2.0, present)
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


def test_empty_cohort_without_noise_changes_nothing():
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, [], [])
    assert not flat(output.result).any()
    assert output.measurements["clients"].tolist() == [0, 0, 0]


# Clipping and screening ------------------------------------------------------


@pytest.mark.parametrize("config", ["c1", "c2", "c4"])
def test_clips_flat_at_every_level(config):
    """With next to no noise the result is the mean of the clipped updates."""
    values = [*updates(2, seed=4, scale=3.0), *updates(2, seed=5, scale=1e-3)]
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=1e-6,
        clipping=Clipping(norm=2.0),
    )
    (output,) = aggregate(plan, values, weights([0, 1, 1, 2]))
    expected = sum(clipped(v, 2.0) for v in values) / (0.5 * sum(SIZES))
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-4)


def test_clips_per_layer():
    values = updates(1, seed=6, scale=5.0)
    norms = (3.0, 4.0)
    plan = configurations.c2(
        zone_sizes=(1,),
        sampling=FullParticipation(),
        noise_multiplier=1e-7,
        clipping=Clipping(norm=5.0, kind="per_layer", layer_norms=norms),
    )
    (output,) = aggregate(plan, values, weights([0]))
    result = [np.linalg.norm(t) for t in tf.nest.flatten(output.result)]
    np.testing.assert_allclose(result, norms, rtol=1e-4)


def test_layer_norms_must_fit_the_update():
    plan = configurations.c2(
        zone_sizes=(1,),
        sampling=FullParticipation(),
        noise_multiplier=1.0,
        clipping=Clipping(norm=1.0, kind="per_layer", layer_norms=(1.0,)),
    )
    with pytest.raises(ValueError, match="layer_norms has 1 entries; the update has 2"):
        HierarchicalMeanFactory(plan).create(VALUE_TYPE, WEIGHT_TYPE)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e25])
@pytest.mark.parametrize("config", ["none", "c2"])
def test_non_finite_update_is_left_out_and_counted(poison, config):
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
            clipping=Clipping(norm=1.0),
        )
        expected = (clipped(values[0], 1.0) + clipped(values[2], 1.0)) / 6
    (output,) = aggregate(plan, values, weights([0, 1, 2]))
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-5)
    assert output.measurements["rejected"] == 1
    assert output.measurements["clients"].sum() == 3


def test_a_rejected_client_stays_in_a_bounded_denominator():
    """Else the released denominator would tell whose data was rejected."""
    values = updates(4, seed=7)
    values[3]["bias"][0] = np.nan
    plan = configurations.none(
        zone_sizes=(8,), sampling=PoissonSampling((0.25,)), estimator="bounded"
    )
    (output,) = aggregate(plan, values, weights([0] * 4))
    expected = sum(flat(v) for v in values[:3]) / 4
    np.testing.assert_allclose(flat(output.result), expected, rtol=1e-5, atol=1e-6)


def test_a_plan_that_tops_up_is_refused():
    plan = NoisePlan(
        zone_sizes=(2,),
        sampling=FullParticipation(),
        client_noise=1.0,
        noising_clients=(2,),
        top_up=True,
    )
    with pytest.raises(ValueError, match=r"plan.top_up is True"):
        HierarchicalMeanFactory(plan).create(VALUE_TYPE, WEIGHT_TYPE)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.5, float("nan")])
def test_weight_out_of_range_is_left_out_and_counted(weight):
    values = updates(2, seed=8)
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (output,) = aggregate(plan, values, weights([0, 1], [1.0, weight]))
    np.testing.assert_allclose(flat(output.result), flat(values[0]), atol=1e-6)
    assert output.measurements["rejected"] == 1


def test_unknown_zone_is_refused():
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    with pytest.raises(Exception, match=r"(?i)indices|zone|out of"):
        aggregate(plan, updates(1), weights([3]))


def test_integer_updates_are_refused():
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    with pytest.raises(TypeError, match="int32"):
        HierarchicalMeanFactory(plan).create(tff.to_type((np.int32, [3])), WEIGHT_TYPE)


# Noise -----------------------------------------------------------------------

# 2,050 coordinates a round over three rounds: the standard error of a measured
# standard deviation is 1 / sqrt(2 * 6150) = 0.9 %; 5 % is over five of those.
NOISE_TOLERANCE = 0.05


def measured_noise(plan, profiles, **kwargs):
    outputs = aggregate(plan, zeros(len(profiles)), profiles, rounds=3, **kwargs)
    noise = np.stack([flat(o.result) for o in outputs])
    assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(noise.size)
    correlation = np.corrcoef(noise)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(noise.shape[1])
    return noise.std()


@pytest.mark.parametrize("kind", ["flat", "per_layer"])
@pytest.mark.parametrize("estimator", ["fixed", "bounded"])
@pytest.mark.parametrize(
    ("config", "shares"),
    [
        ("c1", {}),
        ("c2", {}),
        ("c3", {"beta": 1 / 3}),
        ("c4", {}),
        ("c5", {"alpha": 0.5}),
        ("c6", {"beta": 2 / 3}),
        ("c7", {"alpha": 1 / 3, "beta": 1 / 3}),
    ],
)
def test_noise_of_every_configuration(config, shares, estimator, kind):
    """Unequal zones and a zone without clients: variances add as the plan says."""
    z, norm = 1.7, 0.6
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=z,
        clipping=Clipping(norm=norm, kind=kind),
        estimator=estimator,
        **shares,
    )
    zones = [0, 0, 0, 2, 2]
    place = [0, 1, 2, 0, 1]
    counts = [plan.noising_clients[zone] for zone in zones]
    carries = [p < count for p, count in zip(place, counts, strict=True)]
    unit = plan.released_sensitivities
    # A client's noise is divided by what its zone's sum is divided by.
    online = np.bincount(zones, minlength=3)
    floors = np.array(plan.denominators)
    per_client = norm * np.array(plan.mixing_weights) / floors
    if estimator == "bounded":
        per_client = norm * np.array(plan.mixing_weights) / np.maximum(floors, online)
    variance = sum(
        per_client[z_] ** 2 for z_, c in zip(zones, carries, strict=True) if c
    )
    variance = variance * plan.client_noise**2
    variance += sum((h * u) ** 2 for h, u in zip(plan.zone_noise, unit, strict=True))
    variance += (plan.server_noise * max(unit)) ** 2
    measured = measured_noise(plan, weights(zones, carries=carries))
    assert measured == pytest.approx(math.sqrt(variance), rel=NOISE_TOLERANCE)


def test_noise_of_unequal_mixing_and_upper_levels():
    plan = NoisePlan(
        zone_sizes=(4, 4, 8),
        sampling=FixedSizeSampling((2, 2, 2)),
        mixing=(0.2, 0.3, 0.5),
        clipping=Clipping(norm=2.0),
        upper_levels=(Level(parents=(0, 0, 1), noise=(1.5, 0.5)),),
    )
    unit = np.array(plan.released_sensitivities)
    np.testing.assert_allclose(unit, [0.2, 0.3, 0.5])
    variance = (1.5 * max(unit[:2])) ** 2 + (0.5 * unit[2]) ** 2
    measured = measured_noise(plan, weights([0, 1, 2], carries=False))
    assert measured == pytest.approx(math.sqrt(variance), rel=NOISE_TOLERANCE)


def test_upper_levels_leave_the_mean_alone():
    values = updates(3, seed=9)
    levels = (Level(parents=(0, 0, 1), noise=(0.0, 1e-8)),)
    plan = NoisePlan(
        zone_sizes=(1, 1, 1),
        sampling=FullParticipation(),
        upper_levels=levels,
        clipping=Clipping(norm=1e3),
    )
    (output,) = aggregate(plan, values, weights([0, 1, 2]))
    expected = np.mean([flat(v) for v in values], axis=0)
    np.testing.assert_allclose(flat(output.result), expected, atol=1e-4)


@pytest.mark.parametrize("config", ["c2", "c4"])
def test_empty_cohort_still_gets_its_noise(config):
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES, sampling=SAMPLING, noise_multiplier=1.0
    )
    zones = math.sqrt(3) if config == "c2" else 1.0
    expected = zones / (0.5 * sum(SIZES))
    assert measured_noise(plan, []) == pytest.approx(expected, rel=NOISE_TOLERANCE)


def test_clients_noise_is_independent_between_clients():
    """If two clients drew the same noise, the sum's deviation would double."""
    plan = configurations.c1(
        zone_sizes=(2,), sampling=FullParticipation(), noise_multiplier=1.0
    )
    measured = measured_noise(plan, weights([0, 0]))
    assert measured == pytest.approx(math.sqrt(2) / 2, rel=NOISE_TOLERANCE)


# Queries ---------------------------------------------------------------------


def test_events_report_the_plan():
    plan = configurations.c7(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=1.25,
        alpha=1 / 3,
        beta=1 / 3,
        clipping=Clipping(norm=3.0),
    )
    (output,) = aggregate(plan, updates(2), weights([0, 1]))
    events = output.measurements["events"]
    assert events["client"].noise_multiplier == pytest.approx(1.25)
    assert events["server"].noise_multiplier == pytest.approx(1.25)
    zones = [e.noise_multiplier for e in events["zones"]]
    assert zones == pytest.approx([0.0, 1.25, 0.0])


def test_adaptive_clipping_moves_the_clip_norm():
    """All updates of norm 1, start at 10: the norm falls by exp(-0.2 * share)."""
    value = zeros(1)[0]
    value["bias"][0] = 1.0
    plan = configurations.c4(
        zone_sizes=(50,),
        sampling=FullParticipation(),
        noise_multiplier=0.5,
        clipping=Clipping(norm=10.0, kind="adaptive"),
    )
    outputs = aggregate(plan, [value] * 50, weights([0] * 50), rounds=20)
    norms = [float(o.measurements["clip_norm"]) for o in outputs]
    assert norms[0] == 10.0
    # The quantile estimate gains 0.5 a round against a target of 0.5.
    assert norms[-1] == pytest.approx(10 * math.exp(-0.2 * 0.5 * 19), rel=0.2)


def test_a_users_tree_query_at_the_server():
    """DP-FTRL's tree noise telescopes: two rounds' sum carries one node's noise."""
    plan = NoisePlan(zone_sizes=(2, 2), sampling=FullParticipation(), estimator="fixed")
    record = tff.types.type_to_tf_tensor_specs(VALUE_TYPE)
    tree = tfp.TreeResidualSumQuery.build_l2_gaussian_query(
        1.0, 0.8, record, use_efficient=False
    )
    outputs = aggregate(
        plan,
        zeros(2),
        weights([0, 1]),
        queries=LevelQueries(server=tree),
        rounds=2,
    )
    total = sum(flat(o.result) for o in outputs)
    assert total.std() == pytest.approx(0.8 / 4, rel=0.1)


def test_queries_must_cover_the_zones():
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    queries = LevelQueries(zones=[tfp.NoPrivacySumQuery()])
    factory = HierarchicalMeanFactory(plan, queries=queries)
    with pytest.raises(ValueError, match="1 entries for 3 zones"):
        factory.create(VALUE_TYPE, WEIGHT_TYPE)
