"""Inner factories as the sum of a zone's records."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, PoissonSampling, configurations
from tff_hdp.privacy.secure import with_encoding

SIZES = (5, 3, 4)
SAMPLING = PoissonSampling((0.5,) * 3)
NONE = configurations.none(zone_sizes=SIZES, sampling=SAMPLING)
HDP = configurations.c2(
    zone_sizes=SIZES,
    sampling=SAMPLING,
    noise_multiplier=1e-7,
    clipping=Clipping(clip_norm=0.7),
)
pytestmark = pytest.mark.usefixtures("in_process_default")


def compression(bits=8):
    return tff.aggregators.EncodedSumFactory.quantize_above_threshold(
        quantization_bits=bits, threshold=1000
    )


def within(inner):
    """A factory as what TFF wraps it in."""
    return tff.aggregators.clipping_factory(1e6, inner)


def test_compression_composes_where_there_is_no_noise(
    updates, profiles, aggregate, flat, native_context
):
    del native_context
    values, clients = updates(5), profiles([0, 0, 1, 2, 2], [1.0, 0.5, 1.0, 0.25, 1.0])
    (plain,) = aggregate(NONE, values, clients)
    found = aggregate(NONE, values, clients, rounds=2, inner=compression())
    for output in found:
        error = np.abs(flat(output.result) - flat(plain.result))
        # Weighted normal updates spread over about eight, in 255 steps a client.
        assert 0 < error.max() < 5 * 8 / 255 / 3.75
        np.testing.assert_array_equal(
            output.result["bias"], plain.result["bias"]
        )  # below the threshold
        assert output.measurements["clients"].tolist() == [2, 1, 2]


def test_an_exact_inner_sum_composes_under_noise(updates, profiles, aggregate, flat):
    values, clients = updates(4, scale=3.0), profiles([0, 1, 1, 2])
    seen = tff.aggregators.add_measurements(
        tff.aggregators.SumFactory(),
        client_measurement_fn=lambda value: collections.OrderedDict(
            norms=tff.federated_sum(tff.federated_map(norm_of(value), value))
        ),
    )
    (plain,) = aggregate(HDP, values, clients)
    (found,) = aggregate(HDP, values, clients, inner=seen, inner_is_exact=True)
    np.testing.assert_allclose(flat(found.result), flat(plain.result), atol=1e-6)
    # What reaches the inner sum is clipped: four records of norm 0.7.
    assert found.measurements["inner"]["norms"] == pytest.approx(4 * 0.7, rel=1e-4)


def norm_of(value):
    @tff.tensorflow.computation(value.type_signature.member)
    def norm(record):
        return tf.linalg.global_norm(tf.nest.flatten(record))

    return norm


def test_type_signature(value_type):
    inner = compression()
    process = HierarchicalMeanFactory(NONE, inner=inner).create(value_type, WEIGHT_TYPE)
    plain = HierarchicalMeanFactory(NONE).create(value_type, WEIGHT_TYPE)
    found, expected = (p.next.type_signature.result for p in (process, plain))
    assert found.result == expected.result
    state = found.state.member
    assert tff.structure.name_list(state) == ["mean", "inner"]
    assert state.mean == expected.state.member
    names = tff.structure.name_list(found.measurements.member)
    plain_names = tff.structure.name_list(expected.measurements.member)
    assert names == [*plain_names, "inner"]


@pytest.mark.parametrize("config", ["c1", "c2", "c4"])
def test_a_lossy_inner_sum_is_refused_under_noise(config):
    """After the client's noise as well as before that of others."""
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES, sampling=SAMPLING, noise_multiplier=1.0
    )
    with pytest.raises(ArgumentError, match=r"inner_is_exact is False; .*EncodedSum"):
        HierarchicalMeanFactory(plan, inner=compression())


def test_an_inner_sum_is_refused_beside_an_encoding():
    plan = configurations.none(
        zone_sizes=SIZES, sampling=SAMPLING, secure_aggregation=True
    )
    plan = with_encoding(plan, size=2050, bits=30, largest=1.0)
    with pytest.raises(ArgumentError, match="inner is SumFactory; allowed: None"):
        HierarchicalMeanFactory(plan, inner=tff.aggregators.SumFactory())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inner": "sum"}, "inner is sum; allowed: None, or a tff.aggregators"),
        ({"inner": tff.aggregators.SumFactory}, "inner is .*; allowed: None, or a"),
        ({"inner": tff.aggregators.MeanFactory()}, "inner is .*; allowed: None, or a"),
        (
            {"inner": tff.aggregators.UnweightedMeanFactory()},
            "inner is UnweightedMeanFactory; allowed: one of sums",
        ),
        (
            {"inner": within(tff.aggregators.UnweightedMeanFactory())},
            "inner is UnweightedMeanFactory; allowed: one of sums",
        ),
        (
            {"inner": within(within(within(tff.aggregators.UnweightedMeanFactory())))},
            "inner is UnweightedMeanFactory; allowed: one of sums",
        ),
        (
            {"inner": tff.learning.dp_aggregator(0.1, 4.0), "inner_is_exact": True},
            "inner is DifferentiallyPrivateFactory; allowed: one of sums",
        ),
        (
            {"inner": tff.aggregators.SumFactory(), "inner_is_exact": "no"},
            "inner_is_exact is 'no'; allowed",
        ),
    ],
)
def test_what_sums_nothing_is_refused(given, words):
    with pytest.raises(ArgumentError, match=words):
        HierarchicalMeanFactory(HDP, **given)


class _InFloat64(tff.aggregators.UnweightedAggregationFactory):
    """Sums in another type than it was given."""

    def create(self, value_type):
        @tff.tensorflow.computation(value_type)
        def wider(value):
            return tf.cast(value, tf.float64)

        wide = tff.aggregators.SumFactory().create(wider.type_signature.result)

        @tff.federated_computation(
            wide.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
        )
        def next_fn(state, value):
            return wide.next(state, tff.federated_map(wider, value))

        return tff.templates.AggregationProcess(wide.initialize, next_fn)


def test_an_inner_sum_of_another_type_is_refused():
    factory = HierarchicalMeanFactory(NONE, inner=_InFloat64())
    with pytest.raises(ArgumentError, match=r"inner is one to float64.* float32\[3,2"):
        factory.create(tff.TensorType(np.float32, [2]), WEIGHT_TYPE)
