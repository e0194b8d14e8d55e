"""Totals of clients' values, at the server."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime import environment


def federated_total(zero: tff.Computation, add: tff.Computation, values: Any) -> Any:
    """Adds up clients' values; for use inside a `tff.federated_computation`.

    Args:
      zero: Without argument, to the total of nobody: a structure of tensors, such
        that two totals add up tensor by tensor.
      add: From a total and a client's value to their total.
      values: At CLIENTS.

    Returns:
      The total, at SERVER.
    """
    total_type = zero.type_signature.result

    @tff.tensorflow.computation(total_type, total_type)
    def merge(a: Any, b: Any) -> Any:
        return tf.nest.map_structure(tf.add, a, b)

    @tff.tensorflow.computation(total_type)
    def report(total: Any) -> Any:
        return total

    return tff.federated_aggregate(values, zero(), add, merge, report)


def add_rows(total: tf.Tensor, places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """`total` [s, ...] with rows [Z, ...] added at their places, int32 [Z]."""
    if environment.gpus():
        # A scatter there has one thread for a row, which may be a whole model.
        return total + tf.math.unsorted_segment_sum(rows, places, total.shape[0])
    return tf.tensor_scatter_nd_add(total, places[:, tf.newaxis], rows)
