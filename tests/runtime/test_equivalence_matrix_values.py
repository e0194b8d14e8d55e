"""Values, sequences and state are the same on every runtime."""

import collections
import typing

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)


class Pair(typing.NamedTuple):
    second: typing.Any
    first: typing.Any


@attrs.define
class Record:
    second: typing.Any
    first: typing.Any


@tff.tensorflow.computation(np.int32, np.int32)
def add(x, y):
    return x + y


def test_scalars_arrays_and_strings(agree_twice):
    @tff.tensorflow.computation(np.float32, (np.int64, [2]), np.bool_, np.str_)
    def compute(x, y, flag, text):
        texts = tf.stack([text, "b\0c"])
        half = tf.cast(x, tf.float16), tf.cast(x, tf.bfloat16), tf.complex(x, x)
        return x * 2, y + 1, flag, text, texts, half, tf.zeros([0, 3])

    agree_twice(compute, np.float32(2.0), [1, 2], True, "text")


def test_python_containers(agree_twice):
    @tff.tensorflow.computation(np.int32, np.int32)
    def compute(x, y):
        return collections.OrderedDict(
            z=Pair(x, y), a=Record(y, x), m=[x, [y]], d={"b": x, "a": y}, e=(), o=(x,)
        )

    agree_twice(compute, 3, 4)


def test_structured_arguments(agree_twice):
    pair = tff.StructWithPythonType([("second", np.int32), ("first", np.int32)], Pair)
    named = collections.OrderedDict(b=np.int32, a=np.int32)

    @tff.tensorflow.computation([np.int32, np.int32], pair, named)
    def compute(x, y, z):
        return x[0] - x[1] + 10 * y.second + 100 * y.first, z, y, x

    agree_twice(
        compute, [5, 6], Pair(1, 2), collections.OrderedDict(b=np.int32(3), a=4)
    )


def test_no_argument(agree_twice):
    agree_twice(tff.tensorflow.computation(lambda: (tf.constant([1, 2]), 7, "s")))


SEQUENCE = tff.SequenceType(collections.OrderedDict(b=np.int32, a=np.float32))


def examples(n):
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            b=np.arange(n, dtype=np.int32), a=np.arange(n, dtype=np.float32) / 2
        )
    )


def test_sequences_in_and_out(agree_twice):
    @tff.tensorflow.computation(SEQUENCE, SEQUENCE)
    def compute(x, y):
        return x.concatenate(y).map(lambda e: (e["b"], e["a"] + 1.0)), y

    agree_twice(compute, examples(4), [collections.OrderedDict(b=1, a=2.0)])


@pytest.mark.parametrize(
    ("dtype", "elements"),
    [
        (np.int32, [np.int64(1), np.int64(100565241), np.int16(-3)]),
        (np.int32, np.arange(3)[[2, 0, 1]].tolist() + list(np.arange(3))),
        (np.float32, [np.float64(1.5), 2, np.int32(3), np.float32(0.5)]),
        (np.float64, [np.float32(1.5), np.uint8(2)]),
    ],
)
def test_listed_numbers_of_other_dtypes(agree_twice, dtype, elements):
    @tff.tensorflow.computation(tff.SequenceType(dtype))
    def total(x):
        return x.reduce(tf.zeros([], dtype), lambda a, b: a + b)

    agree_twice(total, elements)


def test_sequence_reduce(agree_twice):
    @tff.federated_computation(tff.SequenceType(np.int32))
    def compute(x):
        return tff.sequence_reduce(x, 100, add)

    agree_twice(compute, [3, 4, 5])


def test_a_reduction_to_what_grows(agree_twice):
    """TensorFlow's optimiser takes a loop's first shapes for its last ones."""

    @tff.tensorflow.computation(tff.SequenceType(np.int32))
    def compute(numbers):
        first = tf.constant([], tf.int32)
        found = numbers.reduce(first, lambda known, x: tf.concat([known, [x]], 0))
        return tf.reshape(tf.square(found), [tf.size(found), 1])

    agree_twice(compute, [3, 4, 5])


def test_dictionaries_in_a_list_are_taken_by_name(agree_twice):
    record = collections.OrderedDict(second=np.int32, first=np.int32)
    compute = tff.tensorflow.computation(
        lambda ds: ds.reduce(np.int32(0), lambda s, e: 100 * s + e["first"]),
        tff.SequenceType(record),
    )
    agree_twice(compute, [{"first": 10, "second": 1}, {"second": 2, "first": 20}])


def test_texts_in_a_list_keep_zeros_at_their_end(agree_twice):
    compute = tff.tensorflow.computation(
        lambda ds: ds.reduce("", lambda s, e: tf.strings.join([s, e, "."])),
        tff.SequenceType(np.str_),
    )
    agree_twice(compute, ["a\0", "bcd"])


@pytest.mark.parametrize(
    "elements",
    [
        [["a\0", "bc"], ("d", "e\0\0")],
        [[b"a\0", b"bc"]],
        [[np.str_("a\0"), "bc"]],
        # Which lost them before they came.
        [np.array(["a\0", "bc"])],
        [np.array(["a\0", "bc"], object)],
    ],
    ids=repr,
)
def test_several_texts_in_an_element_keep_zeros_at_their_end(agree_twice, elements):
    compute = tff.tensorflow.computation(
        lambda ds: ds.reduce(
            np.int32(0), lambda s, e: s + tf.reduce_sum(tf.strings.length(e))
        ),
        tff.SequenceType((np.str_, [2])),
    )
    agree_twice(compute, elements)


def test_epoch_after_epoch_over_what_shuffles_by_a_seed(agree):
    @tff.tensorflow.computation(tff.SequenceType(np.int64))
    def epochs(ds):
        seen = tf.constant(0, tf.int64)
        for _ in range(3):
            seen = ds.reduce(seen, lambda s, x: 10 * s + x)
        return seen

    @tff.federated_computation(
        tff.FederatedType(tff.SequenceType(np.int64), tff.CLIENTS)
    )
    def compute(x):
        return tff.federated_map(epochs, x)

    agree(lambda: compute([tf.data.Dataset.range(5).shuffle(5, seed=1)] * 3), times=4)


def test_seeded_shuffles_start_over(agree_twice):
    in_order = tff.tensorflow.computation(
        lambda ds: ds.reduce(np.int32(0), lambda s, e: 10 * s + e["b"]), SEQUENCE
    )

    @tff.federated_computation(tff.FederatedType(SEQUENCE, tff.CLIENTS))
    def compute(x):
        return tff.federated_map(in_order, x)

    agree_twice(compute, [examples(6).shuffle(6, seed=1), examples(3)])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: tf.data.Dataset.range(4).shuffle(4, seed=1).repeat(2),
        lambda: tf.data.Dataset.random(4, rerandomize_each_iteration=True).take(6),
    ],
)
def test_what_is_drawn_by_a_seed_starts_over_at_every_use(agree_twice, draw):
    sequence = tff.SequenceType(np.int64)
    in_order = tff.tensorflow.computation(
        lambda ds: ds.reduce(np.int64(0), lambda s, e: 10 * s + e % 10), sequence
    )

    @tff.tensorflow.computation(sequence, np.int64)
    def and_a_number(ds, x):
        return ds.reduce(x, lambda s, e: 10 * s + e % 10)

    @tff.federated_computation(
        tff.FederatedType(sequence, tff.CLIENTS),
        tff.FederatedType(np.int64, tff.CLIENTS),
        tff.FederatedType(sequence, tff.SERVER),
    )
    def compute(at_clients, numbers, at_server):
        pairs = tff.federated_zip((at_clients, numbers))
        total = tff.federated_sum(tff.federated_map(in_order, at_clients))
        return (
            total,
            tff.federated_map(in_order, at_clients),
            tff.federated_map(and_a_number, pairs),
            tff.federated_map(and_a_number, pairs),
            tff.federated_map(and_a_number, (at_server, total)),
            tff.federated_map(in_order, at_server),
            tff.federated_map(in_order, at_server),
        )

    agree_twice(compute, [draw(), draw()], [3, 4], draw())


def test_variables_and_tables_start_anew(agree_twice):
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

    agree_twice(compute, ["a", "c"], [1, 2])


def test_queues_start_anew(agree_twice):
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

    agree_twice(compute, [3, 4])


def test_every_kind_of_value_at_clients(agree_twice):
    record = collections.OrderedDict(z=tff.TensorType(np.int64, [2]), a=np.bool_)
    words = tff.TensorType(np.str_, [2])

    @tff.tensorflow.computation(np.float32, words, record)
    def local(x, texts, record):
        halves = tf.cast(x, tf.float16), tf.cast(x, tf.float64)
        small = [tf.cast(record["z"], t) for t in (tf.uint8, tf.int8, tf.uint64)]
        rows = tf.data.Dataset.from_tensor_slices((texts, record["z"]))
        return Pair(halves, small), texts, texts[0], tf.zeros([0, 3]), rows, record

    @tff.federated_computation(
        tff.FederatedType(np.float32, tff.CLIENTS),
        tff.FederatedType(words, tff.CLIENTS),
        tff.FederatedType(record, tff.CLIENTS),
    )
    def compute(x, texts, record):
        return tff.federated_map(local, (x, texts, record))

    agree_twice(
        compute,
        [np.float32(2.0), np.float32(-0.5)],
        [np.array([b"a", b"b\0c"], object), np.array([b"", "é".encode()], object)],
        [
            collections.OrderedDict(z=[1, 2], a=True),
            collections.OrderedDict(z=[3, 4], a=False),
        ],
    )


def test_a_computation_in_a_computation_colocates_with_its_argument(agree_twice):
    """`tf.linalg.global_norm` places its sums beside the tensors they are of."""
    pair = [tff.TensorType(np.float32, [2]), np.float32]
    norm = tff.tensorflow.computation(
        lambda x: tf.linalg.global_norm(tf.nest.flatten(x)), pair
    )

    @tff.tensorflow.computation(pair)
    def compute(x):
        return norm(x), norm([tf.constant([3.0, 4.0]), 0.0])

    agree_twice(compute, [np.float32([2, 3]), 6.0])


def test_queues_may_colocate_too(agree_twice):
    norm = tff.tensorflow.computation(lambda x: tf.linalg.global_norm([x]), np.float32)

    @tff.tensorflow.computation(np.float32)
    def compute(x):
        queue = tf.queue.FIFOQueue(10, [tf.float32], [[]])
        with tf.control_dependencies([queue.enqueue(norm(x))]):
            return queue.dequeue()

    agree_twice(compute, np.float32(-3))


def test_ragged_client_shapes(agree_twice):
    member = tff.TensorType(np.float32, [None, 2])
    column_sums = tff.tensorflow.computation(lambda v: tf.reduce_sum(v, 0), member)

    @tff.federated_computation(tff.FederatedType(member, tff.CLIENTS))
    def compute(x):
        return x, tff.federated_sum(tff.federated_map(column_sums, x))

    agree_twice(compute, [np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (np.int32, 7),
        (np.int32, np.int64(7)),
        (np.int32, np.int16(7)),
        # What fits, wherever NumPy would think of a wider or an unsigned type first.
        (np.int32, 100565241),
        (np.int32, 2**31 - 1),
        (np.int32, -(2**31)),
        (np.int32, 2**31),
        (np.int32, -(2**31) - 1),
        (np.int64, 2**63 - 1),
        (np.int64, 2**63),
        (np.int16, 2**15 - 1),
        (np.int16, 2**15),
        (np.uint32, 2**32 - 1),
        (np.uint64, 2**64 - 1),
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
        ((np.int32, [2]), [-1, 2**31 - 1]),
        ((np.int32, [2]), [-1, 2**31]),
        ((np.int32, [2]), [1, 2.5]),
        ((np.int32, [2]), [1, 2, 3]),
        ((np.int32, [None]), np.int32([1, 2, 3])),
        ((np.int32, [None]), np.int32([[1]])),
        ((np.str_, [2]), ["a", "b"]),
        (np.str_, b"a\0b\0\0"),
        (np.str_, np.bytes_(b"\0")),
        (np.int32, b"1"),
        ((np.float32, [2]), [float("nan"), 1e300]),
        ((np.float32, [2]), [float("nan"), -1.5]),
        ((np.float32, [1]), [float("nan")]),
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
