"""Rounds of HDP agree on every runtime, client by client and in stacks."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp.clients.batches import chunk_type, client_batches, make_chunk, make_order
from tff_hdp.clients.client_work import (
    build_optimizer,
    client_profile,
    model_fn_from_keras,
)
from tff_hdp.privacy import Clipping, PoissonSampling, configurations
from tff_hdp.systems.hdp import clients
from tff_hdp.systems.hdp.process import build_hdp

FEATURES, CLASSES, BATCH = 30, 3, 4
S, Z = 0.3, 1.5
# Nothing is drawn at random unless a cohort's clients are told to add noise.
PLAN = configurations.c1(
    zone_sizes=(4, 4),
    sampling=PoissonSampling((0.5, 0.5)),
    clipping=Clipping(clip_norm=S),
    noise_multiplier=Z,
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


def single_clients(carries_noise=False):
    return [
        collections.OrderedDict(
            examples=client_batches(*client(n, n), order(n)),
            profile=client_profile(weight=1.0, zone=zone, carries_noise=carries_noise),
        )
        for zone, sizes in SIZES.items()
        for n in sizes
    ]


def chunks(carries_noise=False):
    return [
        tf.data.Dataset.from_tensors(
            make_chunk(
                [client(n, n) for n in sizes],
                [order(n) for n in sizes],
                weights=[1.0] * len(sizes),
                carries_noise=[carries_noise] * len(sizes),
                zone=zone,
            )
        )
        for zone, sizes in SIZES.items()
    ]


# Built once: TFF compiles a process anew for every runtime, but traces it here.
@functools.cache
def hdp():
    spec = (
        tf.TensorSpec([None, FEATURES], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )
    return build_hdp(
        clients=clients.single_clients(
            model_fn=model_fn_from_keras(build_model, spec),
            client_optimizer=build_optimizer("sgdm", 0.5),
        ),
        plan=PLAN,
        server_optimizer=build_optimizer("sgdm", 1.0),
    )


@functools.cache
def stacked(momentum):
    return build_hdp(
        clients=clients.stacked_clients(
            build_model=build_model,
            data_type=chunk_type((FEATURES,), np.float32),
            client_learning_rate=0.5,
            client_momentum=momentum,
        ),
        plan=PLAN,
        server_optimizer=build_optimizer("sgdm", 1.0),
    )


def train(process, cohort):
    state = process.initialize()
    outputs = []
    for _ in range(2):
        outputs.append(process.next(state, cohort))
        state = outputs[-1].state
    return outputs


@pytest.mark.parametrize("momentum", [0.9, pytest.param(0.0, marks=pytest.mark.slow)])
def test_same_stacked_rounds(momentum, agree):
    process, cohort = stacked(momentum), chunks()
    agree(lambda: train(process, cohort), rtol=2e-4, atol=1e-5)


def test_same_rounds(agree):
    agree(lambda: train(hdp(), single_clients()), rtol=2e-4, atol=1e-5)


def test_chunks_equal_single_clients_on_workers(cluster_context, run_on, same):
    def weights(process, cohort):
        state = run_on(cluster_context, train, process, cohort)[-1].state
        return list(state.global_model_weights.trainable)

    alone, together = weights(hdp(), single_clients()), weights(stacked(0.9), chunks())
    same(together, alone, rtol=2e-4, atol=1e-5)
    moved = tff.learning.models.ModelWeights.from_model(build_model()).trainable
    assert any(
        np.abs(after - before).max() > 0.01
        for after, before in zip(alone, moved, strict=True)
    )


@pytest.mark.parametrize(
    ("runtime", "build"),
    thinned(["native_plain", "in_process", "cluster"], [hdp, stacked], every=2),
)
def test_clients_noise_is_the_plans_on_every_runtime(build, runtime, request, run_on):
    """It is all that rounds differ by from the same round without it."""
    context = request.getfixturevalue(f"{runtime}_context")
    process = build() if build is hdp else build(0.9)
    cohort = single_clients if build is hdp else chunks

    def after_a_round(carries_noise):
        state = run_on(context, process.initialize)
        state = run_on(context, process.next, state, cohort(carries_noise)).state
        return np.concatenate(
            [np.ravel(w) for w in state.global_model_weights.trainable]
        )

    silent = after_a_round(carries_noise=False)
    noise = [after_a_round(carries_noise=True) - silent for _ in range(4)]
    # S / (q n) for each of five clients. Of 692 draws the standard deviation is
    # off by 2.7 % (one standard error), and correlations by 0.08.
    expected = Z * S / (0.5 * 8) * np.sqrt(5)
    assert np.std(noise) == pytest.approx(expected, rel=0.13)
    assert np.abs(np.corrcoef(noise)[np.triu_indices(4, 1)]).max() < 0.4
