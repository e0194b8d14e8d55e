"""What a stack of clients contributes to its zone's sum."""

import collections
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.clients.updates import norms, sum_over_clients, weighted_sum
from tff_hdp.privacy.plan import NoisePlan

# AutoGraph would take longer to rewrite the functions that a contribution calls than
# TensorFlow takes for their operations; none of them has a loop over tensors.
_AS_WRITTEN = tf.autograph.experimental.do_not_convert


def norms_decide(plan: NoisePlan, queries: LevelQueries | None) -> bool:
    """Whether a contribution is the update times factors its norms decide.

    It is where clients clip to a norm, flat or per layer, and send real numbers, and
    noise, if they add any, is the plan's own; another query may do anything.
    """
    bent = plan.clipping.kind == "adaptive" or plan.encoding is not None
    return queries is None and not bent


def sum_by_norms(
    mean: ZonedMean, sent: Any, updates: Sequence[tf.Tensor], like: Any, chunk: Any
) -> Any:
    """Every client's contribution to its zone, where `norms_decide`, added up.

    `mean` screens, clips and weights a stand-in of each update, in which the
    norm takes each tensor's place; what it made of the norm, it would have
    made of the tensor. Noise is added to the sum.

    Args:
      mean: What a client does to its update.
      sent: `mean.client_state`.
      updates: Per weight.
      like: The structure of an update.
      chunk: Whose they are.

    Returns:
      One contribution, of all C clients together.
    """
    lengths = list(map(norms, updates))
    stand_ins = tf.nest.pack_sequence_as(like, lengths)
    clients = (stand_ins, profiles(chunk))
    one = mean.bare_contribution(sent, *tf.nest.map_structure(lambda t: t[0], clients))
    contributions = tf.map_fn(
        _AS_WRITTEN(lambda client: mean.bare_contribution(sent, *client)),
        clients,
        fn_output_signature=tf.nest.map_structure(tf.TensorSpec.from_tensor, one),
    )
    total = tf.nest.map_structure(lambda t: tf.reduce_sum(t, 0), contributions)
    scaled = tf.nest.flatten(contributions["record"])
    sums = [
        weighted_sum(update, tf.where(made > 0.0, made / length, 0.0))
        for update, made, length in zip(updates, scaled, lengths, strict=True)
    ]
    total["record"] = tf.nest.pack_sequence_as(like, sums)
    return mean.with_clients_noise(total)


def sum_one_by_one(
    mean: ZonedMean, sent: Any, updates: Sequence[tf.Tensor], like: Any, chunk: Any
) -> Any:
    """As `sum_by_norms`, whatever `mean` does to an update."""
    given = tf.nest.pack_sequence_as(like, list(updates))
    clients = (given, profiles(chunk))

    def contribution(client: tf.Tensor | int) -> Any:
        own = tf.nest.map_structure(lambda t: t[client], clients)
        return mean.contribution(sent, *own)

    return sum_over_clients(contribution, chunk)


def each_client(
    mean: ZonedMean, sent: Any, updates: Sequence[tf.Tensor], like: Any, chunk: Any
) -> Any:
    """Every client's contribution, each tensor with a leading axis [C]."""
    given = tf.nest.pack_sequence_as(like, list(updates))
    clients = (given, profiles(chunk))
    one = mean.contribution(sent, *tf.nest.map_structure(lambda t: t[0], clients))
    return tf.map_fn(
        _AS_WRITTEN(lambda client: mean.contribution(sent, *client)),
        clients,
        fn_output_signature=tf.nest.map_structure(tf.TensorSpec.from_tensor, one),
    )


def sent_apart(contributions: Any, carries_noise: tf.Tensor) -> tuple[Any, Any]:
    """What clients of a `SecureZonedMean` send where a protocol adds up their vectors.

    Args:
      contributions: Of C clients, each tensor with a leading axis.
      carries_noise: bool [C].

    Returns:
      The sum of the contributions without their vectors, and the shares: `vector`
      (int32 [C, vector_size], without noise and within 2^29 of zero) and
      `carries_noise`.
    """
    summed = collections.OrderedDict(
        (name, tf.reduce_sum(value, 0))
        for name, value in contributions.items()
        if name != "vector"
    )
    shares = collections.OrderedDict(
        vector=tf.cast(contributions["vector"], tf.int32), carries_noise=carries_noise
    )
    return summed, shares


def profiles(chunk: Any) -> Any:
    """The `WEIGHT_TYPE` of every client of a chunk, each tensor [C]."""
    return collections.OrderedDict(
        weight=chunk["weight"],
        zone=tf.repeat(chunk["zone"], tf.shape(chunk["weight"])[0]),
        carries_noise=chunk["carries_noise"],
    )
