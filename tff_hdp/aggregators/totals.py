"""Totals of clients' values, at the server."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


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
