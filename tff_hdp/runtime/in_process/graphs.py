"""TensorFlow graphs of TFF computations, made safe to share and to inline.

TFF serialises a `tff.tensorflow.computation` as a TensorFlow 1 graph: feeds, fetches
and an op that initialises variables and tables, all meant for a session of its own.
Here the same graph is inlined into functions that many threads call at once, so each
call must own its variables and tables, and no two graphs may share a function name.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime.in_process import loops

GraphDef = tf.compat.v1.GraphDef
NodeDef = tf.compat.v1.NodeDef

# A VarHandleOp under this shared name creates a fresh, reference-counted variable at
# every execution (tensorflow/core/framework/resource_handle.h, ANONYMOUS_NAME).
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"

_ANONYMOUS_FORMS = {
    "HashTableV2": "AnonymousHashTable",
    "IteratorV2": "AnonymousIteratorV3",
    "MutableDenseHashTableV2": "AnonymousMutableDenseHashTable",
    "MutableHashTableOfTensorsV2": "AnonymousMutableHashTableOfTensors",
    "MutableHashTableV2": "AnonymousMutableHashTable",
}
_HANDLE_OPS = frozenset(_ANONYMOUS_FORMS.values()) | {"VarHandleOp"}
_NAMING_ATTRS = ("container", "shared_name", "use_node_name_sharing")

_unique_id = itertools.count()


class UnsupportedComputationError(NotImplementedError):
    """A computation holds something that cannot run inside this process."""


class ImportedGraph:
    """A TensorFlow computation that can be inlined in any function being traced.

    Every execution of an inlined copy behaves like one run in a new session: its
    variables and tables are created, initialised, used, and released.

    Attributes:
        inputs: names of the tensors to feed, in the order of the flattened parameter.
        outputs: names of the tensors to fetch, in the order of the flattened result.
    """

    def __init__(self, computation: tff.framework.CompiledComputation) -> None:
        """Prepares the graph of `computation` for inlining.

        Args:
            computation: a building block that holds serialised TensorFlow.

        Raises:
            UnsupportedComputationError: if it holds another backend's code, or a
                resource that outlives a session run by name (a queue, a reader).
        """
        proto = computation.proto
        kind = proto.WhichOneof("computation")
        if kind != "tensorflow":
            raise UnsupportedComputationError(
                f"the in-process runtime runs TensorFlow computations, found {kind!r}"
            )
        tensorflow = proto.tensorflow
        self.inputs = list(_tensor_names(tensorflow.parameter))
        self._fetches = list(_tensor_names(tensorflow.result))
        self._session_token = tensorflow.session_token_tensor_name

        graph = GraphDef()
        if not tensorflow.graph_def.Unpack(graph):
            raise ValueError(
                "the computation's graph is not a GraphDef, found "
                f"{tensorflow.graph_def.type_url!r}"
            )
        _make_function_names_unique(graph)
        loops.rewrite_reductions(graph)
        for node in itertools.chain(
            graph.node, *(function.node_def for function in graph.library.function)
        ):
            _make_anonymous(node)
        if tensorflow.initialize_op:
            graph, self.outputs = _run_after_initialisation(
                graph,
                initialise=_node_name(tensorflow.initialize_op),
                fed={_node_name(name) for name in self.inputs},
                fetches=self._fetches,
            )
        else:
            self.outputs = self._fetches
            graph = _ancestors(graph, map(_node_name, self.outputs))
        self._graph = graph
        self._nodes = frozenset(node.name for node in graph.node)

    def inline(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds a copy of the graph to the function being traced.

        Args:
            arguments: one tensor for each of `inputs`; a sequence is its variant.

        Returns:
            One tensor for each of `outputs`.
        """
        graph = tf.compat.v1.get_default_graph()
        feeds = {
            # Inside a dataset's map, an outer tensor must first be captured.
            name: argument if argument.graph is graph else tf.identity(argument)
            for name, argument in zip(self.inputs, arguments, strict=True)
            if _node_name(name) in self._nodes
        }
        if _node_name(self._session_token) in self._nodes:
            feeds[self._session_token] = tf.constant(b"in_process")
        # A control edge from a feed must follow it to the tensor fed.
        controls = {f"^{_node_name(k)}": f"^{v.op.name}" for k, v in feeds.items()}
        return tf.graph_util.import_graph_def(
            self._graph,
            input_map={**feeds, **controls},
            return_elements=self.outputs,
            name=f"computation_{next(_unique_id)}",
        )


def _tensor_names(binding: object) -> Iterator[str]:
    kind = binding.WhichOneof("binding")
    if kind == "tensor":
        yield binding.tensor.tensor_name
    elif kind == "sequence":
        yield binding.sequence.variant_tensor_name
    elif kind == "struct":
        for element in binding.struct.element:
            yield from _tensor_names(element)


def _node_name(edge: str) -> str:
    return edge.removeprefix("^").partition(":")[0]


def _attributes(graph: GraphDef) -> Iterator[tf.compat.v1.AttrValue]:
    for node in graph.node:
        yield from node.attr.values()
    for function in graph.library.function:
        yield from function.attr.values()
        for node in function.node_def:
            yield from node.attr.values()


def _make_function_names_unique(graph: GraphDef) -> None:
    # The process has one function library, and names are only unique in the process
    # that traced the functions: a deserialised computation may reuse them.
    library = graph.library
    suffix = f"_in_process_{next(_unique_id)}"
    renamed = {
        function.signature.name: function.signature.name + suffix
        for function in library.function
    }
    for function in library.function:
        function.signature.name = renamed[function.signature.name]
    for gradient in library.gradient:
        gradient.function_name = renamed[gradient.function_name]
        gradient.gradient_func = renamed[gradient.gradient_func]
    for attribute in _attributes(graph):
        called = [attribute.func] if attribute.HasField("func") else attribute.list.func
        for function in called:
            function.name = renamed.get(function.name, function.name)
        # Keras names the backward twin of a layer's forward function in a string.
        if attribute.HasField("s"):
            text = attribute.s.decode("utf-8", "replace")
            if text in renamed:
                attribute.s = renamed[text].encode()
    for node in itertools.chain(
        graph.node, *(function.node_def for function in library.function)
    ):
        node.op = renamed.get(node.op, node.op)


def _make_anonymous(node: NodeDef) -> None:
    if node.op == "VarHandleOp":
        node.attr["shared_name"].s = _ANONYMOUS
        node.attr["container"].s = b""
    elif node.op in _ANONYMOUS_FORMS:
        node.op = _ANONYMOUS_FORMS[node.op]
        for name in _NAMING_ATTRS:
            node.attr.pop(name, None)
    elif "shared_name" in node.attr and "container" in node.attr:
        raise UnsupportedComputationError(
            f"node {node.name!r} is a {node.op}, which keeps state by name between "
            "calls; use tf.Variable, tf.lookup tables or tf.data instead"
        )


def _ancestors(graph: GraphDef, names: Iterable[str]) -> GraphDef:
    by_name = {node.name: node for node in graph.node}
    reached: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(map(_node_name, by_name[name].input))
    kept = GraphDef(versions=graph.versions, library=graph.library)
    kept.node.extend(node for node in graph.node if node.name in reached)
    return kept


def _run_after_initialisation(
    graph: GraphDef, *, initialise: str, fed: set[str], fetches: Sequence[str]
) -> tuple[GraphDef, list[str]]:
    """Puts the two session runs of a graph with initialisers into one graph.

    TFF's runtime runs the initialiser and then the fetches, each run evaluating all
    that it reaches. One graph holds both here: a copy of what the initialiser reaches
    and a copy of what the fetches reach, which share only the handles of variables
    and tables, with every source of the second waiting for the initialiser.
    """
    first = _ancestors(graph, [initialise])
    second = _ancestors(graph, map(_node_name, fetches))
    handles = [
        node.name
        for node in itertools.chain(first.node, second.node)
        if node.op in _HANDLE_OPS or node.op == "Placeholder" or node.name in fed
    ]
    shared = {node.name for node in _ancestors(graph, handles).node}

    def copy(node: NodeDef, prefix: str) -> NodeDef:
        copied = NodeDef()
        copied.CopyFrom(node)
        copied.name = f"{prefix}/{node.name}"
        for i, edge in enumerate(node.input):
            if _node_name(edge) not in shared:
                control = "^" if edge.startswith("^") else ""
                copied.input[i] = f"{control}{prefix}/{edge.removeprefix('^')}"
        places = copied.attr["_class"].list if "_class" in copied.attr else None
        for i, place in enumerate(places.s if places else ()):
            target = place.decode().removeprefix("loc:@")
            if target not in shared:
                places.s[i] = f"loc:@{prefix}/{target}".encode()
        return copied

    merged = GraphDef(versions=graph.versions, library=graph.library)
    merged.node.extend(node for node in graph.node if node.name in shared)
    merged.node.extend(copy(n, "init") for n in first.node if n.name not in shared)
    for node in second.node:
        if node.name not in shared:
            copied = copy(node, "main")
            if all(_node_name(edge) in shared for edge in node.input):
                copied.input.append(f"^init/{initialise}")
            merged.node.append(copied)
    return merged, [
        name if _node_name(name) in shared else f"main/{name}" for name in fetches
    ]
