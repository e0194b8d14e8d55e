"""Secure sums in TFF against the plain zoned mean, and their noise."""

import collections
import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tests.thinning import thinned
from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory, LevelQueries
from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, Level, NoisePlan, PoissonSampling, configurations
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.protocols.secagg import FixedPoint

SIZE = 420
SIZES = (5, 3, 4)
SAMPLING = PoissonSampling((0.5,) * 3)
MODES = {
    "zone": {"secure_aggregation": True},
    "server": {"secure_server": True},
    "both": {"secure_aggregation": True, "secure_server": True},
}
pytestmark = pytest.mark.usefixtures("in_process_default")


@pytest.fixture(scope="module")
def shapes():
    return collections.OrderedDict(kernel=[20, 20], bias=[20])


def encoded(plan, mode, bits=30, largest=None):
    plan = dataclasses.replace(plan, **MODES[mode])
    return with_encoding(plan, size=SIZE, bits=bits, largest=largest)


# The same sums ---------------------------------------------------------------


@pytest.mark.parametrize(("mode", "bits"), thinned(list(MODES), [16, 30], every=2))
def test_equals_the_plain_mean_within_the_encoding(
    updates, profiles, aggregate, flat, mode, bits
):
    values, zones = updates(7, seed=1, scale=0.1), [0, 1, 1, 2, 2, 2, 0]
    clients = profiles(zones, np.linspace(0.2, 1.0, 7).astype(np.float32).tolist())
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    ((plain,), (found,)) = (
        aggregate(plan, values, clients),
        aggregate(
            secured := encoded(plan, mode, bits, largest=0.5),
            values,
            clients,
        ),
    )
    total_weight = sum(c["weight"] for c in clients)
    error = secured.encoding.max_error(7) / total_weight
    # A weight is rounded up to a (2^(b-1) - 1) / k-th.
    one = (2 ** (bits - 1) - 1) // secured.encoding.max_clients
    error += 7 / one / total_weight * np.abs(flat(plain.result)).max()
    np.testing.assert_allclose(
        flat(found.result), flat(plain.result), rtol=1e-6, atol=error
    )
    assert found.measurements["saturated"] == 0
    for name in ("clients", "rejected", "update_norm", "tensor_norms"):
        np.testing.assert_allclose(
            found.measurements[name], plain.measurements[name], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("mode", "kind", "estimator", "mixing"),
    [
        *thinned(list(MODES), ["flat", "per_layer"], ["fixed"], ["weighted"], every=2),
        ("zone", "flat", "fixed", (0.2, 0.3, 0.5)),
        ("zone", "flat", "bounded", "weighted"),
    ],
)
def test_clipped_sums_equal_the_plain_ones(
    updates, profiles, aggregate, flat, mode, kind, estimator, mixing
):
    values = updates(5, seed=2, scale=0.1)
    clients = profiles([0, 0, 1, 2, 2], [1.0, 0.5, 1.0, 0.25, 1.0])
    plan = configurations.c2(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=1e-6,
        clipping=Clipping(clip_norm=0.7, kind=kind),
        estimator=estimator,
        mixing=mixing,
    )
    (plain,) = aggregate(plan, values, clients)
    (found,) = aggregate(encoded(plan, mode), values, clients)
    np.testing.assert_allclose(flat(found.result), flat(plain.result), atol=1e-5)


def test_the_native_runtime_sums_them_too(
    updates, profiles, aggregate, flat, native_context
):
    values, clients = updates(4, seed=3, scale=0.1), profiles([0, 0, 1, 2])
    plan = configurations.c1(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=1e-4,
        clipping=Clipping(clip_norm=5.0),
    )
    (found,) = aggregate(encoded(plan, "both"), values, clients)
    expected = sum(map(flat, values)) / 6
    np.testing.assert_allclose(flat(found.result), expected, atol=2e-3)


def test_upper_levels_stand_above_secure_zones(updates, profiles, aggregate, flat):
    """Where they alone add noise, clients are clipped all the same."""
    plan = NoisePlan(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        upper_levels=(Level(parents=(0, 0, 1), noise_multipliers=(1e-6, 1e-6)),),
    )
    values, clients = updates(4, seed=3, scale=0.1), profiles([0, 0, 1, 2])
    (plain,) = aggregate(plan, values, clients)
    (found,) = aggregate(encoded(plan, "zone"), values, clients)
    expected = sum(flat(v) / np.linalg.norm(flat(v)) for v in values) / 6
    np.testing.assert_allclose(flat(plain.result), expected, atol=1e-5)
    np.testing.assert_allclose(flat(found.result), expected, atol=1e-5)


@pytest.mark.parametrize("estimator", ["fixed", "bounded"])
def test_a_rounded_record_keeps_to_its_norm(updates, profiles, value_type, estimator):
    """Coarse steps: rounding would add up to a fifth of the norm."""
    plan = configurations.c2(
        zone_sizes=(40,),
        sampling=PoissonSampling((0.5,)),
        noise_multiplier=1.0,
        estimator=estimator,
    )
    plan = encoded(plan, "zone", bits=13)
    rounding = plan.encoding.rounded_norm(0.0, SIZE)
    assert 0.05 < rounding < 0.3
    record = tff.types.type_to_tf_tensor_specs(value_type)
    mean = SecureZonedMean(plan, record)
    state = mean.client_state(mean.initial_state())
    for seed, w in enumerate([1.0, 0.7, 0.3, 0.05]):
        profile = tf.nest.map_structure(tf.constant, profiles([0], [w])[0])
        (update,) = updates(1, seed=seed, scale=10.0)
        vector = mean.contribution(state, update, profile)["vector"].numpy()
        norm = np.linalg.norm(vector[:-1] * plan.encoding.step)
        assert norm <= w
        assert norm >= w - 2 * rounding
        if estimator == "fixed":
            assert vector[-1] == 0
        else:
            assert w <= vector[-1] / mean.weight_one < w + 1.5 / mean.weight_one


@pytest.mark.parametrize("mode", MODES)
def test_sums_of_the_largest_records_do_not_wrap(
    updates, profiles, aggregate, flat, mode
):
    extreme = [tf.nest.map_structure(np.ones_like, u) for u in updates(12)]
    zones = [0] * 5 + [1] * 3 + [2] * 4
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (found,) = aggregate(
        encoded(plan, mode, bits=12, largest=1.0), extreme, profiles(zones)
    )
    np.testing.assert_allclose(flat(found.result), 1.0, rtol=0.02)


def test_saturated_clients_are_counted(updates, profiles, aggregate, flat):
    values = updates(3, scale=0.01)
    # As large as a coordinate may be, and barely larger.
    values[0]["bias"][0] = values[2]["bias"][1] = 0.5
    values[1]["bias"][0] = 0.501
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (found,) = aggregate(
        encoded(plan, "zone", largest=0.5), values, profiles([0, 1, 2])
    )
    assert found.measurements["saturated"] == 1
    expected = sum(np.clip(flat(v), -0.5, 0.5) for v in values) / 3
    np.testing.assert_allclose(flat(found.result), expected, atol=1e-6)


@pytest.mark.parametrize("poison", [np.nan, 1e25])
def test_non_finite_update_is_left_out_and_counted(
    updates, profiles, aggregate, flat, poison
):
    values = updates(3, seed=7, scale=0.1)
    values[1]["bias"][3] = poison
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (found,) = aggregate(encoded(plan, "both"), values, profiles([0, 1, 2]))
    expected = (flat(values[0]) + flat(values[2])) / 2
    np.testing.assert_allclose(flat(found.result), expected, atol=1e-6)
    assert found.measurements["rejected"] == 1


@pytest.mark.parametrize("mode", MODES)
def test_empty_cohort(aggregate, flat, mode):
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    (found,) = aggregate(encoded(plan, mode, bits=12, largest=1.0), [], [])
    assert not flat(found.result).any()
    assert found.measurements["left_out"] == 0


# Zones left out --------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_zone_below_the_least_is_left_out_and_counted(
    updates, profiles, aggregate, flat, mode
):
    values, zones = updates(6, seed=4, scale=0.1), [0, 0, 0, 1, 2, 2]
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    plan = encoded(dataclasses.replace(plan, min_zone_clients=2), mode)
    (found,) = aggregate(plan, values, profiles(zones))
    kept = [v for v, z in zip(values, zones, strict=True) if z != 1]
    np.testing.assert_allclose(flat(found.result), sum(map(flat, kept)) / 5, atol=1e-6)
    assert found.measurements["left_out"] == 1
    assert found.measurements["clients"].tolist() == [3, 1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_a_zone_left_out_still_has_its_noise(zeros, profiles, aggregate, flat, mode):
    """Bare, its output would show that nobody more had come."""
    plan = NoisePlan(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        zone_noise_multipliers=(0.0, 2.0, 0.0),
        min_zone_clients=2,
    )
    outputs = aggregate(encoded(plan, mode), zeros(3), profiles([0, 0, 1]), rounds=3)
    noise = np.stack([flat(o.result) for o in outputs])
    assert noise.std() == pytest.approx(2.0 / 6.0, rel=0.1)
    assert outputs[0].measurements["left_out"] == 1


# Noise -----------------------------------------------------------------------

# 420 coordinates over ten rounds: a standard error of 1.1 %; 5.5 % is five.
NOISE_TOLERANCE = 0.055


SHARES = {"c1": {}, "c2": {}, "c4": {}, "c7": {"alpha": 1 / 3, "beta": 1 / 3}}


CONFIGURED = thinned(list(SHARES), list(MODES), every=3)
Z = 1.7


def configured(config):
    return configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=Z,
        clipping=Clipping(clip_norm=0.6),
        **SHARES[config],
    )


@pytest.mark.parametrize(("config", "mode"), CONFIGURED)
def test_noise_of_configurations(zeros, profiles, aggregate, flat, config, mode):
    plan = configured(config)
    zones = [0, 0, 0, 2, 2]
    carries = [plan.noising_clients[zone] > 0 for zone in zones]
    clients = profiles(zones, carries=carries)
    outputs = aggregate(encoded(plan, mode), zeros(5), clients, rounds=10)
    parties = sum(carries) * (plan.client_noise_multiplier > 0)
    parties += np.count_nonzero(plan.zone_noise_multipliers) + (
        plan.server_noise_multiplier > 0
    )
    expected = math.sqrt(parties) * Z * max(plan.released_sensitivities)
    noise = np.stack([flat(o.result) for o in outputs])
    assert noise.std() == pytest.approx(expected, rel=NOISE_TOLERANCE)
    assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(noise.size)
    correlation = np.corrcoef(noise)[np.triu_indices(10, 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(SIZE)


def test_client_noise_lies_on_the_grid(updates, profiles, aggregate, flat):
    plan = configurations.c1(
        zone_sizes=(6,), sampling=PoissonSampling((0.5,)), noise_multiplier=1.0
    )
    plan = encoded(plan, "zone", bits=16)
    (found,) = aggregate(plan, updates(4), profiles([0] * 4))
    steps = flat(found.result).astype(np.float64) * 3 / plan.encoding.step
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-2)
    assert len(set(np.rint(steps))) > 100


# Types and refusals ----------------------------------------------------------


@pytest.mark.parametrize(("config", "mode"), CONFIGURED)
def test_type_signature(process_of, config, mode):
    plan = configured(config)
    plain, process = process_of(plan), process_of(encoded(plan, mode))
    assert process.is_weighted
    assert process.next.type_signature.parameter == plain.next.type_signature.parameter
    expected, found = (p.next.type_signature.result for p in (plain, process))
    assert found.state == expected.state
    assert found.result == expected.result
    names = tff.structure.name_list(found.measurements.member)
    plain_names = tff.structure.name_list(expected.measurements.member)
    *others, strangers, overweight = plain_names
    assert names == [*others, "saturated", "left_out", strangers, overweight]
    text = str(process.next.to_building_block())
    assert ("secure_modular_sum" in text) == (mode != "server")


def test_means_refuse_plans_that_others_serve(value_type):
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    record = tff.types.type_to_tf_tensor_specs(value_type)
    with pytest.raises(ArgumentError, match=r"plan.encoding is None; .* a FixedPoint"):
        SecureZonedMean(plan, record)
    with pytest.raises(ArgumentError, match=r"plan.encoding is FixedPoint.* None in"):
        ZonedMean(encoded(plan, "zone"), record)


def test_queries_are_refused_beside_an_encoding(value_type):
    plan = encoded(configurations.none(zone_sizes=SIZES, sampling=SAMPLING), "zone")
    queries = LevelQueries(server=tfp.NoPrivacySumQuery())
    with pytest.raises(ArgumentError, match=r"queries is .*: None where"):
        HierarchicalMeanFactory(plan, queries=queries).create(value_type, WEIGHT_TYPE)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (FixedPoint(1.0, 1e-8, 32, 12), "bits is 32; allowed: at most 30"),
        (FixedPoint(1.0, 0.1, 12, 12), "step is 0.1; .* rounding 420 coordinates"),
    ],
)
def test_refuses_encodings_that_do_not_suit(value_type, encoding, message):
    plan = configurations.c2(zone_sizes=SIZES, sampling=SAMPLING, noise_multiplier=1.0)
    plan = dataclasses.replace(plan, secure_aggregation=True, encoding=encoding)
    with pytest.raises(ArgumentError, match=message):
        HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)


def test_refuses_an_encoding_that_leaves_nothing_of_weights(value_type):
    """One by hand, for more clients than the plan has."""
    plan = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
    for clients, one in ((512, 63), (50_000, 0)):
        many = FixedPoint.for_sum(clip=1.0, bits=16, max_clients=clients)
        plan = dataclasses.replace(plan, secure_aggregation=True, encoding=many)
        with pytest.raises(ArgumentError, match=f"bits is 16; .* {one} steps"):
            HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)


def test_refuses_an_encoding_without_room_for_the_noise(value_type):
    plan = configurations.c1(zone_sizes=SIZES, sampling=SAMPLING, noise_multiplier=1.0)
    bare = FixedPoint.for_sum(clip=1.0, bits=30, max_clients=5)
    plan = dataclasses.replace(plan, secure_aggregation=True, encoding=bare)
    with pytest.raises(ArgumentError, match=r"at least .* with 420 coordinates"):
        HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)


def test_refuses_an_encoding_barely_finer_than_the_finest(value_type):
    plan = configurations.c1(zone_sizes=SIZES, sampling=SAMPLING, noise_multiplier=1.0)
    plan = encoded(plan, "zone")
    HierarchicalMeanFactory(plan).create(value_type, WEIGHT_TYPE)
    finer = dataclasses.replace(plan.encoding, step=0.999 * plan.encoding.step)
    with pytest.raises(ArgumentError, match=r"at least .* with 420 coordinates"):
        HierarchicalMeanFactory(dataclasses.replace(plan, encoding=finer)).create(
            value_type, WEIGHT_TYPE
        )


def test_integer_updates_are_refused():
    plan = encoded(configurations.none(zone_sizes=SIZES, sampling=SAMPLING), "zone")
    with pytest.raises(TypeError, match="int32"):
        HierarchicalMeanFactory(plan).create(tff.to_type((np.int32, [3])), WEIGHT_TYPE)
