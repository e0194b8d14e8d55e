"""A state holds its plan's clips and noise: no other plan's process goes on with it."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import (
    WEIGHT_TYPE,
    HierarchicalMeanFactory,
    UnweightedHierarchicalMeanFactory,
    client,
    round_events,
    zoned_model,
)
from tff_hdp.clients.client_work import model_fn_from_keras
from tff_hdp.privacy import Clipping, FullParticipation, Ledger, configurations
from tff_hdp.privacy.secure import with_encoding

pytestmark = pytest.mark.usefixtures("in_process_default")
SIZE = 2000
VALUE = tff.to_type([(np.float32, [SIZE])])
ZERO = [[np.zeros([SIZE], np.float32)]] * 4
PROFILES = [
    collections.OrderedDict(weight=1.0, zone=i // 2, carries_noise=True)
    for i in range(4)
]


def plan_of(z, clip_norm=1.0, config="c2", **options):
    build = getattr(configurations, config)
    clipping = Clipping(clip_norm=clip_norm, **options)
    full = FullParticipation()
    return build(
        zone_sizes=(2, 2), sampling=full, noise_multiplier=z, clipping=clipping
    )


def process_of(plan):
    return HierarchicalMeanFactory(plan).create(VALUE, WEIGHT_TYPE)


def after_a_round(process):
    return process.next(process.initialize(), ZERO, PROFILES).state


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (plan_of(1.0), plan_of(0.01)),
        (plan_of(0.01), plan_of(1.0)),
        (plan_of(0.01, config="c1"), plan_of(1.0, config="c1")),
        (plan_of(1.0), plan_of(1.0, clip_norm=10.0)),
        (plan_of(1.0, config="c4"), plan_of(2.0, config="c4")),
        (
            plan_of(0.1, config="c4", kind="adaptive"),
            plan_of(0.2, config="c4", kind="adaptive"),
        ),
    ],
)
def test_a_state_of_another_plan_is_refused(first, second):
    """By a process of the same types, before anything is clipped."""
    process, state = process_of(second), after_a_round(process_of(first))
    with pytest.raises(tf.errors.InvalidArgumentError, match="process of another plan"):
        process.next(state, ZERO, PROFILES)


def test_a_state_in_fixed_point_too():
    plans = (dataclasses.replace(plan_of(z), secure_server=True) for z in (1.0, 2.0))
    encoded = (with_encoding(p, size=SIZE, bits=30, largest=1.0) for p in plans)
    first, second = map(process_of, encoded)
    with pytest.raises(tf.errors.InvalidArgumentError, match="process of another plan"):
        second.next(after_a_round(first), ZERO, PROFILES)


def test_native_refuses_it_as_well(native_context):
    del native_context
    process, state = process_of(plan_of(1.0)), after_a_round(process_of(plan_of(0.01)))
    with pytest.raises(Exception, match="process of another plan"):
        process.next(state, ZERO, PROFILES)


def test_a_model_goes_on_under_another_plan_by_its_weights():
    """As the pages say; the noise is then the second plan's."""

    def build_model():
        layer = tf.keras.layers.Dense(300, kernel_initializer="zeros")
        return tf.keras.Sequential([tf.keras.layers.InputLayer([6]), layer])

    spec = tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None], tf.int32)
    examples = tf.data.Dataset.from_tensor_slices(
        (np.zeros([4, 6], np.float32), np.zeros([4], np.int32))
    ).batch(4)
    data = [client(examples, zone=i // 2) for i in range(4)]
    plans = plan_of(1.0), plan_of(0.01)
    earlier, process = (
        tff.learning.algorithms.build_unweighted_fed_avg(
            zoned_model(model_fn_from_keras(build_model, spec)),
            # Nothing is learnt: what the model moves by is noise.
            tff.learning.optimizers.build_sgdm(0.0),
            model_aggregator=UnweightedHierarchicalMeanFactory(plan),
        )
        for plan in plans
    )
    ledger = Ledger()
    output = earlier.next(earlier.initialize(), data)
    ledger.record(plans[0], events=round_events(output.metrics["aggregator"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="process of another plan"):
        process.next(output.state, data)

    weights = earlier.get_model_weights(output.state)
    state = process.set_model_weights(process.initialize(), weights)
    output = process.next(state, data)
    ledger.record(plans[1], events=round_events(output.metrics["aggregator"]))
    after = process.get_model_weights(output.state).trainable[0]
    # Of two zones' means of two clients each, sqrt(2) z S / 4; 1,800 numbers.
    moved = np.std(after - weights.trainable[0])
    assert moved == pytest.approx(0.01 * np.sqrt(2) / 4, rel=0.1)
