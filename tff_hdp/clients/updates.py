"""The updates of a stack of clients, and their contributions to a zone's sum."""

import abc
import collections
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.levels import LevelQueries
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.privacy.plan import NoisePlan


class Update(abc.ABC):
    """One weight's updates u_1 ... u_C by C clients."""

    @abc.abstractmethod
    def norms(self) -> tf.Tensor:
        """The l2 norm of each, [C], or a little more; not finite if one is not."""

    @abc.abstractmethod
    def weighted_sum(self, factors: tf.Tensor) -> tf.Tensor:
        """sum_c factors_c u_c. Where a factor [C] is 0, u_c may be anything."""

    @abc.abstractmethod
    def dense(self) -> tf.Tensor:
        """The updates themselves, [C, ...]."""


class DenseUpdate(Update):
    """Updates held as a tensor [C, ...]."""

    def __init__(self, value: tf.Tensor) -> None:
        self._value = value

    def norms(self) -> tf.Tensor:
        """See `Update`."""
        return tf.sqrt(square_norms(self._value))

    def weighted_sum(self, factors: tf.Tensor) -> tf.Tensor:
        """See `Update`."""
        value = without(self._value, tf.equal(factors, 0.0))
        return tf.tensordot(factors, value, 1)

    def dense(self) -> tf.Tensor:
        """See `Update`."""
        return self._value


def square_norms(value: tf.Tensor) -> tf.Tensor:
    """Squared l2 norm of every entry of the first axis, [C]."""
    return tf.reduce_sum(tf.square(value), list(range(1, value.shape.rank)))


def without(value: tf.Tensor, dropped: tf.Tensor) -> tf.Tensor:
    """`value` [C, ...] with zeros for the clients dropped, bool [C]."""
    selector = tf.reshape(dropped, [-1] + [1] * (value.shape.rank - 1))
    return tf.cond(
        tf.reduce_any(dropped),
        lambda: tf.where(selector, tf.zeros_like(value), value),
        lambda: value,
    )


def norms_decide(plan: NoisePlan, queries: LevelQueries | None) -> bool:
    """Whether a contribution is the update times factors its norms decide.

    It is where clients add no noise and clip to a norm, flat or per layer, and
    send real numbers; a query that is not the plan's may do anything.
    """
    noising = plan.client_noise_multiplier > 0 and any(plan.noising_clients)
    bent = plan.clipping.kind == "adaptive" or plan.encoding is not None
    return queries is None and not noising and not bent


def sum_by_norms(
    mean: ZonedMean, sent: Any, updates: Sequence[Update], like: Any, chunk: Any
) -> Any:
    """Every client's contribution to its zone, where `norms_decide`, added up.

    `mean` screens, clips and weights a stand-in of each update, in which the
    norm takes each tensor's place; what it made of the norm, it would have
    made of the tensor.

    Args:
      mean: What a client does to its update.
      sent: `mean.client_state`.
      updates: Per weight.
      like: The structure of an update.
      chunk: Whose they are.

    Returns:
      One contribution, of all C clients together.
    """
    norms = [update.norms() for update in updates]
    stand_ins = tf.nest.pack_sequence_as(like, norms)
    clients = (stand_ins, profiles(chunk))
    one = mean.contribution(sent, *tf.nest.map_structure(lambda t: t[0], clients))
    contributions = tf.map_fn(
        lambda client: mean.contribution(sent, *client),
        clients,
        fn_output_signature=tf.nest.map_structure(tf.TensorSpec.from_tensor, one),
    )
    total = tf.nest.map_structure(lambda t: tf.reduce_sum(t, 0), contributions)
    scaled = tf.nest.flatten(contributions["record"])
    sums = [
        update.weighted_sum(tf.where(made > 0.0, made / norm, 0.0))
        for update, made, norm in zip(updates, scaled, norms, strict=True)
    ]
    total["record"] = tf.nest.pack_sequence_as(like, sums)
    return total


def sum_one_by_one(
    mean: ZonedMean, sent: Any, updates: Sequence[Update], like: Any, chunk: Any
) -> Any:
    """As `sum_by_norms`, whatever `mean` does to an update."""
    given = tf.nest.pack_sequence_as(like, [update.dense() for update in updates])
    clients = (given, profiles(chunk))

    def contribution(client: tf.Tensor | int) -> Any:
        own = tf.nest.map_structure(lambda t: t[client], clients)
        return mean.contribution(sent, *own)

    return sum_over_clients(contribution, chunk)


def sum_over_clients(
    value_of: Callable[[tf.Tensor | int], Any],
    chunk: Any,
    *,
    parallel_iterations: int = 10,
) -> Any:
    """Adds up `value_of(c)` over the clients c of a chunk, tensor by tensor."""

    def add(client: tf.Tensor, total: Any) -> Any:
        return client + 1, tf.nest.map_structure(tf.add, total, value_of(client))

    _, total = tf.while_loop(
        lambda client, _: client < tf.shape(chunk["weight"])[0],
        add,
        (tf.constant(1), value_of(0)),
        parallel_iterations=parallel_iterations,
    )
    return total


def profiles(chunk: Any) -> Any:
    """The `WEIGHT_TYPE` of every client of a chunk, each tensor [C]."""
    return collections.OrderedDict(
        weight=chunk["weight"],
        zone=tf.repeat(chunk["zone"], tf.shape(chunk["weight"])[0]),
        carries_noise=chunk["carries_noise"],
    )
