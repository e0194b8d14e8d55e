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

from tff_hdp.runtime import replacements
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


class SessionGraph:
    """A TensorFlow computation as TFF serialises it, to be run by a session.

    Attributes:
      graph: The graph.
      inputs: Names of the tensors to feed, in the order of the flattened parameter.
      fetches: Names of the tensors to fetch, in the order of the flattened result.
      initialise: The name of the op to run first, empty if there is none.
      token: The name of the tensor that identifies the session, empty if none.
    """

    def __init__(
        self, computation: tff.framework.CompiledComputation, *, replace_marked: bool
    ) -> None:
        """Unpacks `computation`.

        Args:
          computation: A building block that holds serialised TensorFlow.
          replace_marked: Whether marked functions are computed in Python.

        Raises:
          UnsupportedComputationError: If it holds another backend's code.
        """
        kind = computation.proto.WhichOneof("computation")
        if kind != "tensorflow":
            raise UnsupportedComputationError(
                f"the in-process runtime runs TensorFlow computations, found {kind!r}"
            )
        proto = computation.proto.tensorflow
        self.graph = GraphDef()
        if not proto.graph_def.Unpack(self.graph):
            raise ValueError(
                "the computation's graph is not a GraphDef, found "
                f"{proto.graph_def.type_url!r}"
            )
        if replace_marked:
            replacements.replace_marked(self.graph)
        _drop_colocations(self.graph)
        self.inputs = list(_tensor_names(proto.parameter))
        self.fetches = list(_tensor_names(proto.result))
        self.initialise = proto.initialize_op
        self.token = proto.session_token_tensor_name

    @property
    def keeps_named_state(self) -> bool:
        """Whether it uses resources that exist only by name: queues, readers."""
        return any(
            "shared_name" in node.attr
            and node.op != "VarHandleOp"
            and node.op not in _ANONYMOUS_FORMS
            for node in _all_nodes(self.graph)
        )


class InlinedGraph:
    """A TensorFlow computation that can be inlined in any function being traced.

    Every execution of an inlined copy behaves like one run in a new session: its
    variables and tables are created, initialised, used, and released.
    """

    def __init__(self, source: SessionGraph) -> None:
        """Rewrites `source`, which must keep no named state."""
        self._inputs, self._token = source.inputs, source.token
        graph = source.graph
        _make_function_names_unique(graph)
        loops.rewrite_reductions(graph)
        for node in _all_nodes(graph):
            _make_anonymous(node)
        if source.initialise:
            self._graph, self._outputs = _run_after_initialisation(
                graph,
                initialise=_node_name(source.initialise),
                fed={_node_name(name) for name in source.inputs},
                fetches=source.fetches,
            )
        else:
            self._graph = _ancestors(graph, map(_node_name, source.fetches))
            self._outputs = source.fetches
        self._nodes = frozenset(node.name for node in self._graph.node)

    def inline(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds a copy of the graph to the function being traced.

        Args:
          arguments: The tensors of the argument; a sequence is its variant.

        Returns:
          The tensors of the result.
        """
        graph = tf.compat.v1.get_default_graph()
        feeds = {
            # Inside a dataset's map, an outer tensor must first be captured.
            name: argument if argument.graph is graph else tf.identity(argument)
            for name, argument in zip(self._inputs, arguments, strict=True)
            if _node_name(name) in self._nodes
        }
        if _node_name(self._token) in self._nodes:
            feeds[self._token] = tf.constant(b"in_process")
        # A control edge from a feed must follow it to the tensor fed.
        controls = {f"^{_node_name(k)}": f"^{v.op.name}" for k, v in feeds.items()}
        return tf.graph_util.import_graph_def(
            self._graph,
            input_map={**feeds, **controls},
            return_elements=self._outputs,
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


def _all_nodes(graph: GraphDef) -> Iterator[NodeDef]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _drop_colocations(graph: GraphDef) -> None:
    # They are hints, which name nodes that are gone where a computation was called by
    # another. Resources are kept together without them.
    for node in _all_nodes(graph):
        node.attr.pop("_class", None)


def _node_name(edge: str) -> str:
    return edge.removeprefix("^").partition(":")[0]


def _attributes(graph: GraphDef) -> Iterator[tf.compat.v1.AttrValue]:
    for function in graph.library.function:
        yield from function.attr.values()
    for node in _all_nodes(graph):
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
    for node in _all_nodes(graph):
        node.op = renamed.get(node.op, node.op)


def _make_anonymous(node: NodeDef) -> None:
    if node.op == "VarHandleOp":
        node.attr["shared_name"].s = _ANONYMOUS
        node.attr["container"].s = b""
    elif node.op in _ANONYMOUS_FORMS:
        node.op = _ANONYMOUS_FORMS[node.op]
        for name in _NAMING_ATTRS:
            node.attr.pop(name, None)


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
    and a copy of what the fetches reach, which share only variables and tables. The
    second copy gets their handles once the initialiser has run. (A control edge to
    its first operations would not do: it is lost when a call that also waits for
    other arguments is inlined.)
    """
    first = _ancestors(graph, [initialise])
    second = _ancestors(graph, map(_node_name, fetches))
    nodes = {node.name: node for node in (*first.node, *second.node)}
    handles = [name for name, node in nodes.items() if node.op in _HANDLE_OPS]
    placeholders = [name for name, node in nodes.items() if node.op == "Placeholder"]
    shared = {
        node.name for node in _ancestors(graph, {*handles, *placeholders, *fed}).node
    }

    merged = GraphDef(versions=graph.versions, library=graph.library)
    merged.node.extend(node for node in graph.node if node.name in shared)
    merged.node.extend(_copies(first, "init", shared))
    for name in handles:
        ready = merged.node.add(name=f"main/{name}", op="Identity")
        ready.input.extend([name, f"^init/{initialise}"])
        ready.attr["T"].type = tf.resource.as_datatype_enum
    merged.node.extend(_copies(second, "main", shared, renamed=handles))
    return merged, [
        name if _node_name(name) in shared else f"main/{name}" for name in fetches
    ]


def _copies(
    graph: GraphDef, prefix: str, shared: set[str], renamed: Iterable[str] = ()
) -> Iterator[NodeDef]:
    """Yields copies under a prefix of the nodes that are not shared."""
    kept = shared.difference(renamed)
    for node in graph.node:
        if node.name in shared:
            continue
        copied = NodeDef()
        copied.CopyFrom(node)
        copied.name = f"{prefix}/{node.name}"
        for i, edge in enumerate(node.input):
            if _node_name(edge) not in kept:
                control = "^" if edge.startswith("^") else ""
                copied.input[i] = f"{control}{prefix}/{edge.removeprefix('^')}"
        yield copied
