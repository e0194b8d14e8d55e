"""Clients' work as a computation that TFF's workers can be sent."""

import dataclasses
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2

from tff_hdp.runtime.cluster import contents
from tff_hdp.runtime.cluster.connection import Connection
from tff_hdp.runtime.in_process import stages, values
from tff_hdp.runtime.in_process.execute import Tensors
from tff_hdp.runtime.in_process.interpret import Interpreter
from tff_hdp.runtime.in_process.program import Node

# Operations that call back into the Python process that traced them.
_PYTHON_OPS = frozenset(("EagerPyFunc", "PyFunc", "PyFuncStateless"))


class Replicated:
    """A value that each worker is sent when it is first needed there."""

    def __init__(self, value: executor_pb2.Value) -> None:
        """Remembers `value`; sends it nowhere yet."""
        self._value = value
        self._lock = threading.Lock()
        # Lost connections are not kept.
        self._refs = weakref.WeakKeyDictionary[Connection, executor_pb2.ValueRef]()
        self._sending = weakref.WeakKeyDictionary[Connection, threading.Lock]()

    def at(self, connection: Connection) -> executor_pb2.ValueRef:
        """Returns the value's reference at a worker.

        Raises:
          ConnectionLostError: If the worker is lost before it has the value.
        """
        with self._lock:
            sending = self._sending.setdefault(connection, threading.Lock())
        with sending:
            if connection not in self._refs:
                self._refs[connection] = connection.create(self._value)
            return self._refs[connection]

    def discard(self) -> None:
        """Lets the workers free the value."""
        for connection, ref in list(self._refs.items()):
            connection.discard(ref)
        self._refs.clear()


@dataclasses.dataclass(frozen=True)
class Own:
    """What only one client has, ready to be sent.

    Attributes:
      tensors: Of all its inputs.
      graphs: Of its data sets, cut.
    """

    tensors: executor_pb2.Value
    graphs: list[list[contents.Piece]]


class RemoteFunction:
    """A stage's client function for workers: of shared inputs and a client's own.

    Attributes:
      computation: The function, to be sent to the workers.
      runs_anywhere: Whether no part of it has to run in this Python process.
    """

    def __init__(self, function: stages.Function) -> None:
        """Traces `function` again, as a `tff.tensorflow.computation`."""
        self._outputs = function.outputs
        self._shared = [node for node in function.inputs if not node.per_client]
        self._own = [node for node in function.inputs if node.per_client]

        # No worker knows this process's Python functions.
        interpreter = Interpreter(replace_marked=False)

        def compute(parts: Iterable[Any]) -> list[object]:
            shared, own, *graphs = parts
            known = {}
            tensors = map(_to_tensor, shared)
            for node in self._shared:
                known[node] = values.unflatten(tensors, node.type)
            own, graphs = iter(own), iter(graphs)
            for node in self._own:
                leaves = [
                    tf.raw_ops.DatasetFromGraph(graph_def=next(graphs))
                    if isinstance(leaf, tff.SequenceType)
                    else next(own)
                    for leaf in values.leaves(node.type)
                ]
                known[node] = values.unflatten(leaves, node.type)
            known = function.compute(known, interpreter)
            return [
                _from_tensor(tensor, leaf)
                for node in function.outputs
                for tensor, leaf in zip(
                    values.flatten(known[node], node.type),
                    values.leaves(node.type),
                    strict=True,
                )
            ]

        own = _leaves(self._own)
        self._tensors = tff.StructType(t for t in own if isinstance(t, tff.TensorType))
        graph = tff.TensorType(np.str_)
        graphs = [graph] * (len(own) - len(self._tensors))
        parameter = tff.StructType([_leaves(self._shared), self._tensors, *graphs])
        traced = tff.tensorflow.computation(compute, parameter)
        self._result = traced.type_signature.result
        computation = tff.framework.serialize_computation(traced)
        self.runs_anywhere = not _calls_python(computation)
        self.computation = Replicated(executor_pb2.Value(computation=computation))

    def pack_shared(self, known: Mapping[Node, Tensors]) -> executor_pb2.Value:
        """Returns what all clients have in common, ready to be sent."""
        types = _leaves(self._shared)
        tensors = [tensor for node in self._shared for tensor in known[node]]
        exported = [values.export(*pair) for pair in zip(tensors, types, strict=True)]
        return tff.framework.serialize_value(exported, types)[0]

    def pack_own(self, known: Mapping[Node, Tensors]) -> Own:
        """Returns what only one client has, ready to be sent."""
        tensors, graphs = [], []
        for node in self._own:
            for tensor, leaf in zip(known[node], values.leaves(node.type), strict=True):
                if isinstance(leaf, tff.SequenceType):
                    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=tensor)
                    graphs.append(contents.cut(graph.numpy()))
                else:
                    tensors.append(values.export(tensor, leaf))
        packed, _ = tff.framework.serialize_value(tensors, self._tensors)
        return Own(packed, graphs)

    def unpack(self, result: executor_pb2.Value) -> dict[Node, Tensors]:
        """Returns the tensors of each output of the function.

        Raises:
          TypeError: If a worker returned another value than was asked for.
        """
        returned, asked = len(result.struct.element), len(self._result)
        if returned != asked:
            raise TypeError(f"a worker returned {returned} values; allowed: {asked}")
        received, _ = tff.framework.deserialize_value(result, self._result)
        remaining = iter(received)
        return {
            node: [
                values.ingest(next(remaining), leaf)
                for leaf in values.leaves(node.type)
            ]
            for node in self._outputs
        }


def _leaves(nodes: Iterable[Node]) -> tff.StructType:
    return tff.StructType([leaf for node in nodes for leaf in values.leaves(node.type)])


def _to_tensor(leaf: object) -> tf.Tensor:
    if isinstance(leaf, tf.data.Dataset):
        return tf.data.experimental.to_variant(leaf)
    return leaf


def _from_tensor(tensor: tf.Tensor, type_: tff.Type) -> object:
    if isinstance(type_, tff.SequenceType):
        return values.to_dataset(tensor, type_.element)
    # Rewriting a graph may have cost what was known of its shapes.
    return tf.ensure_shape(tensor, type_.shape)


def _calls_python(computation: object) -> bool:
    graph = tf.compat.v1.GraphDef()
    computation.tensorflow.graph_def.Unpack(graph)
    nodes = [*graph.node]
    for function in graph.library.function:
        nodes.extend(function.node_def)
    return not _PYTHON_OPS.isdisjoint(node.op for node in nodes)
