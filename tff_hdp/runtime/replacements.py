"""TensorFlow functions that the in-process runtime computes in Python instead.

A computation that needs what TensorFlow does not have, such as random words from the
system's generator, says what it means in plain TensorFlow operations, for every
runtime, and marks that function:

    @tf.function(experimental_implements="my_words", autograph=False)
    def words(n):
        return tf.random.uniform([n], tf.int64.min, tf.int64.max, tf.int64)

    replacements.replace_function("my_words", lambda n: generate(n))

Where the computation runs in process, `generate` is called in place of the body.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_hdp.errors import require

GraphDef = tf.compat.v1.GraphDef
NodeDef = tf.compat.v1.NodeDef

_MARKER = "_implements"  # What `experimental_implements` becomes in a graph.


class _Replacement:
    """What computes the functions of one marker.

    Attributes:
      implementation: May change while graphs refer to this.
      token: The name under which TensorFlow finds this.
    """

    def __init__(self, implementation: Callable[..., Any]) -> None:
        self.implementation = implementation
        # TensorFlow forgets a Python function with the graph that it was first in.
        self._graph = tf.Graph()
        with self._graph.as_default():
            call = tf.numpy_function(self._compute, [], tf.int64)
        self.token = call.op.get_attr("token")

    def _compute(self, *arguments: Any) -> Any:
        return self.implementation(*arguments)


_replacements: dict[str, _Replacement] = {}


def replace_function(marker: str, implementation: Callable[..., Any]) -> None:
    """Has a Python function compute every TensorFlow function of a marker in process.

    Concerns computations that are first called, on an in-process context, afterwards;
    a second implementation replaces the first in earlier ones too. The clients' work on
    a cluster, and everything on TFF's own worker, is computed by the marked functions'
    own bodies.

    The implementation is called anew for each execution: at each step of a loop, for
    each element of a dataset, in each call of the computation. Several threads call it
    at once.

    Args:
      marker: What the functions were given as `experimental_implements`. TensorFlow
        demands that such a function takes all it needs as arguments. It must also
        be stateful, for instance draw a random number, since what is not may be
        computed once for several calls; and return no floats, since TensorFlow
        drops the marker where it differentiates.
      implementation: Takes the arguments as NumPy arrays and returns an array, or a
        sequence of them, of the dtypes and shapes that the body would return.
        Other dtypes fail the computation.

    Raises:
      ArgumentError: If the marker is no text, or the implementation no function.
    """
    is_text = isinstance(marker, str) and bool(marker)
    require(is_text, "marker", marker, "what is given as experimental_implements")
    require(callable(implementation), "implementation", implementation, "a function")
    replacement = _replacements.setdefault(marker, _Replacement(implementation))
    replacement.implementation = implementation


def replace_marked(graph: GraphDef) -> None:
    """Replaces, in place, the bodies of the graph's functions of known markers.

    Raises:
      ValueError: If such a function is not stateful, or returns floats.
    """
    for function in graph.library.function:
        marker = function.attr[_MARKER].s.decode() if _MARKER in function.attr else ""
        if marker in _replacements:
            _replace_body(function, marker)


def _replace_body(function: Any, marker: str) -> None:
    signature = function.signature
    results = [tf.as_dtype(result.type) for result in signature.output_arg]
    if not signature.is_stateful:
        raise ValueError(
            f"the function {signature.name} marked {marker} is stateless; allowed: "
            "stateful functions, which are computed at every call"
        )
    if any(dtype.is_floating or dtype.is_complex for dtype in results):
        raise ValueError(
            f"the function {signature.name} marked {marker} returns "
            f"{', '.join(dtype.name for dtype in results)}; allowed: no floats"
        )
    call = NodeDef(name="python", op="PyFunc", device="/device:CPU:0")
    call.input.extend(argument.name for argument in signature.input_arg)
    call.attr["token"].s = _replacements[marker].token
    call.attr["Tin"].list.type.extend(argument.type for argument in signature.input_arg)
    call.attr["Tout"].list.type.extend(result.type for result in signature.output_arg)
    del function.node_def[:]
    function.node_def.append(call)
    function.control_ret.clear()
    del signature.control_output[:]
    for i, result in enumerate(signature.output_arg):
        function.ret[result.name] = f"python:output:{i}"
