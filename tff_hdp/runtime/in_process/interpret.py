"""The meaning of a TFF building block while a TensorFlow function is being traced.

Placements do not appear: the work of one client, or of the server, is traced as if it
were all there is. A function among the values (see `values`) is a Python callable.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime.in_process import graphs, sessions, values

Interpreted = Callable[[Any], Any]

# What is traced already is a graph: AutoGraph has no Python of the user's to convert.
_as_is = tf.autograph.experimental.do_not_convert


class Interpreter:
    """Evaluates building blocks with TensorFlow, importing each graph once."""

    def __init__(self, *, replace_marked: bool = True) -> None:
        """Starts with no graph imported.

        Args:
          replace_marked: Whether marked functions are computed in Python, in this
            process; see `replacements`.
        """
        self._replace_marked = replace_marked
        self._graphs: dict[bytes, graphs.InlinedGraph | sessions.SessionCall] = {}

    def evaluate(
        self,
        block: tff.framework.ComputationBuildingBlock,
        scope: Mapping[str, Any],
    ) -> Any:
        """Returns the value of an expression without placements.

        Raises:
          UnsupportedComputationError: If a part of it cannot run in process.
        """
        match block:
            case tff.framework.Reference():
                return scope[block.name]
            case tff.framework.Selection():
                return self.evaluate(block.source, scope)[block.as_index()]
            case tff.framework.Struct():
                return tuple(self.evaluate(element, scope) for element in block)
            case tff.framework.Literal():
                type_ = block.type_signature
                return tf.constant(block.value, tf.as_dtype(type_.dtype), type_.shape)
            case tff.framework.Block():
                scope = dict(scope)
                for name, value in block.locals:
                    scope[name] = self.evaluate(value, scope)
                return self.evaluate(block.result, scope)
            case tff.framework.Lambda():
                return lambda argument: self.evaluate(
                    block.result, {**scope, block.parameter_name: argument}
                )
            case tff.framework.CompiledComputation():
                return self._import(block)
            case tff.framework.Intrinsic() if block.uri in _SEQUENCE_INTRINSICS:
                intrinsic = _SEQUENCE_INTRINSICS[block.uri]
                return lambda argument: intrinsic(argument, block.type_signature)
            case tff.framework.Call():
                function = self.evaluate(block.function, scope)
                if block.argument is None:
                    return function(None)
                return function(self.evaluate(block.argument, scope))
        raise graphs.UnsupportedComputationError(
            f"a {type(block).__name__} cannot be evaluated in process: "
            f"{block.compact_representation()}"
        )

    def _import(self, block: tff.framework.CompiledComputation) -> Interpreted:
        key = block.proto.SerializeToString(deterministic=True)
        if key not in self._graphs:
            self._graphs[key] = self._runnable(block)
        graph, signature = self._graphs[key], block.type_signature

        def call(argument: Any) -> Any:
            tensors = values.flatten(argument, signature.parameter)
            return values.unflatten(graph.inline(tensors), signature.result)

        return call

    def _runnable(
        self, block: tff.framework.CompiledComputation
    ) -> graphs.InlinedGraph | sessions.SessionCall:
        source = graphs.SessionGraph(block, replace_marked=self._replace_marked)
        if not source.keeps_named_state:
            return graphs.InlinedGraph(source)
        parameter, result = block.type_signature.parameter, block.type_signature.result
        arguments = [] if parameter is None else values.tensor_specs(parameter)
        return sessions.SessionCall(source, arguments, values.tensor_specs(result))


def select(
    keys: tf.Tensor, server_value: Any, function: Interpreted, element: tff.Type
) -> tf.Tensor:
    """What one client receives from a `federated_select`.

    Args:
      keys: int32 [number of keys].
      server_value: The value to select from.
      function: Takes the pair (server_value, key) to a value of type `element`.
      element: The type of one selected part.

    Returns:
      The sequence of the parts selected, in the order of the keys.
    """
    with tf.device("/device:CPU:0"):
        dataset = tf.data.Dataset.from_tensor_slices(keys).map(
            _as_is(
                lambda key: values.to_element(function((server_value, key)), element)
            )
        )
        return tf.data.experimental.to_variant(dataset)


def _sequence_map(argument: Any, signature: tff.FunctionType) -> tf.Tensor:
    function, sequence = argument
    source, target = signature.parameter[1].element, signature.result.element

    def apply(*parts: Any) -> Any:
        # tf.data passes the elements of a tuple one by one.
        element = parts if isinstance(values.element_spec(source), tuple) else parts[0]
        result = function(values.from_element(element, source))
        return values.to_element(result, target)

    with tf.device("/device:CPU:0"):
        dataset = values.to_dataset(sequence, source).map(_as_is(apply))
        return tf.data.experimental.to_variant(dataset)


def _sequence_reduce(argument: Any, signature: tff.FunctionType) -> Any:
    sequence, zero, function = argument
    return _reduce(
        sequence, zero, function, signature.parameter[0].element, signature.result
    )


def _sequence_sum(argument: Any, signature: tff.FunctionType) -> Any:
    result = signature.result
    zeros = [tf.zeros(spec.shape, spec.dtype) for spec in values.tensor_specs(result)]

    def add(pair: tuple[Any, Any]) -> Any:
        terms = zip(*(values.flatten(term, result) for term in pair), strict=True)
        return values.unflatten([tf.add(*term) for term in terms], result)

    zero = values.unflatten(zeros, result)
    return _reduce(argument, zero, add, signature.parameter.element, result)


def _reduce(
    sequence: tf.Tensor,
    zero: Any,
    function: Interpreted,
    element: tff.Type,
    result: tff.Type,
) -> Any:
    def step(state: tuple[tf.Tensor, ...], part: Any) -> tuple[tf.Tensor, ...]:
        pair = (values.unflatten(state, result), values.from_element(part, element))
        return tuple(values.flatten(function(pair), result))

    dataset = values.to_dataset(sequence, element)
    tensors = dataset.reduce(tuple(values.flatten(zero, result)), _as_is(step))
    return values.unflatten(tensors, result)


_SEQUENCE_INTRINSICS: dict[str, Callable[[Any, tff.FunctionType], Any]] = {
    "sequence_map": _sequence_map,
    "sequence_reduce": _sequence_reduce,
    "sequence_sum": _sequence_sum,
}
