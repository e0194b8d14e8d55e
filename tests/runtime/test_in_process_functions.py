"""Computations that are given to computations, and calls from within a graph."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime import in_process

OF_INT = tff.FunctionType(np.int32, np.int32)
CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)

pytestmark = pytest.mark.usefixtures("installed")


@tff.tensorflow.computation(np.int32)
def square(x):
    return x * x


@tff.tensorflow.computation(np.int32)
def next_one(x):
    return x + 1


def test_a_computation_is_an_argument():
    @tff.federated_computation(OF_INT, np.int32)
    def twice(f, x):
        return f(f(x))

    assert twice(square, 3) == 81
    assert twice(next_one, 3) == 5
    assert twice(x=2, f=square) == 16


def test_the_result_has_the_containers_that_the_computation_says():
    @tff.federated_computation(OF_INT, np.int32)
    def both(f, x):
        return collections.OrderedDict(b=f(x), a=[x])

    found = both(square, 3)
    assert type(found) is collections.OrderedDict
    assert type(found["a"]) is list
    assert found == {"b": 9, "a": [3]}


def test_a_computation_alone_is_the_argument():
    @tff.federated_computation(OF_INT)
    def at_seven(f):
        return f(tff.tensorflow.computation(lambda: 7)())

    assert at_seven(square) == 49


def test_computations_deep_in_an_argument_are_used_at_clients():
    parameter = tff.StructType(
        [
            ("functions", [("first", OF_INT), ("second", OF_INT)]),
            (
                "data",
                [("x", CLIENT_INTS), ("y", tff.FederatedType(np.int32, tff.SERVER))],
            ),
        ]
    )

    @tff.federated_computation(parameter)
    def compute(given):
        mapped = tff.federated_map(given.functions.first, given.data.x)
        mapped = tff.federated_map(given.functions.second, mapped)
        return tff.federated_sum(mapped), given.data.y

    functions = collections.OrderedDict(first=next_one, second=square)
    for x in ([1, 2], [1, 2, 3]):
        data = collections.OrderedDict(x=x, y=5)
        found = compute(collections.OrderedDict(functions=functions, data=data))
        assert tuple(found) == (sum((each + 1) ** 2 for each in x), 5)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (3, "found a int"),
        (lambda x: x, "found a function"),
        (
            tff.tensorflow.computation(lambda x: x, np.float32),
            r"found \(float32 -> float32\)",
        ),
    ],
)
def test_what_is_no_such_computation_is_refused(given, found):
    three = tff.tensorflow.computation(lambda: 3)
    compute = tff.federated_computation(lambda f: f(three()), OF_INT)
    with pytest.raises(TypeError, match=rf"of type \(int32 -> int32\), {found}"):
        compute(given)


def test_a_computation_cannot_be_the_result():
    compute = tff.federated_computation(lambda: square)
    with pytest.raises(
        in_process.UnsupportedComputationError,
        match=r"a result of type \(int32 -> int32\) has a computation in it",
    ):
        compute()


def test_a_call_leaves_the_graph_that_it_is_made_in():
    with tf.Graph().as_default() as graph:
        assert next_one(1) == 2
        assert not graph.get_operations()


def test_what_only_hands_on_is_not_run(monkeypatch):
    @tff.tensorflow.computation(np.int32, np.str_)
    def hands_on(x, text):
        return {"text": tf.identity(text), "x": (x, x), "new": tf.constant([1.5, 2.5])}

    def run(*arguments):
        raise AssertionError("a TensorFlow function was run")

    concrete = type(tf.function(lambda: 0).get_concrete_function())
    for base in concrete.__mro__[:-1]:
        if "_call_flat" in vars(base):
            monkeypatch.setattr(base, "_call_flat", run)
    for x in (3, 4):
        found = hands_on(x, "a")
        assert (found["text"], found["x"]) == (b"a", (x, x))
        assert list(found["new"]) == [1.5, 2.5]
    with pytest.raises(AssertionError, match="was run"):
        next_one(1)


def test_what_hands_on_under_a_condition_is_run():
    @tff.tensorflow.computation(np.int32)
    def positive(x):
        with tf.control_dependencies([tf.debugging.Assert(x > 0, [x])]):
            return tf.identity(x)

    assert positive(1) == 1
    with pytest.raises(tf.errors.InvalidArgumentError):
        positive(-1)
