"""Threads, programs, devices and errors of the in-process context."""

import asyncio
import collections
import concurrent.futures
import math
import pickle
import typing

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.errors import ArgumentError
from tff_hdp.runtime import in_process

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)


@tff.federated_computation(CLIENT_INTS)
def total(x):
    return tff.federated_sum(x)


class TestConcurrency:
    def test_calls_from_threads_do_not_mix(self, context):
        @tff.tensorflow.computation(np.int32)
        def count_up(x):
            counter = tf.Variable(0)
            step = tf.while_loop(
                lambda i: i < 50,
                lambda i: [i + 1 + 0 * counter.assign_add(x)],
                [tf.constant(0)],
            )
            with tf.control_dependencies(step):
                return counter.read_value()

        @tff.federated_computation(CLIENT_INTS)
        def compute(x):
            y = tff.federated_map(count_up, x)
            return tff.federated_sum(y), y

        def call(seed):
            x = [seed + i for i in range(seed % 5 + 1)]
            result = context.invoke(compute, x)
            expected = [50 * value for value in x]
            return result[1] == expected and result[0] == sum(expected)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(call, range(60)))

    def test_what_makes_clients_data_calls_a_computation_itself(self, run_python):
        program = """
import signal
from tff_hdp.runtime import in_process
context = in_process.set_in_process_context(clients_at_once=2)
import numpy as np, tensorflow as tf, tensorflow_federated as tff
SEQUENCE = tff.SequenceType(np.int32)
negated = tff.tensorflow.computation(lambda x: -x, np.int32)

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
    return tff.federated_sum(tff.federated_map(negated, x))

added = tff.tensorflow.computation(
    lambda rows: rows.reduce(0, lambda sum, row: sum + row), SEQUENCE
)

@tff.federated_computation(tff.FederatedType(SEQUENCE, tff.CLIENTS))
def compute(rows):
    return tff.federated_map(added, rows)

def rows():
    # In threads of TensorFlow's, for which TFF has other contexts.
    yield context.invoke(total, [1, 2, 3])
    yield context.invoke(total, [])

data = tf.data.Dataset.from_generator(
    rows, output_signature=tf.TensorSpec([], tf.int32)
)
signal.alarm(60)  # Ends a process whose threads wait for each other.
assert compute([data] * 5) == [-6] * 5
print("done")
"""
        assert run_python(program) == "done"

    def test_program_logic_awaits(self):
        context = in_process.create_async_in_process_context()
        with tff.framework.get_context_stack().install(
            tff.program.NativeFederatedContext(context)
        ):

            async def program():
                values = [total([i, 1]) for i in range(5)]
                return await asyncio.gather(*(v.get_value() for v in values))

            assert asyncio.run(program()) == [1, 2, 3, 4, 5]

    def test_async_context_is_awaitable_directly(self):
        context = in_process.create_async_in_process_context()
        with tff.framework.get_context_stack().install(context):

            async def program():
                return await asyncio.gather(total([1, 2]), total([3]))

            assert asyncio.run(program()) == [3, 3]

    def test_a_failing_client_fails_the_call_and_nothing_else(self, installed):
        @tff.tensorflow.computation(np.int32)
        def check(x):
            with tf.control_dependencies([tf.debugging.assert_less(x, 3, "too large")]):
                return tf.identity(x)

        @tff.federated_computation(CLIENT_INTS)
        def compute(x):
            return tff.federated_sum(tff.federated_map(check, x))

        # TensorFlow's own error, which TFF's worker sends as the other.
        for kind in (tf.errors.InvalidArgumentError, grpc.RpcError):
            with pytest.raises(kind, match="too large"):
                compute([1, 2, 5, *[0] * 30])
        assert compute([1, 2]) == 3

    def test_an_error_of_a_worker_says_what_those_of_grpc_do(self, installed):
        @tff.tensorflow.computation(np.int32)
        def check(x):
            with tf.control_dependencies([tf.debugging.assert_less(x, 3, "too large")]):
                return tf.identity(x)

        with pytest.raises(grpc.RpcError) as caught:
            check(5)
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert isinstance(error, tf.errors.InvalidArgumentError)
            assert isinstance(error, grpc.RpcError)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "too large" in error.details()

    def test_a_dataset_whose_named_elements_lie_in_another_order_is_refused(
        self, installed
    ):
        """As TFF's own context does; taken as it is, its fields would be swapped."""

        class Batch(typing.NamedTuple):
            x: typing.Any
            target: typing.Any

        class Sorted(typing.NamedTuple):
            target: typing.Any
            x: typing.Any

        def slope(kind):
            fields = collections.OrderedDict(
                (name, np.float32) for name in kind._fields
            )

            @tff.tensorflow.computation(tff.SequenceType(fields))
            def fit(ds):
                return ds.reduce(0.0, lambda s, e: s + e["target"] / e["x"])

            return fit

        x = np.float32([1.0, 2.0])
        slices = tf.data.Dataset.from_tensor_slices
        for kind in (Batch, Sorted):
            named = collections.OrderedDict(
                (name, {"x": x, "target": 3 * x}[name]) for name in kind._fields
            )
            assert slope(kind)(slices(named)) == 6.0
        assert slope(Sorted)(slices(Sorted(x=x, target=3 * x))) == 6.0
        with pytest.raises(TypeError, match="lie in another order"):
            slope(Batch)(slices(Batch(x=x, target=3 * x)))
        nested = tff.SequenceType([[("x", np.float32), ("target", np.float32)]])
        count = tff.tensorflow.computation(
            lambda ds: ds.reduce(0, lambda n, _: n + 1), nested
        )
        with pytest.raises(TypeError, match="lie in another order"):
            count(slices((Batch(x=x, target=3 * x),)))


class TestDevices:
    def test_clients_go_round_robin_over_devices(self, run_python):
        program = """
import numpy as np, tensorflow as tf, tensorflow_federated as tff
from tff_hdp.runtime import in_process
from tff_hdp.runtime.in_process import stages

cpu = tf.config.list_physical_devices("CPU")[0]
three = [tf.config.LogicalDeviceConfiguration()] * 3
tf.config.set_logical_device_configuration(cpu, three)
in_process.set_in_process_context(devices=["CPU:1", "/device:CPU:2"])
SEQUENCE = tff.SequenceType(np.float32)

@tff.tensorflow.computation(SEQUENCE, np.float32)
def work(data, w):
    v = tf.Variable(w)
    with tf.control_dependencies([v.initializer]):
        s = data.reduce(0.0, lambda s, x: s + v.read_value() * x)
    return s, tf.random.normal([])

first = tff.tensorflow.computation(lambda p: p[0], work.type_signature.result)

@tff.federated_computation(
    tff.FederatedType(SEQUENCE, tff.CLIENTS), tff.FederatedType(np.float32, tff.SERVER)
)
def compute(data, w):
    out = tff.federated_map(work, (data, tff.federated_broadcast(w)))
    return tff.federated_sum(tff.federated_map(first, out)), out

used = set()
call = stages.Function.__call__

def spy(self, inputs):
    result = call(self, inputs)
    used.update(t.device[-5:] for group in result.values() for t in group)
    return result

stages.Function.__call__ = spy
data = [
    tf.data.Dataset.range(n + 1).map(lambda x: tf.cast(x, tf.float32)) for n in range(6)
]
total, out = compute(data, 2.0)
assert total == 2.0 * sum(n * (n + 1) / 2 for n in range(6)), total
assert len({float(noise) for _, noise in out}) == 6
assert used == {"CPU:1", "CPU:2"}, used
print("done")
"""
        assert run_python(program) == "done"

    def test_data_sets_are_made_by_the_processor(self, run_python):
        program = """
import numpy as np, tensorflow as tf, tensorflow_federated as tff
from tff_hdp.runtime import in_process

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
in_process.set_in_process_context(devices=["CPU:1"])

@tff.tensorflow.computation(np.int64, (np.int64, [2]))
def rows(x, y):
    return tf.data.Dataset.from_tensor_slices((y + x, y)), x

@tff.federated_computation(
    tff.FederatedType(np.int64, tff.CLIENTS),
    tff.FederatedType((np.int64, [2]), tff.CLIENTS),
)
def compute(x, y):
    return tff.federated_map(rows, (x, y))

both = [rows(2, [3, 4])[0], *(data for data, _ in compute([1, 2], [[3, 4], [5, 6]]))]
for data in both:
    assert data._variant_tensor.device.endswith("CPU:0"), data._variant_tensor.device
    assert len(list(data)) == 2
print("done")
"""
        assert run_python(program) == "done"

    def test_unknown_device_is_named(self):
        message = r"devices\[0\] is TPU:9; allowed: .*CPU:0"
        with pytest.raises(ArgumentError, match=message):
            in_process.create_in_process_context(devices=["TPU:9"])
        with pytest.raises(ArgumentError, match=r"devices\[1\] is 3; allowed: .*CPU:0"):
            in_process.create_in_process_context(devices=["cpu:0", 3])

    @pytest.mark.parametrize(
        "options",
        [
            {"devices": []},
            {"devices": 5},
            {"devices": "CPU:0"},
            {"clients_at_once": 0},
            # Of that many, none would ever start.
            {"clients_at_once": math.nan},
            {"clients_at_once": 1.5},
            {"clients_at_once": "2"},
            {"default_num_clients": -1},
            {"default_num_clients": True},
            {"intra_op_threads": 0},
        ],
    )
    def test_options_out_of_range(self, options):
        with pytest.raises(ArgumentError, match=f"^{next(iter(options))} is "):
            in_process.create_in_process_context(**options)


class TestErrors:
    @pytest.mark.parametrize(
        ("argument", "error", "message"),
        [
            (3, TypeError, "a list with each client's value.*found a int"),
            ([1.5], TypeError, "type int32, found one of dtype float64: 1.5"),
            ([[1, 2]], TypeError, r"type int32, found one of shape \(2,\)"),
            ([2**40], TypeError, "type int32, found one of dtype int64"),
            (["1"], TypeError, "type int32, found one of dtype <U1"),
        ],
    )
    def test_wrong_client_values(self, installed, argument, error, message):
        with pytest.raises(error, match=message):
            total(argument)

    def test_wrong_structure(self, installed):
        pair = collections.OrderedDict(a=np.int32, b=np.int32)
        identity = tff.tensorflow.computation(lambda x: x, pair)
        with pytest.raises(TypeError, match="element 'a', found 'c'"):
            identity(collections.OrderedDict(c=1, b=2))
        with pytest.raises(TypeError, match=r"2 elements.*found 1"):
            identity([1])

    def test_wrong_dataset(self, installed):
        count = tff.tensorflow.computation(
            lambda x: x.reduce(np.int32(0), lambda s, _: s + 1),
            tff.SequenceType(np.int32),
        )
        with pytest.raises(TypeError, match=r"type int32\*, found one of int64\*"):
            count(tf.data.Dataset.range(3))
        # TFF's worker makes 0 of the first, 1 of True and 0 of None.
        for lost in (np.int64(2**40), 1.0, True, None, "1"):
            with pytest.raises(TypeError, match="expected a value of type int32"):
                count([1, lost])
        with pytest.raises(TypeError, match=r"Dataset or a list.*found a int"):
            count(3)

    def test_cohorts_of_different_sizes(self, installed):
        @tff.federated_computation(CLIENT_INTS, CLIENT_INTS)
        def compute(x, y):
            return tff.federated_sum(x), tff.federated_sum(y)

        with pytest.raises(
            ValueError, match=r"^Conflicting cardinalities.*: found 2, 3"
        ):
            compute([1, 2], [1, 2, 3])

    def test_default_number_of_clients(self):
        one = tff.tensorflow.computation(lambda: tf.constant(1))

        @tff.federated_computation
        def count():
            return tff.federated_sum(tff.federated_eval(one, tff.CLIENTS))

        context = in_process.create_in_process_context(default_num_clients=4)
        assert context.invoke(count, None) == 4


def test_the_package_installs_it_and_imports_no_tensorflow(start_program):
    program = """
import sys
from tff_hdp import runtime
assert "tensorflow" not in sys.modules
runtime.set_in_process_context()
import numpy as np, tensorflow_federated as tff
@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
    return tff.federated_sum(x)
assert total([1, 2, 3]) == 6
print("done")
"""
    done = start_program("-c", program)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_forked_process_is_told_so_instead_of_waiting_for_ever(run_python):
    program = """
import multiprocessing, signal
from tff_hdp.runtime import in_process
in_process.set_in_process_context()
import numpy as np, tensorflow_federated as tff

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
    return tff.federated_sum(x)

def child():
    signal.alarm(30)
    try:
        total([1, 2, 3])
    except RuntimeError as error:
        assert "start processes by `spawn`" in str(error)

assert total([1, 2, 3]) == 6
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0, process.exitcode
print("done")
"""
    assert run_python(program) == "done"


def test_the_package_has_no_other_name():
    from tff_hdp import runtime

    with pytest.raises(AttributeError, match="set_in_process_contxt"):
        _ = runtime.set_in_process_contxt
