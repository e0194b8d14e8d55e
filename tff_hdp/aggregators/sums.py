"""Sums of what clients send, by zone: real numbers, secure ones, or an inner sum.

All functions here are for use inside a `tff.federated_computation`. What a client
sends is a pair of a mean's contribution, by zones, and these zones (int32 [Z]).
"""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.aggregators.totals import add_rows, federated_total
from tff_hdp.aggregators.zoned_mean import PER_ZONE, ZonedMean
from tff_hdp.errors import require


def zone_sums(mean: ZonedMean, sent: Any) -> Any:
    """What `mean.release` takes as total, at SERVER, of what clients send.

    A `SecureZonedMean`'s vectors are summed by TFF's secure modular sum where its
    plan says so; it knows no groups, so a client sends s vectors, of which only its
    own zones' are not zero.

    Args:
      mean: Whose contributions they are.
      sent: Pairs of contribution and zones, at CLIENTS.
    """
    return _secure_total(mean, sent) if mean.in_fixed_point else _total(mean, sent)


def inner_zone_sums(
    mean: ZonedMean, inner: tff.templates.AggregationProcess, state: Any, sent: Any
) -> tuple[Any, tff.templates.MeasuredProcessOutput]:
    """As `zone_sums`, with the records summed by another process.

    Args:
      mean: Whose contributions they are.
      inner: Made for records with a leading axis of zones.
      state: Of `inner`, at SERVER.
      sent: Pairs of contribution and zones, at CLIENTS.

    Returns:
      The total, and what `inner` returned.

    Raises:
      ArgumentError: If `inner` returns something of another type than it sums.
    """
    signature = inner.next.type_signature
    given, found = signature.parameter[1].member, signature.result.result.member
    allowed = f"one whose sums are of their records' type, {given}"
    require(given.is_equivalent_to(found), "inner", f"one to {found}", allowed)

    @tff.tensorflow.computation(sent.type_signature.member)
    def in_its_zones(sent: Any) -> Any:
        contribution, zones = sent
        return tf.nest.map_structure(
            lambda t: _at(zones, t, mean.plan.num_zones), contribution["record"]
        )

    @tff.tensorflow.computation(sent.type_signature.member)
    def besides(sent: Any) -> Any:
        contribution, zones = collections.OrderedDict(sent[0]), sent[1]
        contribution["record"] = ()
        return contribution, zones

    summed = inner.next(state, tff.federated_map(in_its_zones, sent))
    rest = _total(mean, tff.federated_map(besides, sent))

    @tff.tensorflow.computation(
        rest.type_signature.member, summed.result.type_signature.member
    )
    def joined(rest: Any, record: Any) -> Any:
        return collections.OrderedDict(rest, record=record)

    return tff.federated_map(joined, (rest, summed.result)), summed


def operator_sums(mean: SecureZonedMean, sent: Any) -> Any:
    """Un-noised sums for the operator, at SERVER: all but contributions' vectors."""

    @tff.tensorflow.computation(sent.type_signature.member)
    def own(sent: Any) -> Any:
        contribution, zones = collections.OrderedDict(sent[0]), sent[1]
        contribution.pop("vector", None)
        for name in PER_ZONE:
            if name in contribution:
                contribution[name] = _at(zones, contribution[name], mean.plan.num_zones)
        return contribution

    return tff.federated_sum(tff.federated_map(own, sent))


def _total(mean: ZonedMean, sent: Any) -> Any:
    sent_type = sent.type_signature.member

    @tff.tensorflow.computation
    def zero() -> Any:
        return mean.zero(tff.types.type_to_tf_tensor_specs(sent_type[0]))

    @tff.tensorflow.computation(zero.type_signature.result, sent_type)
    def add(total: Any, sent: Any) -> Any:
        return mean.add(total, *sent)

    return federated_total(zero, add, sent)


def _secure_total(mean: SecureZonedMean, sent: Any) -> Any:
    operator = operator_sums(mean, sent)
    sums = _secure_vectors if mean.plan.secure_aggregation else _plain_vectors
    vectors = sums(mean, sent)

    total = tff.tensorflow.computation(
        mean.total, vectors.type_signature.member, operator.type_signature.member
    )
    return tff.federated_map(total, (vectors, operator))


def _secure_vectors(mean: SecureZonedMean, sent: Any) -> Any:
    """[s, vector_size] by a secure sum of vectors in their zones' rows."""

    @tff.tensorflow.computation(sent.type_signature.member)
    def in_its_zones(sent: Any) -> tf.Tensor:
        vector = tf.math.floormod(sent[0]["vector"], mean.modulus)
        return _at(sent[1], vector, mean.plan.num_zones)

    return tff.backends.mapreduce.federated_secure_modular_sum(
        tff.federated_map(in_its_zones, sent), np.int64(mean.modulus)
    )


def _plain_vectors(mean: SecureZonedMean, sent: Any) -> Any:
    """[s, vector_size] where super-nodes see their clients' vectors."""
    shape = [mean.plan.num_zones, mean.vector_size]

    @tff.tensorflow.computation
    def zero() -> tf.Tensor:
        return tf.zeros(shape, tf.int64)

    @tff.tensorflow.computation(zero.type_signature.result, sent.type_signature.member)
    def add(total: Any, sent: Any) -> tf.Tensor:
        contribution, zones = sent
        return add_rows(total, zones, contribution["vector"])

    return federated_total(zero, add, sent)


def _at(zones: tf.Tensor, value: tf.Tensor, count: int) -> tf.Tensor:
    """The rows of `value` [Z, ...] at their zones' places, zeros at the others'."""
    return tf.scatter_nd(zones[:, tf.newaxis], value, [count, *value.shape[1:]])
