"""A step of SGD leaves nothing to be copied between a GPU's memory and the host's.

What would be is found without a GPU: TensorFlow registers for every operation's GPU
kernel which of its arguments and results stay in the host's memory.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from tff_hdp.clients.batches import chunk_type
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_stack
from tff_hdp.runtime import environment
from tff_hdp.runtime.in_process import values

CALLS = {
    **dict.fromkeys(["PartitionedCall", "StatefulPartitionedCall"], ("f",)),
    **dict.fromkeys(["If", "StatelessIf"], ("then_branch", "else_branch")),
    **dict.fromkeys(["While", "StatelessWhile"], ("cond", "body")),
}
# Of functions' arguments and results.
OF_THE_HOST = (tf.int32, tf.string, tf.variant, tf.resource)


@functools.cache
def gpu_kernels(operation):
    found = kernels.get_registered_kernels_for_op(operation).kernel
    return [kernel for kernel in found if kernel.device_type == "GPU"]


def expanded(arguments, node):
    """The name of the argument behind each tensor of a node, and its number there."""
    for argument in arguments:
        count = 1
        if argument.number_attr:
            count = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        yield from ((argument.name, i) for i in range(count))


def in_host_memory(node):
    """Whether each input and each output, by name and number, is the host's."""
    definition = op_def_registry.get(node.op)
    fitting = (
        kernel
        for kernel in gpu_kernels(node.op)
        if all(
            node.attr[c.name].type in c.allowed_values.list.type
            for c in kernel.constraint
        )
    )
    kernel = next(fitting, None)

    def of_the_host(name):
        return kernel is None or name in kernel.host_memory_arg

    inputs = [of_the_host(name) for name, _ in expanded(definition.input_arg, node)]
    outputs = expanded(definition.output_arg, node)
    return inputs, {f"{name}:{i}": of_the_host(name) for name, i in outputs}


def copies(function, library):
    """Edges of a function, and of those it calls, from one memory to the other."""
    nodes = {node.name: node for node in function.node_def}
    memory = {n.name: in_host_memory(n) for n in nodes.values() if n.op not in CALLS}
    given = {a.name: tf.as_dtype(a.type) for a in function.signature.input_arg}

    def from_host(edge):
        """None where it does not matter, or cannot be said."""
        source, _, output = edge.partition(":")
        if source in given:
            return given[source] in OF_THE_HOST
        if source not in memory or nodes[source].op == "Const":
            return None
        return memory[source][1][output]

    for node in nodes.values():
        for key in CALLS.get(node.op, ()):
            yield from copies(library[node.attr[key].func.name], library)
        edges = [edge for edge in node.input if not edge.startswith("^")]
        wanted = memory[node.name][0] if node.name in memory else []
        for edge, to_host in zip(edges, wanted, strict=False):
            if from_host(edge) not in (None, to_host):
                yield f"{edge} -> {node.name}"
    for argument in function.signature.output_arg:
        to_host = tf.as_dtype(argument.type) in OF_THE_HOST
        if from_host(function.ret[argument.name]) not in (None, to_host):
            yield f"{function.ret[argument.name]} -> result"


def copies_in_loops(function):
    graph = function.graph.as_graph_def()
    library = {f.signature.name: f for f in graph.library.function}
    functions = [graph.node, *(f.node_def for f in library.values())]
    loops = [n for nodes in functions for n in nodes if n.op.endswith("While")]
    assert loops
    # A number's comparison, which says whether to go on, is TensorFlow's own affair.
    bodies = [library[loop.attr["body"].func.name] for loop in loops]
    return [edge for body in bodies for edge in copies(body, library)]


def test_copies_are_found():
    @tf.function(autograph=False)
    def count(numbers):
        def step(t, total):
            # Which number 32 bits long is the largest is found by the host alone.
            place = tf.argmax(numbers + total, output_type=tf.int32)
            return t + 1, total + tf.cast(tf.maximum(place, 7), tf.float32)

        return tf.while_loop(lambda t, _: t < 3, step, (0, 0.0))[1]

    found = copies_in_loops(count.get_concrete_function(tf.TensorSpec([None])))
    assert len(found) == 2
    assert "ArgMax" in found[0] and "Maximum" in found[0]
    assert "Maximum" in found[1] and "Cast" in found[1]


@pytest.mark.parametrize("convolves", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_copies_nothing(monkeypatch, convolves, momentum):
    monkeypatch.setattr(environment, "gpus", lambda: 1)
    layers = tf.keras.layers
    shape = [16, 16, 3] if convolves else [64]
    stack = [layers.InputLayer(shape)]
    if convolves:
        stack += [
            layers.Conv2D(8, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
        ]
    stack += [layers.Dense(32, "relu"), layers.Dense(10)]
    model = StackedModel.built_by(lambda: tf.keras.Sequential(stack))
    rule = SgdRule(learning_rate=0.1, momentum=momentum)

    @tf.function(autograph=False)
    def train(weights, chunk):
        return train_stack(model, weights, chunk, rule)

    weights = [tf.TensorSpec(shape) for shape in model.shapes]
    chunk = values.element_spec(chunk_type(shape, np.float32).element)
    assert copies_in_loops(train.get_concrete_function(weights, chunk)) == []
