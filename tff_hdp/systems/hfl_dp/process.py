"""HFL-DP: averaging at edges and a cloud, noise on every link (HFL-DP, Algorithm 1)."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.systems.hfl_dp.account import HflDpRound
from tff_hdp.systems.zone_models import (
    FlatModel,
    build_zoned_process,
    clip_rows,
    screen_rows,
)
from tff_hdp.topology.mixing import equal_mean, identity

CHUNK_FIELDS = ("features", "labels", "order", "zone")


def chunk_type(feature_shape: tuple[int, ...], dtype: Any) -> tff.SequenceType:
    """The type of a TFF client's data: `CHUNK_FIELDS` of one `make_chunk`, zone [1].

    Args:
      feature_shape: Of one example.
      dtype: Of the features as stored.
    """
    types = (
        tff.TensorType(dtype, [None, None, *feature_shape]),
        tff.TensorType(np.int32, [None, None]),
        tff.TensorType(np.int32, [None, None, None]),
        tff.TensorType(np.int32, [1]),
    )
    fields = zip(CHUNK_FIELDS, types, strict=True)
    return tff.SequenceType(collections.OrderedDict(fields))


def build_hfl_dp(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    edge_round: HflDpRound,
    cloud_round: HflDpRound,
    k2: int,
    local_steps: int,
    learning_rate: float,
    proximal: float = 0.0,
) -> tff.learning.templates.LearningProcess:
    """Builds the learning process; a round is one edge aggregation.

    Every client trains from its edge's model for k1 iterations, clips its model to
    the norm C and noises it (lines 6-10); one whose norm is not finite counts as the
    edge's own, clipped and noised as any. Edges average (line 20). On k2 - 1 of k2
    rounds an edge then noises the average by n_E and goes on from it. On the others
    edges noise by sigma_E, the cloud averages and noises by n_C (lines 23-36). A
    client's iterations are as many as its order has steps, over `local_steps`.

    One iteration approximates argmin F_i(w) + mu/2 ||w - w^(t-1)||^2 by
    `local_steps` steps of SGD on batches, w^(t-1) being where it began.

    Args:
      build_model: Returns a new Keras classifier that `StackedModel` takes.
      data_type: `chunk_type` of the data.
      edge_round: Noise and clip norm where the edges go on alone.
      cloud_round: Noise and clip norm where the cloud aggregates.
      k2: Edge aggregations for one of the cloud.
      local_steps: SGD steps of one iteration.
      learning_rate: Of SGD.
      proximal: mu.

    Raises:
      ValueError: If the rounds are not one of each kind over the same edges.
    """
    if edge_round.cloud or not cloud_round.cloud:
        raise ValueError("edge_round and cloud_round are not one of each kind")
    if (edge_round.n, edge_round.N, edge_round.C) != (
        cloud_round.n,
        cloud_round.N,
        cloud_round.C,
    ):
        raise ValueError("edge_round and cloud_round differ in n, N or C")
    flat = FlatModel(build_model)
    edges, bound = edge_round.N, edge_round.C
    alone, together = identity(edges), equal_mean(edges)

    def to_cloud(number: tf.Tensor) -> tf.Tensor:
        return tf.equal((number + 1) % k2, 0)

    def work(model: tf.Tensor, chunk: Any, number: tf.Tensor) -> Any:
        models, measured = proximal_sgd(
            flat,
            model[0],
            chunk,
            local_steps=local_steps,
            learning_rate=learning_rate,
            proximal=proximal,
        )
        models, rejected = screen_rows(models, model)
        clipped = tf.constant(0.0)
        if bound is not None:
            models, clipped = clip_rows(models, bound)
        if edge_round.is_noisy or cloud_round.is_noisy:
            sigma = tf.where(to_cloud(number), cloud_round.sigma_u, edge_round.sigma_u)
            models += sigma * tf.random.normal(tf.shape(models))
        clients = tf.cast(tf.shape(chunk["order"])[:1], tf.float32)
        total = tf.reduce_sum(models, 0, keepdims=True)
        return total, clients, {**measured, "clipped": clipped, "rejected": rejected}

    def combine(
        models: tf.Tensor, sums: tf.Tensor, clients: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        clients = clients[:, tf.newaxis]
        means = tf.where(clients > 0, tf.math.divide_no_nan(sums, clients), models)
        cloud = to_cloud(number)
        if cloud_round.is_noisy:
            sigma_e = tf.where(cloud, cloud_round.sigma_e, 0.0)
            means += sigma_e * tf.random.normal(tf.shape(means))
        mixing = tf.cast(tf.where(cloud, together, alone), means.dtype)
        mixed = tf.matmul(mixing, means)
        if edge_round.is_noisy or cloud_round.is_noisy:
            own = edge_round.n_down * tf.random.normal(tf.shape(mixed))
            # The cloud sends one model, so its noise is the same for all edges.
            common = cloud_round.n_down * tf.random.normal(tf.shape(mixed[:1]))
            mixed += tf.where(cloud, common, own)
        return mixed

    return build_zoned_process(
        build_model=build_model,
        num_zones=edges,
        data_type=data_type,
        sum_dtype=tf.float32,
        work=work,
        combine=combine,
    )


def proximal_sgd(
    flat: FlatModel,
    model: tf.Tensor,
    chunk: Any,
    *,
    local_steps: int,
    learning_rate: float,
    proximal: float,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Trains C clients from one model, each on its own batches.

    Args:
      flat: The model's form.
      model: [d], where all start.
      chunk: `CHUNK_FIELDS`; order is [C, steps, B], -1 for no example.
      local_steps: SGD steps between two moves of the proximal term's centre.
      learning_rate: Of SGD.
      proximal: mu.

    Returns:
      The trained models [C, d]; and sums over all steps as `FlatModel.gradients`.
    """
    order = chunk["order"]
    start = tf.tile(model[tf.newaxis], [tf.shape(order)[0], 1])
    zero = {name: tf.constant(0.0) for name in ("loss", "correct", "examples")}

    def step(t: tf.Tensor, models: tf.Tensor, centre: tf.Tensor, sums: Any) -> Any:
        rows = order[:, t]
        mask = tf.cast(rows >= 0, tf.float32)
        rows = tf.maximum(rows, 0)
        features = tf.gather(chunk["features"], rows, batch_dims=1)
        labels = tf.gather(chunk["labels"], rows, batch_dims=1)
        centre = tf.where(tf.equal(t % local_steps, 0), models, centre)
        gradients, found = flat.gradients(models, features, labels, mask)
        gradients += proximal * (models - centre)
        sums = {name: sums[name] + found[name] for name in sums}
        return t + 1, models - learning_rate * gradients, centre, sums

    steps = tf.shape(order)[1]
    _, models, _, sums = tf.while_loop(
        lambda t, *_: t < steps, step, (tf.constant(0), start, start, zero)
    )
    return models, sums
