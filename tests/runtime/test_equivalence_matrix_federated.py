"""Every federated intrinsic gives the same value on every runtime."""

import collections
import typing

import grpc
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


@tff.tensorflow.computation(np.int32, np.int32)
def add(x, y):
    return x + y


@tff.tensorflow.computation(np.int32)
def increment(x):
    return x + 1


def test_map_broadcast_sum(agree_twice):
    @tff.federated_computation(CLIENT_INTS, SERVER_INT)
    def compute(x, y):
        z = tff.federated_map(add, (x, tff.federated_broadcast(y)))
        return tff.federated_sum(z), z, y, tff.federated_broadcast(y)

    agree_twice(compute, [1, 2, 3], 10)


def test_minimum_and_maximum(agree_twice):
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return Pair(tff.federated_min(x), tff.federated_max(x))

    agree_twice(compute, [1, 2, 3])


def test_means(agree_twice):
    @tff.federated_computation(CLIENT_FLOATS, CLIENT_FLOATS)
    def compute(x, w):
        return collections.OrderedDict(
            weighted=tff.federated_mean(x, w), plain=tff.federated_mean(x)
        )

    agree_twice(compute, list(FLOATS), [1.0, 2.0, 0.5])


def test_sum_and_zip_of_structures(agree_twice):
    member = collections.OrderedDict(b=np.int32, a=np.float32)

    @tff.federated_computation(tff.FederatedType(member, tff.CLIENTS))
    def compute(x):
        total = tff.federated_sum(x)
        both = tff.federated_zip([total, tff.federated_value(1, tff.SERVER)])
        return both, tff.federated_zip(collections.OrderedDict(z=x, a=x))

    agree_twice(
        compute,
        [collections.OrderedDict(b=1, a=2.0), collections.OrderedDict(b=3, a=4.0)],
    )


def test_aggregate_with_a_zero_that_counts(agree_twice):
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

    agree_twice(compute, [1, 2, 3, 4])


def test_aggregates_that_need_aggregates(agree_twice):
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        doubled = tff.federated_map(add, (x, x))
        first = tff.federated_sum(doubled)
        shifted = tff.federated_map(add, (doubled, tff.federated_broadcast(first)))
        second = tff.federated_max(shifted)
        third = tff.federated_map(add, (shifted, tff.federated_broadcast(second)))
        return tff.federated_sum(third), doubled, third

    agree_twice(compute, [1, 2, 3])


def test_values_at_both_places(agree_twice):
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

    agree_twice(compute, [4, 5], 6)


def test_lambdas_that_capture(agree_twice):
    @tff.federated_computation(CLIENT_INTS, np.int32)
    def compute(x, y):
        shift = increment(y)

        @tff.federated_computation(np.int32)
        def shifted(v):
            return add(increment(v), v), v

        z = tff.federated_map(shifted, x)
        return z, tff.federated_map(add, (x, tff.federated_value(shift, tff.CLIENTS)))

    agree_twice(compute, [1, 2], 5)


def test_select(agree_twice):
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

    agree_twice(compute, [[0, 2], [1, 1], [2, 0]], ["a", "b", "c"])


def test_secure_sums_refuse_more_than_their_maximum(
    native_plain_context, in_process_context, cluster_context, run_on
):
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_secure_sum(x, 3)

    message = "client value larger than maximum specified for secure sum"
    for context in (native_plain_context, in_process_context, cluster_context):
        with pytest.raises(grpc.RpcError, match=message) as error:
            run_on(context, compute, [3, 4])
        ours = context is not native_plain_context
        assert isinstance(error.value, tf.errors.InvalidArgumentError) == ours


def test_secure_sums(agree_twice):
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        pair = tff.federated_zip(collections.OrderedDict(a=x, b=x))
        return (
            tff.federated_secure_sum(x, 10),
            tff.federated_secure_sum_bitwidth(x, 4),
            tff.federated_secure_sum(pair, 10),
        )

    agree_twice(compute, [1, 2, 3])


def test_nested_and_repeated_calls(agree_twice):
    @tff.federated_computation(CLIENT_INTS, SERVER_INT)
    def once(x, y):
        z = tff.federated_map(add, (x, tff.federated_broadcast(y)))
        return collections.OrderedDict(x=z, y=tff.federated_sum(z))

    @tff.federated_computation(CLIENT_INTS, SERVER_INT)
    def compute(x, y):
        first = once(x, y)
        second = once(first["x"], first["y"])
        return once(second["x"], second["y"]), first

    agree_twice(compute, [1, 2], 3)


def test_described_data(agree_twice):
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_sum(x), x

    agree_twice(
        compute,
        tff.framework.DataDescriptor(
            tff.federated_computation(
                lambda x: tff.federated_map(increment, x), CLIENT_INTS
            ),
            [1, 2, 3],
            CLIENT_INTS,
            3,
        ),
    )


def test_no_clients(agree_twice):
    @tff.federated_computation(CLIENT_INTS)
    def compute(x):
        return tff.federated_sum(tff.federated_map(increment, x))

    agree_twice(compute, [])
