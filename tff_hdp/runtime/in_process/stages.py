"""The order in which a program runs, and the TensorFlow functions it runs as.

A program alternates between the server and the clients: a stage is everything the
server computes before it next needs an aggregate, then everything each client computes
towards it, then the sums. Each of the three is traced as one TensorFlow function, so a
round costs few calls however many steps the computation was written in.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from tff_hdp.runtime.in_process import program as programs
from tff_hdp.runtime.in_process import values
from tff_hdp.runtime.in_process.interpret import Interpreter
from tff_hdp.runtime.in_process.program import Aggregate, Input, Node

Known = Mapping[Node, Any]


class Function:
    """A part of a program, traced as one TensorFlow function.

    Attributes:
      inputs: The nodes whose tensors it takes, one after the other.
      outputs: The nodes whose tensors it computes.
      compute: Gives the values of the outputs from those of the inputs and an
        interpreter, inside a function being traced.
    """

    def __init__(
        self,
        inputs: Iterable[Node],
        outputs: Iterable[Node],
        compute: Callable[[Known, Interpreter], Known],
        interpreter: Interpreter,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.compute = compute
        specs = [values.tensor_specs(node.type) for node in self.inputs]
        made = [values.tensor_specs(node.type) for node in self.outputs]
        self._sizes = list(map(len, made))
        self._makes_data = any(
            spec.dtype == tf.variant for spec in itertools.chain.from_iterable(made)
        )

        def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
            remaining = iter(tensors)
            known = {
                node: values.unflatten(remaining, node.type) for node in self.inputs
            }
            known = compute(known, interpreter)
            return [
                tensor
                for node in self.outputs
                for tensor in values.flatten(known[node], node.type)
            ]

        self._run = self._passed = None
        if any(self._sizes):
            flat_specs = list(itertools.chain.from_iterable(specs))
            # A function of TensorFlow 1: only what the outputs need is run.
            self._run = tf.compat.v1.wrap_function(body, flat_specs)
            self._passed = _passed_on(self._run, len(flat_specs))

    def __call__(
        self, inputs: Iterable[list[tf.Tensor]]
    ) -> dict[Node, list[tf.Tensor]]:
        """Returns the tensors of each output, given those of each input."""
        tensors = []
        if self._passed is not None:
            given = list(itertools.chain.from_iterable(inputs))
            tensors = [take(given) for take in self._passed]
        elif self._run is not None:
            arguments = itertools.chain.from_iterable(inputs)
            # No GPU holds a data set, and one that says it does cannot be read.
            cpu = tf.device("/device:CPU:0")
            try:
                with cpu if self._makes_data else contextlib.nullcontext():
                    # Called itself, it would convert tensors that are some already,
                    # which with little work in a round is a good part of it.
                    tensors = self._run._call_flat(
                        list(arguments), self._run.captured_inputs
                    )
            except tf.errors.OpError as error:
                error.__class__ = _as_of_a_worker(type(error))
                raise
        remaining = iter(tensors)
        return {
            node: list(itertools.islice(remaining, size))
            for node, size in zip(self.outputs, self._sizes, strict=True)
        }


def _passed_on(
    function: Any, given: int
) -> list[Callable[[list[tf.Tensor]], tf.Tensor]] | None:
    """How to take each output from the inputs given, if the function computes none.

    The server's part before the clients' work often only hands the state on.
    """
    # What the function captured comes after them.
    places = {tensor.name: i for i, tensor in enumerate(function.inputs[:given])}
    found: list[Callable[[list[tf.Tensor]], tf.Tensor]] = []
    for tensor in function.outputs:
        while tensor.op.type == "Identity" and not tensor.op.control_inputs:
            tensor = tensor.op.inputs[0]
        if tensor.name in places:
            place = places[tensor.name]
            found.append(lambda tensors, place=place: _here(tensors[place]))
        elif tensor.op.type == "Const" and not tensor.op.control_inputs:
            found.append(_constant(tf.get_static_value(tensor), tensor.dtype))
        else:
            return None
    return found


def _constant(value: Any, dtype: tf.DType) -> Callable[[Any], tf.Tensor]:
    @functools.cache
    def on(device: str | None) -> tf.Tensor:
        del device
        return tf.constant(value, dtype)

    return lambda _: on(tf_context.context().device_name)


def _here(tensor: tf.Tensor) -> tf.Tensor:
    """A tensor on the device in use, as what an operation gives; data sets stay."""
    device = tf_context.context().device_name
    if device in (None, "", tensor.device) or tensor.dtype == tf.variant:
        return tensor
    return tf.identity(tensor)


# TensorFlow's codes are gRPC's.
_STATUS = {status.value[0]: status for status in grpc.StatusCode}


@functools.cache
def _as_of_a_worker(kind: type[tf.errors.OpError]) -> type[tf.errors.OpError]:
    """The same kind of error, and what programs catch of TFF's own worker too."""
    if issubclass(kind, grpc.RpcError):
        return kind

    def reduce(error: tf.errors.OpError) -> tuple[Any, ...]:
        # Operations belong to this process, and the class has no name to find it by.
        _, given = kind.__reduce__(error)
        return _made_again, (kind, (None, None, *given[2:]))

    members = {
        "__module__": kind.__module__,
        "__reduce__": reduce,
        "code": lambda error: _STATUS[error.error_code],
        "details": lambda error: error.message,
    }
    return type(kind.__name__, (kind, grpc.RpcError), members)


def _made_again(
    kind: type[tf.errors.OpError], given: tuple[Any, ...]
) -> tf.errors.OpError:
    error = kind(*given)
    error.__class__ = _as_of_a_worker(kind)
    return error


@dataclasses.dataclass(frozen=True)
class Stage:
    """The way to the next aggregates.

    Attributes:
      server: What the server computes first.
      clients: What each client computes then.
      aggregates: What is accumulated over the clients.
      accumulate: Adds one client's values; the aggregates are inputs and outputs.
      kept: The clients' nodes that later stages or the result need.
    """

    server: Function
    clients: Function
    aggregates: tuple[Aggregate, ...]
    accumulate: Function
    kept: tuple[Node, ...]

    @property
    def has_client_work(self) -> bool:
        """Whether anything is computed at, or accumulated over, the clients."""
        return bool(self.aggregates or self.kept)


def plan(program: programs.Program) -> list[Stage]:
    """Divides a program into stages and traces their functions."""
    results = frozenset(programs.nodes_of(program.result))
    nodes = _reachable(program.nodes, results)
    consumers = collections.defaultdict(list)
    for node in nodes:
        for operand in programs.operands_of(node):
            consumers[operand].append(node)
    when = _schedule(nodes, consumers, results)
    interpreter = Interpreter()

    def computed(number: int, per_client: bool) -> list[Node]:
        return [
            node
            for node in nodes
            if when[node] == number
            and node.per_client is per_client
            and not isinstance(node, Input | Aggregate)
        ]

    def stage(number: int) -> Stage:
        at_server, at_clients = computed(number, False), computed(number, True)
        aggregates = [
            node
            for node in nodes
            if isinstance(node, Aggregate) and when[node] == number
        ]
        here = frozenset(at_server) | frozenset(at_clients)
        kept = [
            node
            for node in at_clients
            if node in results or any(when[use] > number for use in consumers[node])
        ]
        accumulated = [node.value for node in aggregates if node.value in at_clients]
        told = [
            node
            for node in at_server
            if node in results
            or not here.issuperset(consumers[node])
            or any(consumer.per_client for consumer in consumers[node])
        ]
        return Stage(
            _trace(at_server, told, interpreter),
            _trace(at_clients, dict.fromkeys(kept + accumulated), interpreter),
            tuple(aggregates),
            _trace_accumulation(aggregates, interpreter),
            tuple(kept),
        )

    return [stage(number) for number in range(max(when.values(), default=0) + 1)]


def _reachable(nodes: Sequence[Node], results: Iterable[Node]) -> list[Node]:
    reached = set(results)
    for node in reversed(nodes):
        if node in reached:
            reached.update(programs.operands_of(node))
    return [node for node in nodes if node in reached]


def _schedule(
    nodes: Sequence[Node],
    consumers: Mapping[Node, Sequence[Node]],
    results: frozenset[Node],
) -> dict[Node, int]:
    """Returns the number of the stage in which each node is computed."""
    when: dict[Node, int] = {}
    for node in nodes:
        when[node] = max(
            # An aggregate is known one stage after its clients' work.
            (
                when[operand] + isinstance(operand, Aggregate)
                for operand in programs.operands_of(node)
            ),
            default=0,
        )
    last = max(when.values(), default=0)
    # A client's value waits for its first use: what only a later stage needs is
    # neither computed nor held before.
    for node in reversed(nodes):
        if node.per_client and not isinstance(node, Input):
            uses = [when[consumer] for consumer in consumers[node]]
            when[node] = min(uses + [last] * (node in results))
    return when


def _trace(
    members: Sequence[Node], outputs: Iterable[Node], interpreter: Interpreter
) -> Function:
    inside = frozenset(members)
    inputs = dict.fromkeys(
        operand
        for node in members
        for operand in programs.operands_of(node)
        if operand not in inside
    )

    def compute(known: Known, interpreter: Interpreter) -> Known:
        known = dict(known)
        for node in members:
            operand = programs.evaluate(node.operand, known, interpreter)
            known[node] = node.meaning(operand)
        return known

    return Function(inputs, outputs, compute, interpreter)


def _trace_accumulation(
    aggregates: Sequence[Aggregate], interpreter: Interpreter
) -> Function:
    operands = dict.fromkeys(
        operand
        for node in aggregates
        for operand in (node.value, *programs.nodes_of(node.accumulate))
    )

    def compute(known: Known, interpreter: Interpreter) -> Known:
        return {
            node: programs.evaluate(node.accumulate, known, interpreter)(
                (known[node], known[node.value])
            )
            for node in aggregates
        }

    return Function((*aggregates, *operands), aggregates, compute, interpreter)
