"""The same computation gives the same value on TFF's C++ worker and in process."""

import collections
import typing

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
CLIENT_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
SERVER_INT = tff.FederatedType(np.int32, tff.SERVER)
FLOATS = np.float32([1.5, -2.0, 4.0])


class Pair(typing.NamedTuple):
    second: typing.Any
    first: typing.Any


@attrs.define
class Record:
    second: typing.Any
    first: typing.Any


CASES = {}


def case(*arguments):
    def register(make):
        CASES[make.__name__] = make, arguments
        return make

    return register


@tff.tensorflow.computation(np.int32, np.int32)
def add(x, y):
    return x + y


@tff.tensorflow.computation(np.int32)
def increment(x):
    return x + 1


@case(np.float32(2.0), [1, 2], True, "text")
def scalars_arrays_and_strings():
    @tff.tensorflow.computation(np.float32, (np.int64, [2]), np.bool_, np.str_)
    def compute(x, y, flag, text):
        texts = tf.stack([text, "b\0c"])
        half = tf.cast(x, tf.float16), tf.cast(x, tf.bfloat16), tf.complex(x, x)
        return x * 2, y + 1, flag, text, texts, half, tf.zeros([0, 3])

    return compute


@case(3, 4)
def python_containers():
    @tff.tensorflow.computation(np.int32, np.int32)
    def compute(x, y):
        return collections.OrderedDict(
            z=Pair(x, y), a=Record(y, x), m=[x, [y]], d={"b": x, "a": y}, e=(), o=(x,)
        )

    return compute


@case([5, 6], Pair(1, 2), collections.OrderedDict(b=np.int32(3), a=4))
def structured_arguments():
    pair = tff.StructWithPythonType([("second", np.int32), ("first", np.int32)], Pair)
    named = collections.OrderedDict(b=np.int32, a=np.int32)

    @tff.tensorflow.computation([np.int32, np.int32], pair, named)
    def compute(x, y, z):
        return x[0] - x[1] + 10 * y.second + 100 * y.first, z, y, x

    return compute


@case()
def no_argument():
    return tff.tensorflow.computation(lambda: (tf.constant([1, 2]), 7, "s"))


@case([1, 2, 3], 10)
def map_broadcast_sum():
    @tff.federated_computation(CLIENT_INTS, SERVER_INT)
    def compute(x, y):
        z = tff.federated_map(add, (x, tff.federated_broadcast(y)))
        return tff.federated_sum(z), z, y, tff.federated_broadcast(y)

    return compute


@case([1, 2, 3])
def minimum_and_maximum():
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return Pair(tff.federated_min(x), tff.federated_max(x))

    return compute


@case(list(FLOATS), [1.0, 2.0, 0.5])
def means():
    @tff.federated_computation(CLIENT_FLOATS, CLIENT_FLOATS)
    def compute(x, w):
        return collections.OrderedDict(
            weighted=tff.federated_mean(x, w), plain=tff.federated_mean(x)
        )

    return compute


@case([collections.OrderedDict(b=1, a=2.0), collections.OrderedDict(b=3, a=4.0)])
def sum_and_zip_of_structures():
    member = collections.OrderedDict(b=np.int32, a=np.float32)

    @tff.federated_computation(tff.FederatedType(member, tff.CLIENTS))
    def compute(x):
        total = tff.federated_sum(x)
        both = tff.federated_zip([total, tff.federated_value(1, tff.SERVER)])
        return both, tff.federated_zip(collections.OrderedDict(z=x, a=x))

    return compute


@case([1, 2, 3, 4])
def aggregate_with_a_zero_that_counts():
    zero = tff.tensorflow.computation(lambda: (np.int32(100), np.int32(0)))
    state = (np.int32, np.int32)

    @tff.tensorflow.computation(state, np.int32)
    def accumulate(s, x):
        return 2 * s[0] + x, s[1] + 1

    @tff.tensorflow.computation(state, state)
    def merge(a, b):
        return a[0] + b[0], a[1] + b[1]

    @tff.tensorflow.computation(state)
    def report(s):
        return Pair(s[0], s[1])

    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_aggregate(x, zero(), accumulate, merge, report)

    return compute


@case([1, 2, 3])
def aggregates_that_need_aggregates():
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        doubled = tff.federated_map(add, (x, x))
        first = tff.federated_sum(doubled)
        shifted = tff.federated_map(add, (doubled, tff.federated_broadcast(first)))
        second = tff.federated_max(shifted)
        third = tff.federated_map(add, (shifted, tff.federated_broadcast(second)))
        return tff.federated_sum(third), doubled, third

    return compute


@case([4, 5], 6)
def values_at_both_places():
    increment_three = tff.tensorflow.computation(lambda: tf.constant(4))

    @tff.federated_computation(CLIENT_INTS, np.int32)
    def compute(x, y):
        everywhere = tff.federated_value(y, tff.CLIENTS)
        constant = tff.federated_eval(increment_three, tff.CLIENTS)
        return (
            tff.federated_map(add, (x, everywhere)),
            tff.federated_map(add, (constant, everywhere)),
            tff.federated_sum(everywhere),
            tff.federated_value([1, 2.0], tff.SERVER),
            tff.federated_eval(increment_three, tff.SERVER),
            increment(increment(y)),
        )

    return compute


@case([1, 2], 5)
def lambdas_that_capture():
    @tff.federated_computation(CLIENT_INTS, np.int32)
    def compute(x, y):
        shift = increment(y)

        @tff.federated_computation(np.int32)
        def shifted(v):
            return add(increment(v), v), v

        z = tff.federated_map(shifted, x)
        return z, tff.federated_map(add, (x, tff.federated_value(shift, tff.CLIENTS)))

    return compute


@case([[0, 2], [1, 1], [2, 0]], ["a", "b", "c"])
def select():
    keys = tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS)
    words = tff.FederatedType(tff.TensorType(np.str_, [3]), tff.SERVER)

    @tff.tensorflow.computation(tff.TensorType(np.str_, [3]), np.int32)
    def pick(words, key):
        return collections.OrderedDict(key=key, word=tf.gather(words, key))

    joined = tff.tensorflow.computation(
        lambda ds: ds.reduce("", lambda s, x: s + x["word"]),
        tff.SequenceType(collections.OrderedDict(key=np.int32, word=np.str_)),
    )

    @tff.federated_computation(keys, words)
    def compute(keys, words):
        top = tff.federated_value(2, tff.SERVER)
        parts = tff.federated_select(keys, top, words, pick)
        secret = tff.federated_secure_select(keys, top, words, pick)
        return tff.federated_map(joined, parts), tff.federated_map(joined, secret)

    return compute


@case([1, 2, 3])
def secure_sums():
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        pair = tff.federated_zip(collections.OrderedDict(a=x, b=x))
        return (
            tff.federated_secure_sum(x, 10),
            tff.federated_secure_sum_bitwidth(x, 4),
            tff.federated_secure_sum(pair, 10),
        )

    return compute


SEQUENCE = tff.SequenceType(collections.OrderedDict(b=np.int32, a=np.float32))


def examples(n):
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            b=np.arange(n, dtype=np.int32), a=np.arange(n, dtype=np.float32) / 2
        )
    )


@case(examples(4), [collections.OrderedDict(b=1, a=2.0)])
def sequences_in_and_out():
    @tff.tensorflow.computation(SEQUENCE, SEQUENCE)
    def compute(x, y):
        return x.concatenate(y).map(lambda e: (e["b"], e["a"] + 1.0)), y

    return compute


@case([3, 4, 5])
def sequence_reduce():
    @tff.federated_computation(tff.SequenceType(np.int32))
    def compute(x):
        return tff.sequence_reduce(x, 100, add)

    return compute


@case([examples(6).shuffle(6, seed=1), examples(3)])
def seeded_shuffles_start_over():
    in_order = tff.tensorflow.computation(
        lambda ds: ds.reduce(np.int32(0), lambda s, e: 10 * s + e["b"]), SEQUENCE
    )

    @tff.federated_computation(tff.FederatedType(SEQUENCE, tff.CLIENTS))
    def compute(x):
        return tff.federated_map(in_order, x)

    return compute


@case(["a", "c"], [1, 2])
def variables_and_tables_start_anew():
    @tff.tensorflow.computation(np.str_, np.int64)
    def local(word, amount):
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                ["a", "b"], tf.constant([1, 2], "int64")
            ),
            default_value=-1,
        )
        seen = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        before = seen.lookup(word)
        counter = tf.Variable(10 * amount)
        with tf.control_dependencies([before]):
            inserted = seen.insert(word, amount)
        with tf.control_dependencies([inserted]):
            count = counter.assign_add(table.lookup(word))
            return count, before, seen.lookup(word), seen.size()

    @tff.federated_computation(
        tff.FederatedType(np.str_, tff.CLIENTS),
        tff.FederatedType(np.int64, tff.CLIENTS),
    )
    def compute(words, amounts):
        return tff.federated_map(local, (words, amounts))

    return compute


@case([3, 4])
def queues_start_anew():
    @tff.tensorflow.computation(np.int32)
    def local(x):
        queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
        with tf.control_dependencies([queue.enqueue(x)]):
            size = queue.size()
        with tf.control_dependencies([size]):
            return size, queue.dequeue() + 1

    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_map(local, x)

    return compute


@case([1, 2], 3)
def nested_and_repeated_calls():
    @tff.federated_computation(CLIENT_INTS, SERVER_INT)
    def once(x, y):
        z = tff.federated_map(add, (x, tff.federated_broadcast(y)))
        return collections.OrderedDict(x=z, y=tff.federated_sum(z))

    @tff.federated_computation(CLIENT_INTS, SERVER_INT)
    def compute(x, y):
        first = once(x, y)
        second = once(first["x"], first["y"])
        return once(second["x"], second["y"]), first

    return compute


@case([np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])])
def ragged_client_shapes():
    member = tff.TensorType(np.float32, [None, 2])
    column_sums = tff.tensorflow.computation(lambda v: tf.reduce_sum(v, 0), member)

    @tff.federated_computation(tff.FederatedType(member, tff.CLIENTS))
    def compute(x):
        return x, tff.federated_sum(tff.federated_map(column_sums, x))

    return compute


@case(
    tff.framework.DataDescriptor(
        tff.federated_computation(
            lambda x: tff.federated_map(increment, x), CLIENT_INTS
        ),
        [1, 2, 3],
        CLIENT_INTS,
        3,
    )
)
def described_data():
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_sum(x), x

    return compute


@case([])
def no_clients():
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_sum(tff.federated_map(increment, x))

    return compute


@pytest.mark.parametrize("name", CASES)
def test_same_result(name, native_plain_context, in_process_context, run_on, same):
    make, arguments = CASES[name]
    computation = make()
    expected = run_on(native_plain_context, computation, *arguments)
    # Twice: nothing of a call may be left for the next.
    for _ in range(2):
        same(run_on(in_process_context, computation, *arguments), expected)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (np.int32, 7),
        (np.int32, np.int64(7)),
        (np.int32, np.int16(7)),
        (np.int32, 2**31),
        (np.int32, 7.0),
        (np.int32, True),
        (np.uint8, 255),
        (np.uint8, -1),
        (np.float32, 7),
        (np.float32, 0.1),
        (np.float32, 1e300),
        (np.float32, np.float64(0.5)),
        (np.float64, np.float32(0.5)),
        (np.bool_, 1),
        (np.str_, "a"),
        (np.str_, b"a"),
        (np.str_, 1),
        ((np.int32, [2]), [1, 2]),
        ((np.int32, [2]), (1, 2)),
        ((np.int32, [2]), [1, 2.5]),
        ((np.int32, [2]), [1, 2, 3]),
        ((np.int32, [None]), np.int32([1, 2, 3])),
        ((np.int32, [None]), np.int32([[1]])),
        ((np.str_, [2]), ["a", "b"]),
    ],
    ids=repr,
)
def test_same_arguments_accepted(
    type_, value, native_plain_context, in_process_context, run_on, same
):
    identity = tff.tensorflow.computation(lambda x: x, tff.types.to_type(type_))
    try:
        expected = run_on(native_plain_context, identity, value)
    except (TypeError, ValueError):
        with pytest.raises(TypeError):
            run_on(in_process_context, identity, value)
    else:
        same(run_on(in_process_context, identity, value), expected)
