"""Builders of TFF's beside the two that the drop-in is for."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import (
    HierarchicalMeanFactory,
    client,
    round_events,
    zoned_model,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FullParticipation, configurations

pytestmark = pytest.mark.usefixtures("in_process_default")
SPEC = (tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None], tf.int32))
SGD = tff.learning.optimizers.build_sgdm


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def test_rates_that_follow_a_schedule_carry_a_zone():
    def model_fn():
        layers = [tf.keras.layers.InputLayer([6]), tf.keras.layers.Dense(3)]
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential(layers), loss=loss(), input_spec=SPEC
        )

    plan = configurations.none(zone_sizes=(2, 2), sampling=FullParticipation())
    process = tff.learning.algorithms.build_weighted_fed_avg_with_optimizer_schedule(
        zoned_model(model_fn),
        lambda round_number: 0.1 / tf.cast(round_number + 1, tf.float32),
        lambda rate: SGD(rate),
        model_aggregator=HierarchicalMeanFactory(plan, example_cap=8),
    )
    examples = (np.ones([8, 6], np.float32), np.zeros([8], np.int32))
    batches = tf.data.Dataset.from_tensor_slices(examples).batch(4)
    data = [client(batches, zone=i // 2) for i in range(4)]
    output = process.next(process.initialize(), data)
    assert round_events(output.metrics["aggregator"])["clients"] == [2, 2]
    assert output.metrics["aggregator"]["rejected"] == 0


def test_measurements_that_are_not_there_yet_are_refused():
    """As of a `tff.program` context, before they are awaited."""

    class Awaited(tff.program.MaterializableValueReference):
        type_signature = tff.to_type(np.int32)

        async def get_value(self):
            return 1

    with pytest.raises(ArgumentError, match=r"^measurements is not materialised; al"):
        round_events({"clients": Awaited()})


def test_federated_reconstruction_does_not():
    def model_fn():
        inputs = tf.keras.Input([6])
        shared, own = tf.keras.layers.Dense(4), tf.keras.layers.Dense(3)
        return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
            keras_model=tf.keras.Model(inputs, own(shared(inputs))),
            global_layers=[shared],
            local_layers=[own],
            input_spec=SPEC,
        )

    options = {
        "loss_fn": loss,
        "client_optimizer_fn": SGD(0.1),
        "reconstruction_optimizer_fn": SGD(0.1),
    }
    tff.learning.algorithms.build_fed_recon(model_fn, **options)
    with pytest.raises(ArgumentError, match=r"model_fn is a function to .*; allowed"):
        tff.learning.algorithms.build_fed_recon(zoned_model(model_fn), **options)
