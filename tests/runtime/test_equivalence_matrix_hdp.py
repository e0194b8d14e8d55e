"""Rounds of HDP agree on every runtime, client by client and in stacks."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.learning.client_work import (
    client_batches,
    client_profile,
    make_order,
    model_fn_from_keras,
)
from tff_hdp.learning.hdp import build_hdp
from tff_hdp.learning.optimizers import build_optimizer
from tff_hdp.learning.stacked_hdp import build_stacked_hdp, chunk_type
from tff_hdp.learning.stacked_work import make_chunk
from tff_hdp.privacy import Clipping, PoissonSampling, configurations

FEATURES, CLASSES, BATCH = 30, 3, 4
PLAN = configurations.none(
    zone_sizes=(4, 4), sampling=PoissonSampling((0.5, 0.5)), clipping=Clipping(norm=0.3)
)
SIZES = {0: (9, 4, 6), 1: (12, 1)}


def build_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([FEATURES]),
            tf.keras.layers.Dense(5, "relu", kernel_initializer="ones"),
            tf.keras.layers.Dense(CLASSES, kernel_initializer="zeros"),
        ]
    )


def client(size, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=[size, FEATURES]).astype(np.float32) / FEATURES
    return features, rng.integers(0, CLASSES, size=size).astype(np.int32)


def order(size):
    rng = np.random.default_rng(size)
    return make_order(size, epochs=2, batch_size=BATCH, rng=rng)


def single_clients():
    return [
        collections.OrderedDict(
            examples=client_batches(*client(n, n), order(n)),
            profile=client_profile(weight=1.0, zone=zone, carries_noise=False),
        )
        for zone, sizes in SIZES.items()
        for n in sizes
    ]


def chunks():
    return [
        tf.data.Dataset.from_tensors(
            make_chunk(
                [client(n, n) for n in sizes],
                [order(n) for n in sizes],
                weights=[1.0] * len(sizes),
                carries_noise=[False] * len(sizes),
                zone=zone,
            )
        )
        for zone, sizes in SIZES.items()
    ]


def hdp():
    spec = (
        tf.TensorSpec([None, FEATURES], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )
    return build_hdp(
        model_fn=model_fn_from_keras(build_model, spec),
        plan=PLAN,
        client_optimizer=build_optimizer("sgd", 0.5),
        server_optimizer=build_optimizer("sgdm", 1.0),
    )


def stacked(momentum):
    return build_stacked_hdp(
        build_model=build_model,
        data_type=chunk_type((FEATURES,), np.float32),
        plan=PLAN,
        client_learning_rate=0.5,
        client_momentum=momentum,
        server_optimizer=build_optimizer("sgdm", 1.0),
    )


def train(process, cohort):
    state = process.initialize()
    outputs = []
    for _ in range(2):
        outputs.append(process.next(state, cohort))
        state = outputs[-1].state
    return outputs


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_same_stacked_rounds(momentum, agree):
    process = stacked(momentum)
    cohort = chunks()
    agree(lambda: train(process, cohort), rtol=2e-4, atol=1e-5)


def test_same_rounds(agree):
    process = hdp()
    agree(lambda: train(process, single_clients()), rtol=2e-4, atol=1e-5)


def test_chunks_equal_single_clients_on_workers(cluster_context, run_on, same):
    def weights(process, cohort):
        state = run_on(cluster_context, train, process, cohort)[-1].state
        return list(state.global_model_weights.trainable)

    alone, together = weights(hdp(), single_clients()), weights(stacked(0.0), chunks())
    same(together, alone, rtol=2e-4, atol=1e-5)
    moved = tff.learning.models.ModelWeights.from_model(build_model()).trainable
    assert any(
        np.abs(after - before).max() > 0.01
        for after, before in zip(alone, moved, strict=True)
    )
