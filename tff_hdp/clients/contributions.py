"""What a stack of clients contributes to its zones' sums."""

import collections
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.zoned_mean import PER_ZONE, ZonedMean
from tff_hdp.clients.updates import (
    OuterProducts,
    norms,
    sum_over_clients,
    weighted_sums,
)
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


def zones_of(profiles: Any) -> tf.Tensor:
    """The zones that clients are of, each once, int32 [Z]."""
    return tf.unique(profiles["zone"]).y


def sum_by_norms(
    mean: ZonedMean,
    sent: Any,
    updates: Sequence[tf.Tensor | OuterProducts],
    like: Any,
    profiles: Any,
    zones: tf.Tensor,
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
      profiles: Whose they are, of `training.profiles`.
      zones: int32 [Z], every client's among them.

    Returns:
      One contribution, of all clients of each zone together.
    """
    alike = tf.debugging.assert_equal(
        tf.stack([tf.size(part) for part in profiles.values()]),
        tf.size(norms(updates[0])),
        "weight, zone or carries_noise of a chunk is not of its clients",
    )
    with tf.control_dependencies([alike]):
        lengths = list(map(norms, updates))
    stand_ins = tf.nest.pack_sequence_as(like, lengths)
    clipped = mean.clipped(sent, stand_ins, profiles["zone"], stacked=True)
    contributions = mean.weighted(clipped, profiles)
    members = _members(zones, profiles["zone"])
    scaled = tf.nest.flatten(contributions.pop("record"))
    factors = [
        tf.where(members & (made > 0.0), made / length, tf.zeros_like(made))
        for made, length in zip(scaled, lengths, strict=True)
    ]
    sums = weighted_sums(updates, factors)
    total = collections.OrderedDict(
        record=tf.nest.pack_sequence_as(like, sums), **_added_up(contributions, members)
    )
    return mean.with_clients_noise(total)


def sum_one_by_one(
    mean: ZonedMean,
    sent: Any,
    updates: Sequence[tf.Tensor],
    like: Any,
    profiles: Any,
    zones: tf.Tensor,
) -> Any:
    """As `sum_by_norms`, whatever `mean` does to an update."""
    given = tf.nest.pack_sequence_as(like, list(updates))
    clients = (given, profiles)
    members = _members(zones, profiles["zone"])

    def contribution(client: tf.Tensor | int) -> Any:
        own = tf.nest.map_structure(lambda t: t[client], clients)
        return collections.OrderedDict(
            (name, _in_zone(members[:, client], part) if name in PER_ZONE else part)
            for name, part in mean.contribution(sent, *own).items()
        )

    return sum_over_clients(contribution, tf.size(profiles["zone"]))


def each_client(
    mean: ZonedMean, sent: Any, updates: Sequence[tf.Tensor], like: Any, profiles: Any
) -> Any:
    """Every client's contribution, each tensor with a leading axis [C]."""
    given = tf.nest.pack_sequence_as(like, list(updates))
    clients = (given, profiles)
    one = mean.contribution(sent, *tf.nest.map_structure(lambda t: t[0], clients))
    return tf.map_fn(
        _AS_WRITTEN(lambda client: mean.contribution(sent, *client)),
        clients,
        fn_output_signature=tf.nest.map_structure(tf.TensorSpec.from_tensor, one),
    )


def sent_apart(contributions: Any, profiles: Any, zones: tf.Tensor) -> tuple[Any, Any]:
    """What clients of a `SecureZonedMean` send where a protocol adds up their vectors.

    Args:
      contributions: Of C clients, each tensor with a leading axis.
      profiles: Whose they are, of `training.profiles`.
      zones: int32 [Z], every client's among them.

    Returns:
      The sum of the contributions by zone without their vectors, and the shares:
      `vector` (int32 [C, vector_size], without noise and within 2^29 of zero),
      `carries_noise` (bool [C]), `zone` (int32 [C]) and `counted` (bool [C], whether a
      client is one of its zone).
    """
    besides = collections.OrderedDict(contributions)
    shares = collections.OrderedDict(
        vector=tf.cast(besides.pop("vector"), tf.int32),
        carries_noise=profiles["carries_noise"],
        zone=profiles["zone"],
        counted=besides["counted"] > 0,
    )
    return _added_up(besides, _members(zones, profiles["zone"])), shares


def _members(zones: tf.Tensor, zone: tf.Tensor) -> tf.Tensor:
    """Which of C clients are each zone's, bool [Z, C]."""
    return tf.equal(zones[:, tf.newaxis], zone)


def _added_up(contributions: Any, members: tf.Tensor) -> Any:
    """Numbers of C clients, [C], added up by zone where sums are a zone's.

    What is not of a zone may have further axes.
    """
    return collections.OrderedDict(
        (
            name,
            tf.reduce_sum(tf.where(members, part, tf.zeros_like(part)), 1)
            if name in PER_ZONE
            else tf.reduce_sum(part, 0),
        )
        for name, part in contributions.items()
    )


def _in_zone(member: tf.Tensor, value: Any) -> Any:
    """A client's tensors, with a first axis on which all but its zone's are zeros."""

    def placed(t: tf.Tensor) -> tf.Tensor:
        here = tf.reshape(member, [-1] + [1] * t.shape.rank)
        return tf.where(here, t, tf.zeros_like(t))

    return tf.nest.map_structure(placed, value)
