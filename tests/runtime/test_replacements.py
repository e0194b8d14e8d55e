"""Marked functions: computed in Python in process, by their own bodies elsewhere."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.errors import ArgumentError
from tff_hdp.runtime.replacements import replace_function

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
# No body draws so small a word but once in ten million times.
FEW = 2**40


def marked(marker):
    """A function of n that returns n random words, all of them above FEW."""

    @tf.function(experimental_implements=marker, autograph=False)
    def words(n):
        return tf.random.uniform([n], FEW, tf.int64.max, tf.int64)

    return words


words = marked("tests_words")


@pytest.fixture(autouse=True)
def counted():
    """The replacement returns the number of the call, n times."""
    numbers = itertools.count()
    replace_function("tests_words", lambda n: np.full(n, next(numbers), np.int64))


@tff.tensorflow.computation(np.int32)
def twice(n):
    return words(1), words(1)


@tff.tensorflow.computation(np.int32)
def in_a_loop(n):
    def body(i, drawn):
        return i + 1, drawn.write(i, words(1))

    drawn = tf.TensorArray(tf.int64, n, element_shape=[1])
    _, drawn = tf.while_loop(lambda i, _: i < n, body, (0, drawn))
    return drawn.stack()


@tff.tensorflow.computation(np.int32)
def in_a_condition(n):
    return tf.cond(n > 2, lambda: words(1), lambda: -words(1)), words(1)


@tff.tensorflow.computation(np.int32)
def in_a_reduction(n):
    return tf.data.Dataset.range(tf.cast(n, tf.int64)).reduce(
        tf.zeros([0], tf.int64), lambda all_, _: tf.concat([all_, words(1)], 0)
    )


@tff.tensorflow.computation(np.int32)
def in_a_map(n):
    drawn = tf.data.Dataset.range(tf.cast(n, tf.int64)).map(lambda _: words(1))
    return drawn.reduce(
        tf.zeros([0], tf.int64), lambda all_, new: tf.concat([all_, new], 0)
    )


@tff.tensorflow.computation(np.int32)
def in_a_function(n):
    @tf.function
    def outer():
        return words(1), words(1)

    return outer(), outer(), tf.fill([0], tf.cast(n, tf.int64))


@tff.tensorflow.computation(np.int32)
def in_another_computation(n):
    return twice(n), in_a_loop(n)


@tff.tensorflow.computation(np.int32)
def beside_a_queue(n):
    queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
    with tf.control_dependencies([queue.enqueue(n)]):
        return words(1), words(queue.dequeue() - 2)


@tff.tensorflow.computation(np.int32)
def in_two_groups(n):
    @tf.function(experimental_implements="tests_words", autograph=False)
    def others(n):
        return tf.random.uniform([n], FEW, tf.int64.max, tf.int64)

    return words(1), others(1)


@tff.federated_computation(CLIENT_INTS)
def everywhere(n):
    at_server = tff.federated_map(twice, tff.federated_sum(n))
    return tff.federated_map(in_a_loop, n), at_server


COMPUTATIONS = {
    "twice": twice,
    "in_a_loop": in_a_loop,
    "in_a_condition": in_a_condition,
    "in_a_reduction": in_a_reduction,
    "in_a_map": in_a_map,
    "in_a_function": in_a_function,
    "in_another_computation": in_another_computation,
    "beside_a_queue": beside_a_queue,
    "in_two_groups": in_two_groups,
}


def drawn_by(result):
    """The words in a result, each of a draw of its own."""
    if isinstance(result, np.ndarray):
        return [abs(int(word)) for word in np.ravel(result)]
    return [word for part in result for word in drawn_by(part)]


@pytest.mark.parametrize("computation", COMPUTATIONS.values(), ids=COMPUTATIONS)
class TestFreshness:
    def test_in_process_by_the_replacement(
        self, computation, in_process_context, run_on
    ):
        results = [run_on(in_process_context, computation, 3) for _ in range(3)]
        drawn = drawn_by(results)
        assert sorted(drawn) == list(range(len(drawn)))
        assert len(drawn) >= 6

    def test_natively_by_its_own_body(self, computation, native_plain_context, run_on):
        results = [run_on(native_plain_context, computation, 3) for _ in range(3)]
        drawn = drawn_by(results)
        assert min(drawn) >= FEW
        assert len(set(drawn)) == len(drawn) >= 6


def test_clients_and_server(in_process_context, run_on):
    results = [run_on(in_process_context, everywhere, [3] * 5) for _ in range(2)]
    assert sorted(drawn_by(results)) == list(range(2 * (5 * 3 + 2)))


def test_clients_on_a_cluster_use_the_body(cluster_context, run_on):
    at_clients, at_server = map(drawn_by, run_on(cluster_context, everywhere, [3] * 5))
    assert min(at_clients) >= FEW
    assert len(set(at_clients)) == len(at_clients) == 5 * 3
    assert sorted(at_server) == [0, 1]


def test_as_many_words_as_were_asked_for(in_process_context, run_on):
    compute = tff.tensorflow.computation(lambda n: words(n), np.int32)
    result = run_on(in_process_context, compute, 4)
    assert (result.dtype, result.tolist()) == (np.int64, [0] * 4)


def test_a_second_implementation_replaces_the_first(in_process_context, run_on):
    assert drawn_by(run_on(in_process_context, twice, 3)) in ([0, 1], [1, 0])
    replace_function("tests_words", lambda n: np.full(n, 7, np.int64))
    assert drawn_by(run_on(in_process_context, twice, 3)) == [7, 7]


def test_an_unknown_marker_changes_nothing(in_process_context, run_on):
    @tff.tensorflow.computation
    def compute():
        return marked("tests_unknown")(4)

    assert run_on(in_process_context, compute).min() >= FEW


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda n: tf.zeros([n], tf.int64), "is stateless; allowed: stateful"),
        (lambda n: tf.random.normal([n]), "returns float32; allowed: no floats"),
    ],
)
def test_a_function_that_could_be_computed_wrongly_is_refused(
    body, message, in_process_context, run_on
):
    function = tf.function(body, experimental_implements="tests_words", autograph=False)
    compute = tff.tensorflow.computation(lambda n: function(n), np.int32)
    with pytest.raises(ValueError, match=f"marked tests_words {message}"):
        run_on(in_process_context, compute, 3)


def test_another_dtype_fails_the_computation(in_process_context, run_on):
    replace_function("tests_dtype", lambda n: np.zeros(n, np.int32))
    compute = tff.tensorflow.computation(lambda n: marked("tests_dtype")(n), np.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="int64"):
        run_on(in_process_context, compute, 3)


@pytest.mark.parametrize(
    ("marker", "implementation", "name"),
    [(3, print, "marker"), ("", print, "marker"), ("tests", None, "implementation")],
)
def test_what_would_never_be_called_is_refused(marker, implementation, name):
    with pytest.raises(ArgumentError, match=f"^{name} is "):
        replace_function(marker, implementation)


def test_a_failing_implementation_fails_the_computation(in_process_context, run_on):
    def fail(n):
        raise RuntimeError("no words left")

    replace_function("tests_failing", fail)
    compute = tff.tensorflow.computation(lambda n: marked("tests_failing")(n), np.int32)
    with pytest.raises(tf.errors.OpError, match="no words left"):
        run_on(in_process_context, compute, 3)
