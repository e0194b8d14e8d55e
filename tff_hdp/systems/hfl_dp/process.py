"""HFL-DP: averaging at edges and a cloud, noise on every link (HFL-DP, Algorithm 1)."""

import collections
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.clipping import clip, screen
from tff_hdp.aggregators.levels import (
    SMOOTHING,
    adds_up_in_float32,
    smoothed,
    step_to_hide,
)
from tff_hdp.aggregators.mixing import passed_on
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.batches import chunk_type as whole_chunk_type
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_clients
from tff_hdp.errors import ArgumentError, check_count, require
from tff_hdp.noise import add_gaussian, grid_step
from tff_hdp.systems.hfl_dp.plan import HflDpRound
from tff_hdp.systems.zone_models import build_zoned_process

CHUNK_FIELDS = ("features", "labels", "order", "zone")


def chunk_type(feature_shape: tuple[int, ...], dtype: Any) -> tff.SequenceType:
    """The type of a TFF client's data: `CHUNK_FIELDS` of one `make_chunk`, zone [1].

    Args:
      feature_shape: Of one example.
      dtype: Of the features as stored.
    """
    fields = whole_chunk_type(feature_shape, dtype).element._asdict()
    fields["zone"] = tff.TensorType(np.int32, [1])
    return tff.SequenceType(
        collections.OrderedDict((name, fields[name]) for name in CHUNK_FIELDS)
    )


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
    edge's own, clipped and noised as any. Edges average (line 20), all clients alike,
    as the paper's (4.9) has it for the noise. On k2 - 1 of k2 rounds an edge then
    noises the average by n_E and goes on from it. On the others edges noise by sigma_E,
    the cloud averages and noises by n_C (lines 23-36). A client's iterations are as
    many as its order has steps, over `local_steps`.

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
      ArgumentError: If the rounds are not one of each kind over the same edges, or
        an argument is out of range.
    """
    rounds = {"edge_round": edge_round, "cloud_round": cloud_round}
    for name, each in rounds.items():
        require(isinstance(each, HflDpRound), name, each, "an HflDpRound")
    k2 = check_count("k2", k2, 1)
    local_steps = check_count("local_steps", local_steps, 1)
    if edge_round.cloud or not cloud_round.cloud:
        raise ArgumentError(
            "edge_round and cloud_round",
            f"cloud: {edge_round.cloud}, {cloud_round.cloud}",
            "one of each kind, cloud: False, True",
        )
    for name in ("n", "N", "C"):
        ours, other = getattr(edge_round, name), getattr(cloud_round, name)
        if ours != other:
            raise ArgumentError(
                f"edge_round.{name}", ours, f"{other}, as in cloud_round"
            )
    rule = SgdRule(
        learning_rate=learning_rate, proximal=proximal, centre_every=local_steps
    )
    model = StackedModel.built_by(build_model)
    edges = edge_round.N
    C = math.inf if edge_round.C is None else edge_round.C
    noisy = edge_round.is_noisy or cloud_round.is_noisy
    hidden_alone, edge_step = _grid_of_mean(edge_round)
    hidden, uploaded = _grid_of_mean(cloud_round)
    hidden_below = step_to_hide([edge_step], edge_round.n_down)

    def of_round(number: tf.Tensor, on_edge: Any, on_cloud: Any) -> tf.Tensor:
        return tf.where(tf.equal((number + 1) % k2, 0), on_cloud, on_edge)

    def gaussian(values: tf.Tensor, stddev: tf.Tensor) -> tf.Tensor:
        return add_gaussian(values, stddev) if noisy else values

    def client(models: tf.Tensor, chunk: Any, number: tf.Tensor) -> Any:
        """Lines 6-10."""
        start = split(models[0], model.shapes)
        # Of all clients together, where what is trained with is a client's each.
        examples = {name: part for name, part in chunk.items() if name != "zone"}
        updates, measured = train_clients(model, start, examples, rule)
        trained = models - join(updates, leading=1)
        trained, rejected = screen(trained, stacked=True, instead=models)
        trained, norms = clip(trained, C, stacked=True)
        sigma_u = of_round(number, edge_round.sigma_u, cloud_round.sigma_u)
        sent = gaussian(trained, sigma_u)[tf.newaxis]
        return sent, {
            **measured,
            "clipped": tf.math.count_nonzero(norms > C, dtype=tf.float32),
            "rejected": tf.math.count_nonzero(rejected, dtype=tf.float32),
        }

    def edge(
        models: tf.Tensor, sums: tf.Tensor, clients: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        """Lines 20-23; an edge without clients keeps its model."""
        means = tf.where(clients > 0, tf.math.divide_no_nan(sums, clients), models)
        if hidden or hidden_alone:
            hiding = SMOOTHING * hidden_alone, SMOOTHING * hidden
            means = gaussian(means, of_round(number, *hiding))
        return gaussian(means, of_round(number, 0.0, cloud_round.sigma_e))

    def down(means: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Lines 24-36."""
        own = gaussian(smoothed(means, hidden_below), edge_round.n_down)
        total, _ = passed_on(
            tf.unstack(means, edges), [uploaded] * edges, edges * cloud_round.n_down
        )
        # The cloud sends one model, so its noise is the same for all edges.
        sent = gaussian(total[tf.newaxis] / edges, cloud_round.n_down)
        common = tf.broadcast_to(sent, tf.shape(means))
        return of_round(number, own, common)

    return build_zoned_process(
        build_model=build_model,
        num_zones=edges,
        data_type=data_type,
        client=client,
        edge=edge,
        down=down,
    )


def _grid_of_mean(plan: HflDpRound) -> tuple[float, float]:
    """What an edge must hide of its clients' grid, and the step of what it puts out."""
    clients = grid_step(plan.sigma_u) / plan.n
    exact = not clients or adds_up_in_float32(plan.n, plan.C, plan.sigma_u)
    hidden = step_to_hide([clients] if exact else [clients, 0.0], plan.sigma_e)
    return hidden, grid_step(plan.sigma_e or SMOOTHING * hidden) or clients
