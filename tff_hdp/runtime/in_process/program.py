"""A TFF computation as a graph of values, each at the server or at every client.

Nodes know what they mean, not when they run: `stages` decides that.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow_federated as tff

from tff_hdp.runtime.in_process import graphs
from tff_hdp.runtime.in_process.arguments import is_functional
from tff_hdp.runtime.in_process.interpret import Interpreter, select


@dataclasses.dataclass(frozen=True, eq=False)
class Local:
    """An expression without placements and the nodes behind its free names."""

    block: tff.framework.ComputationBuildingBlock
    captures: Mapping[str, "Tree"]


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """One value of the computation.

    Attributes:
      type: Its type at one place.
      per_client: Whether each client has its own, or there is only one.
      operand: What it is computed from.
      meaning: Its value, given the value of the operand.
    """

    type: tff.Type
    per_client: bool
    operand: "Tree" = ()
    meaning: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Input(Node):
    """A part of the argument: all of it at one place.

    Attributes:
      path: Where in the argument's nested structure.
    """

    path: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Node):
    """The accumulator after all clients' values, before it is reported.

    Attributes:
      value: The node whose values are accumulated, in the clients' order.
      zero: The node of the initial accumulator.
      accumulate: The function of (accumulator, value).
    """

    value: Node
    zero: Node
    accumulate: Local


Tree = Node | Local | tuple["Tree", ...]


def nodes_of(tree: Tree) -> Iterator[Node]:
    """Yields the nodes a tree is made of."""
    if isinstance(tree, Node):
        yield tree
    else:
        parts = tree.captures.values() if isinstance(tree, Local) else tree
        for part in parts:
            yield from nodes_of(part)


def operands_of(node: Node) -> list[Node]:
    """Returns the nodes a node is directly computed from."""
    if isinstance(node, Aggregate):
        return list(nodes_of((node.value, node.zero, node.accumulate)))
    return list(nodes_of(node.operand))


def evaluate(tree: Tree, known: Mapping[Node, Any], interpreter: Interpreter) -> Any:
    """Returns the value of a tree inside the function being traced."""
    if isinstance(tree, Node):
        return known[tree]
    if isinstance(tree, Local):
        scope = {
            name: evaluate(part, known, interpreter)
            for name, part in tree.captures.items()
        }
        return interpreter.evaluate(tree.block, scope)
    return tuple(evaluate(part, known, interpreter) for part in tree)


class Program:
    """The graph of a whole computation.

    Attributes:
      nodes: All nodes, each after its operands.
      result: The tree of the result.
    """

    def __init__(self, computation: tff.framework.ConcreteComputation) -> None:
        """Builds the graph of `computation`.

        Raises:
          UnsupportedComputationError: If it uses an intrinsic, or a kind of
            building block, that has no meaning here.
        """
        block = computation.to_building_block()
        if any(uri.startswith("federated_secure") for uri in _intrinsics(block)):
            # They give the plain values: nothing is hidden from the one process that
            # holds all of them anyway.
            plain = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
            block = plain.to_building_block()
        block, _ = tff.tensorflow.replace_intrinsics_with_bodies(block)
        block = tff.framework.to_call_dominant(block)
        signature = block.type_signature
        if is_functional(signature.result):
            result = signature.result.compact_representation()
            raise graphs.UnsupportedComputationError(
                f"a result of type {result} has a computation in it"
            )
        self.nodes: list[Node] = []
        argument = None
        if signature.parameter is not None:
            argument = self._inputs(signature.parameter, ())
        self.result = self._call(block, argument, {})

    def _add(self, node: Node) -> Node:
        if node.operand:
            node = dataclasses.replace(node, operand=self._for_one_use(node.operand))
        self.nodes.append(node)
        return node

    def _for_one_use(self, tree: Tree) -> Tree:
        """The tree with inputs of its own for data sets, of which each use gets one.

        TFF ships a data set to every use, where it starts over.
        """
        if isinstance(tree, Node):
            is_data = isinstance(tree, Input) or tree.meaning is _identity
            if is_data and tff.types.contains(tree.type, _is_sequence):
                return self._add(dataclasses.replace(tree))
            return tree
        if isinstance(tree, Local):
            own = {k: self._for_one_use(part) for k, part in tree.captures.items()}
            return dataclasses.replace(tree, captures=own)
        return tuple(map(self._for_one_use, tree))

    def _inputs(self, type_: tff.Type, path: tuple[int, ...]) -> Tree:
        if isinstance(type_, tff.StructType):
            return tuple(self._inputs(part, (*path, i)) for i, part in enumerate(type_))
        return self._add(Input(*_placement(type_), path=path))

    def _evaluate(
        self, block: tff.framework.ComputationBuildingBlock, scope: Mapping[str, Tree]
    ) -> Tree:
        match block:
            case tff.framework.Reference():
                return scope[block.name]
            case tff.framework.Struct():
                return tuple(self._evaluate(part, scope) for part in block)
            case tff.framework.Block():
                scope = dict(scope)
                for name, value in block.locals:
                    scope[name] = self._evaluate(value, scope)
                return self._evaluate(block.result, scope)
            case tff.framework.Selection():
                source, index = self._evaluate(block.source, scope), block.as_index()
                if isinstance(source, tuple):
                    return source[index]
                return self._add(
                    Node(
                        block.type_signature, False, source, lambda value: value[index]
                    )
                )
            case tff.framework.Call():
                argument = None
                if block.argument is not None:
                    argument = self._evaluate(block.argument, scope)
                return self._call(block.function, argument, scope)
        local = Local(block, {name: scope[name] for name in _free_names(block)})
        if isinstance(block.type_signature, tff.FunctionType):
            return local
        return self._add(Node(block.type_signature, False, local, _identity))

    def _call(
        self,
        function: tff.framework.ComputationBuildingBlock,
        argument: Tree | None,
        scope: Mapping[str, Tree],
    ) -> Tree:
        match function:
            case tff.framework.Block():
                scope = dict(scope)
                for name, value in function.locals:
                    scope[name] = self._evaluate(value, scope)
                return self._call(function.result, argument, scope)
            case tff.framework.Lambda():
                bound = {function.parameter_name: argument}
                return self._evaluate(function.result, {**scope, **bound})
            case tff.framework.Intrinsic() if function.uri in _IDENTITIES:
                return self._placed(function, argument, _identity)
            case tff.framework.Intrinsic() if function.uri in _CALLS:
                return self._placed(function, argument, lambda pair: pair[0](pair[1]))
            case tff.framework.Intrinsic() if function.uri in _EVALUATIONS:
                return self._placed(function, argument, lambda body: body(None))
            case tff.framework.Intrinsic(uri="federated_select"):
                keys, _, server_value, body = argument
                element = function.type_signature.result.member.element
                return self._placed(
                    function,
                    (keys, server_value, body),
                    lambda parts: select(*parts, element),
                )
            case tff.framework.Intrinsic(uri="federated_aggregate"):
                return self._aggregate(function, argument)
        body = self._evaluate(function, scope)
        operand = (body,) if argument is None else (body, argument)
        return self._add(
            Node(
                function.type_signature.result,
                False,
                operand,
                lambda parts: parts[0](parts[1] if len(parts) > 1 else None),
            )
        )

    def _placed(
        self,
        function: tff.framework.Intrinsic,
        operand: Tree,
        meaning: Callable[[Any], Any],
    ) -> Node:
        placement = _placement(function.type_signature.result)
        return self._add(Node(*placement, operand, meaning))

    def _aggregate(self, function: tff.framework.Intrinsic, argument: Tree) -> Node:
        value, zero, accumulate, _, report = argument
        type_ = accumulate.block.type_signature.parameter[0]
        total = self._add(
            Aggregate(
                type=type_,
                per_client=False,
                value=value,
                zero=self._add(Node(type_, False, zero, _identity)),
                accumulate=accumulate,
            )
        )
        return self._placed(function, (report, total), lambda pair: pair[0](pair[1]))


_IDENTITIES = frozenset(
    (
        "federated_broadcast",
        "federated_value_at_clients",
        "federated_value_at_server",
        "federated_zip_at_clients",
        "federated_zip_at_server",
    )
)
_CALLS = frozenset(("federated_apply", "federated_map", "federated_map_all_equal"))
_EVALUATIONS = frozenset(("federated_eval_at_clients", "federated_eval_at_server"))


def _identity(value: Any) -> Any:
    return value


def _is_sequence(type_: tff.Type) -> bool:
    return isinstance(type_, tff.SequenceType)


def _placement(type_: tff.Type) -> tuple[tff.Type, bool]:
    """Returns the type at one place, and whether each client has its own value."""
    if not isinstance(type_, tff.FederatedType):
        return type_, False
    return type_.member, type_.placement is tff.CLIENTS and not type_.all_equal


def _intrinsics(block: tff.framework.ComputationBuildingBlock) -> Iterator[str]:
    if isinstance(block, tff.framework.Intrinsic):
        yield block.uri
    for child in block.children():
        yield from _intrinsics(child)


def _free_names(block: tff.framework.ComputationBuildingBlock) -> set[str]:
    match block:
        case tff.framework.Reference():
            return {block.name}
        case tff.framework.Lambda():
            return _free_names(block.result) - {block.parameter_name}
        case tff.framework.Block():
            names, bound = set(), set()
            for name, value in block.locals:
                names |= _free_names(value) - bound
                bound.add(name)
            return names | (_free_names(block.result) - bound)
        case tff.framework.Data() | tff.framework.Placement():
            raise graphs.UnsupportedComputationError(
                f"a {type(block).__name__} cannot be evaluated in process: "
                f"{block.compact_representation()}"
            )
    return {name for child in block.children() for name in _free_names(child)}
