"""Local SGD of a whole chunk of clients at once, clipped, noised and summed."""

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators.zoned import ZonedMean
from tff_hdp.learning.stacked import StackedModel

# Beyond about this many clients the stacked weights leave the cache and a chunk
# gets slower per client.
MAX_CHUNK = 20
_CHUNK_BYTES = 512 * 2**20
_COPIES = 6  # weights, gradients, update, record, noise and one temporary


def chunk_size(num_parameters: int) -> int:
    """How many clients to train at once, so that they fit cache and memory."""
    by_memory = _CHUNK_BYTES // (4 * _COPIES * num_parameters)
    return max(1, min(MAX_CHUNK, by_memory))


def make_chunk(
    examples: Sequence[tuple[np.ndarray, np.ndarray]],
    orders: Sequence[np.ndarray],
    *,
    weights: Sequence[float],
    carries_noise: Sequence[bool],
    zone: int,
) -> collections.OrderedDict[str, np.ndarray]:
    """Pads C clients of one zone to one shape.

    Args:
      examples: Per client its features [n_k, ...] and labels [n_k].
      orders: Per client its `make_order`, all of one batch size.
      weights: Per client w in (0, 1].
      carries_noise: Per client whether it noises its own update.
      zone: Their zone.

    Returns:
      `features` [C, N, ...], `labels` [C, N], `order` [C, steps, batch size],
      `weight` [C], `carries_noise` [C], `zone` [].
    """
    size = max(len(labels) for _, labels in examples)
    steps = max(len(order) for order in orders)
    first = examples[0][0]
    features = np.zeros([len(examples), size, *first.shape[1:]], first.dtype)
    labels = np.zeros([len(examples), size], np.int32)
    order = np.full([len(examples), steps, orders[0].shape[1]], -1, np.int32)
    for i, (x, y) in enumerate(examples):
        features[i, : len(x)], labels[i, : len(y)] = x, y
        order[i, : len(orders[i])] = orders[i]
    return collections.OrderedDict(
        features=features,
        labels=labels,
        order=order,
        weight=np.asarray(weights, np.float32),
        carries_noise=np.asarray(carries_noise, bool),
        zone=np.int32(zone),
    )


def train_stack(
    model: StackedModel,
    initial: Sequence[tf.Tensor],
    chunk: Any,
    *,
    learning_rate: float,
    momentum: float = 0.0,
) -> tuple[list[tf.Tensor], Any]:
    """SGD of every client of a chunk on its own batches.

    The same arithmetic as training each alone: a client's loss is the mean
    cross-entropy over its own batch, and a client whose batches are used up
    stands still.

    Args:
      model: The model, stacked.
      initial: The global weights, each without the client axis.
      chunk: A `make_chunk` as tensors.
      learning_rate: Of SGD.
      momentum: Of SGD.

    Returns:
      The updates, initial minus trained, each [C, ...]; and sums over all the
      steps: `loss` (nats), `correct` and `examples`, each float32 [].
    """
    order = chunk["order"]
    clients = tf.shape(order)[0]
    weights = [tf.tile(w[tf.newaxis], [clients] + [1] * w.shape.rank) for w in initial]
    dtype = weights[0].dtype
    velocity = [tf.zeros_like(w) for w in weights] if momentum else []
    sums = [tf.constant(0.0)] * 3

    def step(t: tf.Tensor, weights: Any, velocity: Any, sums: Any) -> Any:
        rows = order[:, t]
        mask = tf.cast(rows >= 0, dtype)
        rows = tf.maximum(rows, 0)
        features = tf.gather(chunk["features"], rows, batch_dims=1)
        labels = tf.gather(chunk["labels"], rows, batch_dims=1)
        count = tf.reduce_sum(mask, 1)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = model(weights, features)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            # Each client's gradient sees its own term of the sum only.
            own = tf.math.divide_no_nan(tf.reduce_sum(losses * mask, 1), count)
            total = tf.reduce_sum(own)
        gradients = tape.gradient(total, weights)
        if momentum:
            moving = [
                tf.reshape(count > 0, [-1] + [1] * (g.shape.rank - 1))
                for g in gradients
            ]
            velocity = [
                tf.where(m, momentum * v + g, v)
                for m, v, g in zip(moving, velocity, gradients, strict=True)
            ]
            gradients = [
                tf.where(m, v, tf.zeros_like(v))
                for m, v in zip(moving, velocity, strict=True)
            ]
        weights = [
            w - learning_rate * g for w, g in zip(weights, gradients, strict=True)
        ]
        hits = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        added = (
            tf.reduce_sum(losses * mask),
            tf.reduce_sum(tf.cast(hits, dtype) * mask),
            tf.reduce_sum(mask),
        )
        sums = [a + tf.cast(b, tf.float32) for a, b in zip(sums, added, strict=True)]
        return t + 1, weights, velocity, sums

    steps = tf.shape(order)[1]
    _, weights, _, sums = tf.while_loop(
        lambda t, *_: t < steps, step, (0, weights, velocity, sums)
    )
    updates = [a[tf.newaxis] - b for a, b in zip(initial, weights, strict=True)]
    return updates, collections.OrderedDict(
        zip(("loss", "correct", "examples"), sums, strict=True)
    )


def sum_contributions(mean: ZonedMean, sent: Any, updates: Any, chunk: Any) -> Any:
    """Every client's contribution to its zone, by `mean`, added up.

    Args:
      mean: What a client does to its update.
      sent: `mean.client_state`.
      updates: Structure of tensors [C, ...].
      chunk: Whose they are.

    Returns:
      One contribution, of all C clients together.
    """
    profiles = collections.OrderedDict(
        weight=chunk["weight"],
        zone=tf.repeat(chunk["zone"], tf.shape(chunk["weight"])[0]),
        carries_noise=chunk["carries_noise"],
    )

    def contribution(client: tf.Tensor | int) -> Any:
        update, profile = tf.nest.map_structure(
            lambda t: t[client], (updates, profiles)
        )
        return mean.contribution(sent, update, profile)

    def add(client: tf.Tensor, total: Any) -> Any:
        return client + 1, tf.nest.map_structure(tf.add, total, contribution(client))

    _, total = tf.while_loop(
        lambda client, _: client < tf.shape(chunk["weight"])[0],
        add,
        (tf.constant(1), contribution(0)),
    )
    return total
