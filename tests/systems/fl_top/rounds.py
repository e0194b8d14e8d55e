"""A cohort of FL-TOP's, and weights as one vector."""

import numpy as np
import tensorflow as tf

from tff_hdp.clients.batches import make_chunk, make_order

RATE = 0.1
CLIENTS, COHORT = 20, 6


def flatten(weights):
    return np.concatenate([np.ravel(w) for w in weights])


def cohort_data(task, clients=range(COHORT), chunk_size=4):
    """Chunks of a cohort, and each client's batches."""
    rng = np.random.default_rng(0)
    orders = {
        c: make_order(int(task.train.sizes[c]), epochs=2, batch_size=16, rng=rng)
        for c in clients
    }
    clients = list(clients)
    chunks = []
    for start in range(0, len(clients), chunk_size):
        members = clients[start : start + chunk_size]
        chunk = make_chunk(
            [task.train.examples(c) for c in members],
            [orders[c] for c in members],
            weights=[1.0] * len(members),
            carries_noise=[True] * len(members),
            zone=0,
        )
        chunks.append(tf.data.Dataset.from_tensors(chunk))
    return chunks, orders


def start(process, initial):
    state = process.initialize()
    like = process.get_model_weights(state)
    weights = tf.nest.pack_sequence_as(like.trainable, initial)
    return process.set_model_weights(state, like.__class__(weights, like.non_trainable))


def flat_weights(process, state):
    weights = process.get_model_weights(state).trainable
    return flatten([np.asarray(w) for w in tf.nest.flatten(weights)])
