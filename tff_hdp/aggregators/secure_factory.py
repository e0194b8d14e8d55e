"""Secure sums of the zones in TFF, and the zoned mean that is built on them."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.factory import HierarchicalMeanFactory
from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.aggregators.sums import federated_total
from tff_hdp.privacy.plan import NoisePlan


class SecureHierarchicalMeanFactory(HierarchicalMeanFactory):
    """`HierarchicalMeanFactory` with secure sums, for a plan with an encoding.

    With `plan.secure_aggregation` zones are summed by TFF's secure modular sum;
    it knows no groups, so a client sends s vectors of which only its own zone's is
    not zero. With `plan.secure_server` zones' outputs are integers too, summed
    modulo 2^b; TFF has no placement for super-nodes, so that sum is computed at
    the server here.

    The result is that of `HierarchicalMeanFactory` within `FixedPoint.max_error`
    of every sum. The measurements have besides `left_out`, how many zones had
    fewer than `plan.min_zone_clients`, and `saturated`, how many clients had
    coordinates beyond the encoding's.

    Args:
      plan: Who adds which noise, in which fixed point.

    Raises:
      TypeError: From `create`, if the value is not a structure of floats.
      ValueError: From `create`, if the encoding does not suit the value.
    """

    def __init__(self, plan: NoisePlan) -> None:
        super().__init__(plan)

    def _mean(self, record: Any) -> SecureZonedMean:
        return SecureZonedMean(self._plan, record)

    def _sent(self, contribution: Any, zone: tf.Tensor) -> Any:
        return zoned(contribution, zone)

    def _total(self, mean: SecureZonedMean, sent: Any) -> Any:
        return zone_totals(mean, sent)


def zoned(contribution: Any, zone: tf.Tensor, clients: tf.Tensor | int = 1) -> Any:
    """What a TFF client hands to `zone_totals`.

    Args:
      contribution: Of `SecureZonedMean`, or several of one zone added up; for a
        protocol with the vectors of all, [C, vector_size].
      zone: int32 [].
      clients: How many contributed.
    """
    operator = collections.OrderedDict(contribution)
    vector = operator.pop("vector")
    operator["clients"] = tf.cast(clients, tf.int32)
    return collections.OrderedDict(vector=vector, zone=zone, operator=operator)


def zone_totals(mean: SecureZonedMean, contributions: Any) -> Any:
    """Sums clients' contributions; for use inside a `tff.federated_computation`.

    Args:
      mean: Whose contributions they are.
      contributions: Values that `zoned` returned, at CLIENTS.

    Returns:
      What `mean.release` takes as total, at SERVER.
    """
    plan = mean.plan
    operator = operator_sums(plan, contributions)
    if plan.secure_aggregation:
        vectors = _secure_sums(mean, contributions)
    else:
        vectors = _plain_sums(mean, contributions)

    @tff.tensorflow.computation(
        vectors.type_signature.member, operator.type_signature.member
    )
    def total(vectors: Any, operator: Any) -> Any:
        vectors, left_out = mean.zone_outputs(vectors, operator["clients"])
        if plan.secure_server:
            vectors = tf.math.floormod(tf.reduce_sum(vectors, 0), mean.modulus)
        return collections.OrderedDict(vectors=vectors, left_out=left_out, **operator)

    return tff.federated_map(total, (vectors, operator))


def operator_sums(plan: NoisePlan, contributions: Any) -> Any:
    """Un-noised sums for the operator, at SERVER, with `clients` per zone.

    Args:
      plan: Whose zones they are.
      contributions: Structures with `zone` (int32 []) and `operator`, at CLIENTS.
    """

    @tff.tensorflow.computation(contributions.type_signature.member)
    def own(sent: Any) -> Any:
        operator = collections.OrderedDict(sent["operator"])
        here = tf.one_hot(sent["zone"], plan.num_zones, dtype=tf.int32)
        operator["clients"] = here * operator["clients"]
        return operator

    return tff.federated_sum(tff.federated_map(own, contributions))


def _secure_sums(mean: SecureZonedMean, contributions: Any) -> Any:
    """[s, vector_size] by a secure sum of one-hot zones."""

    @tff.tensorflow.computation(contributions.type_signature.member)
    def one_hot(sent: Any) -> tf.Tensor:
        vector = tf.math.floormod(sent["vector"], mean.modulus)
        return tf.scatter_nd(
            [[sent["zone"]]],
            vector[tf.newaxis],
            [mean.plan.num_zones, mean.vector_size],
        )

    return tff.backends.mapreduce.federated_secure_modular_sum(
        tff.federated_map(one_hot, contributions), np.int64(mean.modulus)
    )


def _plain_sums(mean: SecureZonedMean, contributions: Any) -> Any:
    """[s, vector_size] where super-nodes see their clients' vectors."""
    shape = [mean.plan.num_zones, mean.vector_size]

    @tff.tensorflow.computation
    def zero() -> tf.Tensor:
        return tf.zeros(shape, tf.int64)

    @tff.tensorflow.computation(
        zero.type_signature.result, contributions.type_signature.member
    )
    def add(total: Any, sent: Any) -> tf.Tensor:
        return tf.tensor_scatter_nd_add(total, [[sent["zone"]]], [sent["vector"]])

    return federated_total(zero, add, contributions)
