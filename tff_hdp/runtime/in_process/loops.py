"""Reductions over datasets, rewritten as TensorFlow loops.

TFF's client work is a `Dataset.reduce`. Its kernel instantiates and optimises the step
function anew at every call, which takes longer than the training of a small client,
and runs it on the CPU. A loop over an iterator is part of the calling function
instead: instantiated once, and placed on whatever device the caller is.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

GraphDef = tf.compat.v1.GraphDef
NodeDef = tf.compat.v1.NodeDef
_FunctionDef = type(GraphDef().library.function.add())
_Argument = type(_FunctionDef().signature.input_arg.add())
_Shape = type(NodeDef().attr["shape"].shape)

_CPU = "/device:CPU:0"
_VARIANT = tf.variant.as_datatype_enum
_RESOURCE = tf.resource.as_datatype_enum
_BOOL = tf.bool.as_datatype_enum

_number = itertools.count()


def rewrite_reductions(graph: GraphDef) -> None:
    """Replaces, in place, every ReduceDataset of a graph and of its functions."""
    functions = {f.signature.name: f for f in graph.library.function}
    for node in graph.node:
        if node.op == "ReduceDataset":
            _rewrite(node, functions)
    for function in tuple(functions.values()):
        rewritten = set()
        for node in function.node_def:
            if node.op == "ReduceDataset":
                _rewrite(node, functions)
                rewritten.add(node.name)
        if rewritten:
            _rename_outputs(function, rewritten)
    known = {f.signature.name for f in graph.library.function}
    graph.library.function.extend(
        function for name, function in functions.items() if name not in known
    )


def _rename_outputs(function: _FunctionDef, nodes: set[str]) -> None:
    """Follows the change of the output's name from a reduction to a call."""

    def renamed(edge: str) -> str:
        node, colon, output = edge.partition(":components:")
        return f"{node}:output:{output}" if colon and node in nodes else edge

    for node in function.node_def:
        node.input[:] = map(renamed, node.input)
    for key, edge in function.ret.items():
        function.ret[key] = renamed(edge)


def _rewrite(node: NodeDef, functions: dict[str, _FunctionDef]) -> None:
    step = node.attr["f"].func.name
    state = list(node.attr["Tstate"].list.type)
    shapes = list(node.attr["output_shapes"].list.shape)
    captured = list(node.attr["Targuments"].list.type)
    arguments = [argument.type for argument in functions[step].signature.input_arg]
    element = arguments[len(state) : len(arguments) - len(captured)]
    loop = _loop(step, state, shapes, element, captured)
    functions.update((function.signature.name, function) for function in loop)
    node.op = "StatefulPartitionedCall"
    node.device = ""
    node.attr.clear()
    _set(
        node,
        f=loop[0],
        Tin=[_VARIANT, *state, *captured],
        Tout=state,
    )


def _loop(
    step: str,
    state: Sequence[int],
    shapes: Sequence[Any],
    element: Sequence[int],
    captured: Sequence[int],
) -> list[_FunctionDef]:
    """Returns the function of (dataset, *state, *captured) and those that it calls."""
    prefix = f"dataset_loop_{next(_number)}"
    states = [f"state_{i}" for i in range(len(state))]
    captures = [f"captured_{i}" for i in range(len(captured))]
    carried = dict(zip(states + captures, [*state, *captured], strict=True))
    results = dict(zip(states, state, strict=True))
    optional = {"optional": _VARIANT}
    loop_variables = {"more": _BOOL, "iterator": _RESOURCE, **carried}
    elements = {"output_types": list(element), "output_shapes": [None] * len(element)}

    taken = _function(
        f"{prefix}_step",
        {**optional, **carried},
        results,
        [
            _node("element", "OptionalGetValue", ["optional"], **elements),
            _node(
                "call",
                "StatefulPartitionedCall",
                [*states, *_outputs("element:components", len(element)), *captures],
                f=step,
                Tin=[*state, *element, *captured],
                Tout=list(state),
            ),
        ],
        _outputs("call:output", len(state)),
    )
    ended = _function(f"{prefix}_end", {**optional, **carried}, results, [], states)
    body = _function(
        f"{prefix}_body",
        loop_variables,
        loop_variables,
        [
            _node("next", "IteratorGetNextAsOptional", ["iterator"], _CPU, **elements),
            _node("has_value", "OptionalHasValue", ["next:optional:0"]),
            _node(
                "step",
                "If",
                ["has_value:has_value:0", "next:optional:0", *carried],
                Tcond=_BOOL,
                Tin=[_VARIANT, *carried.values()],
                Tout=list(state),
                then_branch=taken,
                else_branch=ended,
                output_shapes=[None] * len(state),
                _lower_using_switch_merge=True,
            ),
        ],
        [
            "has_value:has_value:0",
            "iterator",
            *_outputs("step:output", len(state)),
            *captures,
        ],
    )
    go_on = _function(f"{prefix}_cond", loop_variables, {"go_on": _BOOL}, [], ["more"])
    whole = _function(
        prefix,
        {"dataset": _VARIANT, **carried},
        results,
        [
            _node("iterator", "AnonymousIteratorV3", [], _CPU, **elements),
            # Of loops over one dataset that shuffles by a seed, each in turn draws the
            # next order: this one not before those whose results it goes on from.
            _node(
                "due",
                "Identity",
                ["dataset", *(f"^first_{name}" for name in states)],
                _CPU,
                T=_VARIANT,
            ),
            _node("start", "MakeIterator", ["due:output:0", "iterator:handle:0"], _CPU),
            # As data, the order survives whatever is done to control edges.
            _node(
                "ready", "Identity", ["iterator:handle:0", "^start"], _CPU, T=_RESOURCE
            ),
            _node("true", "Const", [], dtype=_BOOL, value=tf.make_tensor_proto(True)),
            # TensorFlow's optimiser takes a loop's first shapes for its last ones.
            *(
                _node(
                    f"first_{name}",
                    "PlaceholderWithDefault",
                    [name],
                    dtype=type_,
                    shape=shape,
                )
                for name, type_, shape in zip(states, state, shapes, strict=True)
            ),
            _node(
                "loop",
                "While",
                [
                    "true:output:0",
                    "ready:output:0",
                    *(f"first_{name}:output:0" for name in states),
                    *captures,
                ],
                T=list(loop_variables.values()),
                cond=go_on,
                body=body,
                output_shapes=[None] * len(loop_variables),
                parallel_iterations=1,
                _lower_using_switch_merge=True,
            ),
        ],
        _outputs("loop:output", len(state), start=2),
    )
    return [whole, body, go_on, taken, ended]


def _outputs(of: str, count: int, start: int = 0) -> list[str]:
    return [f"{of}:{i}" for i in range(start, start + count)]


def _function(
    name: str,
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    nodes: Sequence[NodeDef],
    returned: Iterable[str],
) -> _FunctionDef:
    function = _FunctionDef()
    signature = function.signature
    signature.name = name
    for key, type_ in inputs.items():
        signature.input_arg.append(_Argument(name=key, type=type_))
    for (key, type_), edge in zip(outputs.items(), returned, strict=True):
        key = f"{key}_out"
        signature.output_arg.append(_Argument(name=key, type=type_))
        function.ret[key] = edge
    function.node_def.extend(nodes)
    if nodes:
        # The function is done when its last call is, not only that call's outputs:
        # the step assigns the model's variables.
        signature.is_stateful = True
        signature.control_output.append(nodes[-1].name)
        function.control_ret[nodes[-1].name] = nodes[-1].name
    return function


def _node(
    name: str, op: str, inputs: Iterable[str], device: str = "", **attributes: Any
) -> NodeDef:
    node = NodeDef(name=name, op=op, device=device)
    node.input.extend(inputs)
    _set(node, **attributes)
    return node


def _set(node: NodeDef, **attributes: Any) -> None:
    for name, value in attributes.items():
        attribute = node.attr[name]
        match value:
            case bool():
                attribute.b = value
            case int() if name == "parallel_iterations":
                attribute.i = value
            case int():
                attribute.type = value
            case str():
                attribute.func.name = value
            case _Shape():
                attribute.shape.CopyFrom(value)
            case _FunctionDef():
                attribute.func.name = value.signature.name
            case list() if name == "output_shapes":
                attribute.list.SetInParent()
                for _ in value:
                    attribute.list.shape.add(unknown_rank=True)
            case list():
                attribute.list.SetInParent()
                attribute.list.type.extend(value)
            case _:
                attribute.tensor.CopyFrom(value)
