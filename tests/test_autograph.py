"""What is written for graphs is traced as it is.

AutoGraph rewrites every function that a traced one calls, unless told not to, and finds
nothing to rewrite in what branches on what Python knows alone.
"""

import ast
import pathlib

import pytest

LIBRARY = pathlib.Path(__file__).parents[1] / "tff_hdp"
AS_IT_IS = "tf.autograph.experimental.do_not_convert"
# Functions that have AutoGraph rewrite one they are given, and its place.
REWRITING = {"tf.map_fn": 0, "tf.vectorized_map": 0, "dataset.map": 0}
REWRITING["dataset.reduce"] = 1


def rewritten(source):
    """The lines at which AutoGraph would be asked to rewrite a function."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    # Other names for it, and functions that it decorates.
    told = {AS_IT_IS}
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == AS_IT_IS:
            told |= set(map(ast.unparse, node.targets))
        if isinstance(node, ast.FunctionDef) and AS_IT_IS in map(
            ast.unparse, node.decorator_list
        ):
            told.add(node.name)

    def is_told(argument):
        called = argument.func if isinstance(argument, ast.Call) else argument
        return ast.unparse(called) in told

    # A `tf.function` is in order where it is called with `autograph=False`.
    as_written = {
        node.func
        for node in nodes
        if isinstance(node, ast.Call)
        and "autograph=False" in map(ast.unparse, node.keywords)
    }
    for node in nodes:
        asks = False
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "tf.function":
            asks = node not in as_written
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            place = 0 if name.endswith(").map") else REWRITING.get(name)
            asks = place is not None and not is_told(node.args[place])
        if asks:
            yield node.lineno


def test_autograph_rewrites_nothing():
    found = [
        f"{path.relative_to(LIBRARY)}:{line}"
        for path in sorted(LIBRARY.rglob("*.py"))
        for line in rewritten(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "@tf.function\ndef f(x): return x",
        "@tf.function(jit_compile=True)\ndef f(x): return x",
        "g = tf.function(f)",
        "g = tf.function(f, autograph=True)",
        "@functools.partial(tf.function, jit_compile=True)\ndef f(x): return x",
        "y = tf.map_fn(f, x)",
        "y = tf.vectorized_map(lambda a: a, x)",
        "y = tf.data.Dataset.from_tensors(x).map(f)",
        "y = dataset.map(f)",
        "y = dataset.reduce(0, f)",
    ],
)
def test_each_way_to_ask_is_found(source):
    assert len(list(rewritten(source))) == 1


def test_what_is_told_not_to_is_not():
    source = f"""
as_it_is = {AS_IT_IS}

@{AS_IT_IS}
def f(x): return x

@tf.function(autograph=False)
def g(x): return tf.map_fn(f, x)

y = dataset.map(as_it_is(lambda a: a))
"""
    assert list(rewritten(source)) == []
