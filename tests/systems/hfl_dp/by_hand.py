"""HFL-DP on little data, and a client's training written out."""

import collections
import functools
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.clients.batches import make_chunk, make_order
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, rounds_of
from tff_hdp.systems.hfl_dp.process import CHUNK_FIELDS, build_hfl_dp, chunk_type

RATE, BATCH, PROXIMAL = 0.2, 4, 0.5
FEATURES, CLASSES = 6, 3
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def build_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([FEATURES]),
            tf.keras.layers.Dense(5, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


@functools.cache
def build(*, n, N, C=None, noise=None, k2=2, local_steps=3, proximal=0.0, rate=RATE):
    edge, cloud = rounds_of(noise or HflDpNoise(), n=n, N=N, C=C)
    return build_hfl_dp(
        build_model=build_model,
        data_type=chunk_type((FEATURES,), np.float32),
        edge_round=edge,
        cloud_round=cloud,
        k2=k2,
        local_steps=local_steps,
        learning_rate=rate,
        proximal=proximal,
    )


def flatten(weights):
    return np.concatenate([np.ravel(w) for w in weights])


def client(seed, size=12):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=[size, FEATURES]).astype(np.float32)
    return features, rng.integers(0, CLASSES, size).astype(np.int32)


def order(seed, number, epochs=1, size=12):
    rng = np.random.default_rng([seed, number])
    return make_order(size, epochs=epochs, batch_size=BATCH, rng=rng)


def data(n, N, number, epochs=1, together=None, poison=None):
    """A round's chunks, `together` clients in each; features of client 1 `poison`."""
    chunks = []
    for zone in range(N):
        seeds = range(zone * n, (zone + 1) * n)
        for some in np.array_split(seeds, math.ceil(n / (together or n))):
            chunk = make_chunk(
                [client(s) for s in some],
                [order(s, number, epochs) for s in some],
                weights=[1.0] * len(some),
                carries_noise=[True] * len(some),
                zone=zone,
            )
            if poison is not None and 1 in some:
                chunk["features"][list(some).index(1)] = poison
            chunk["zone"] = np.array([zone], np.int32)
            fields = collections.OrderedDict((k, chunk[k]) for k in CHUNK_FIELDS)
            chunks.append(tf.data.Dataset.from_tensors(fields))
    return chunks


@functools.cache  # A new seed has TensorFlow prepare every graph anew.
def start():
    tf.keras.utils.set_random_seed(0)
    weights = tff.learning.models.ModelWeights.from_model(build_model())
    tf.random.set_seed(None)
    return tf.nest.map_structure(lambda v: v.numpy(), weights)


def run(process, n, N, rounds, **options):
    state = process.set_model_weights(process.initialize(), start())
    for number in range(rounds):
        output = process.next(state, data(n, N, number, **options))
        state = output.state
    return np.asarray(state.global_model_weights), output.metrics


def train_alone(vector, seed, number, *, epochs=1, local_steps=3, proximal=0.0):
    """Keras and a gradient tape: one client's k1 iterations from a model."""
    model = build_model()
    sizes = [w.shape.num_elements() for w in model.trainable_weights]
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    for variable, part in zip(model.trainable_weights, parts, strict=True):
        variable.assign(np.reshape(part, variable.shape))
    features, labels = client(seed)
    for step, rows in enumerate(order(seed, number, epochs)):
        if step % local_steps == 0:
            centre = [v.numpy() for v in model.trainable_weights]
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels[rows], model(features[rows])
            )
            away = sum(
                tf.reduce_sum((v - c) ** 2)
                for v, c in zip(model.trainable_weights, centre, strict=True)
            )
            loss = tf.reduce_mean(losses) + proximal / 2 * away
        for variable, gradient in zip(
            model.trainable_weights,
            tape.gradient(loss, model.trainable_weights),
            strict=True,
        ):
            variable.assign_sub(RATE * gradient)
    return flatten([v.numpy() for v in model.trainable_weights])
