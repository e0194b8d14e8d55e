"""What the in-process context owes beyond equal results."""

import asyncio
import collections
import concurrent.futures
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime import in_process

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
CLIENT_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


@pytest.fixture
def context():
    return in_process.create_in_process_context()


@pytest.fixture
def installed(context):
    with tff.framework.get_context_stack().install(context):
        yield context


@tff.federated_computation(CLIENT_INTS)
def total(x):
    return tff.federated_sum(x)


@tff.tensorflow.computation(np.float32)
def noisy(x):
    return x + tf.random.normal([1000])


@tff.federated_computation(CLIENT_FLOATS)
def noise_everywhere(x):
    at_clients = tff.federated_map(noisy, x)
    at_server = tff.federated_map(noisy, tff.federated_sum(x))
    return at_clients, at_server


def assert_independent_standard_normals(samples):
    samples = np.stack(samples)
    assert len(np.unique(samples)) > 0.99 * samples.size
    correlations = np.corrcoef(samples)[np.triu_indices(len(samples), 1)]
    # A correlation of 1000 independent pairs has standard deviation 1000 ** -0.5.
    assert np.abs(correlations).max() < 5.5 / np.sqrt(1000)
    assert abs(samples.mean()) < 5 / np.sqrt(samples.size)
    assert abs(samples.std() - 1) < 5 / np.sqrt(2 * samples.size)


class TestRandomness:
    def test_noise_is_fresh_for_every_client_round_and_context(self, installed):
        samples = []
        for _ in range(4):
            at_clients, at_server = noise_everywhere([0.0] * 5)
            samples += [*at_clients, at_server]
        with tff.framework.get_context_stack().install(
            in_process.create_in_process_context()
        ):
            samples += noise_everywhere([0.0] * 5)[0]
        assert_independent_standard_normals(samples)

    def test_a_global_seed_does_not_repeat_the_noise(self, installed):
        samples = []
        for _ in range(3):
            tf.random.set_seed(7)
            at_clients, at_server = noise_everywhere([0.0, 0.0])
            samples += [*at_clients, at_server]
        assert_independent_standard_normals(samples)

    def test_noise_differs_between_processes_with_the_same_seed(self):
        program = (
            "import numpy as np, tensorflow as tf, tensorflow_federated as tff\n"
            "from tff_hdp.runtime import in_process\n"
            "tf.random.set_seed(7)\n"
            "in_process.set_in_process_context()\n"
            "f = tff.tensorflow.computation(lambda: tf.random.normal([1000]))\n"
            "print(f().tobytes().hex())\n"
        )
        samples = [
            np.frombuffer(bytes.fromhex(run_python(program)), np.float32)
            for _ in range(2)
        ]
        assert_independent_standard_normals(samples)

    def test_dp_noise_of_tff_differs_between_rounds(self, installed):
        factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=1.0, clients_per_round=1.0, clip=1.0
        )
        process = factory.create(tff.types.to_type((np.float32, [1000])))
        state, samples = process.initialize(), []
        for _ in range(3):
            output = process.next(state, [np.zeros(1000, np.float32)] * 2)
            state = output.state
            samples.append(output.result)
        assert_independent_standard_normals(samples)


class TestResources:
    def test_memory_is_bounded_over_rounds_and_cohort_sizes(self, installed):
        spec = collections.OrderedDict(
            x=tf.TensorSpec([None, 50], tf.float32), y=tf.TensorSpec([None], tf.int32)
        )

        def model():
            return tff.learning.models.from_keras_model(
                tf.keras.Sequential(
                    [
                        tf.keras.layers.InputLayer((50,)),
                        tf.keras.layers.Dense(100, "relu"),
                        tf.keras.layers.Dense(3),
                    ]
                ),
                loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                input_spec=spec,
            )

        process = tff.learning.algorithms.build_unweighted_fed_avg(
            model,
            tff.learning.optimizers.build_sgdm(0.1),
            model_aggregator=tff.learning.dp_aggregator(0.1, 10.0),
        )
        generator = np.random.default_rng(0)

        def examples():
            columns = collections.OrderedDict(
                x=generator.normal(size=(20, 50)).astype(np.float32),
                y=generator.integers(3, size=20).astype(np.int32),
            )
            return tf.data.Dataset.from_tensor_slices(columns).batch(10)

        state = process.initialize()
        for number in range(300):
            cohort = [examples() for _ in range(1 + number % 9)]
            state = process.next(state, cohort).state
            if number == 50:
                gc.collect()
                before = resident_megabytes()
        gc.collect()
        assert resident_megabytes() - before < 25

    def test_forgotten_computations_are_released(self, installed):
        def constant(number):
            return tff.tensorflow.computation(lambda: tf.constant(number))

        for number in range(300):
            assert constant(number)() == number
        gc.collect()
        assert len(installed._executables) <= 130
        assert len(installed._by_identity) <= 2

    def test_an_equal_computation_is_compiled_once(self, installed):
        first = tff.tensorflow.computation(lambda x: x + 1, np.int32)
        second = tff.framework.deserialize_computation(
            tff.framework.serialize_computation(first)
        )
        assert first(1) == second(1) == 2
        assert len(installed._executables) == 1

    def test_no_process_port_or_file(self, installed, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

        def sockets():
            links = (os.readlink(f"/proc/self/fd/{fd}") for fd in open_files())
            return [link for link in links if link.startswith("socket:")]

        def open_files():
            return [fd for fd in os.listdir("/proc/self/fd") if is_link(fd)]

        def is_link(fd):
            return os.path.lexists(f"/proc/self/fd/{fd}")

        def children():
            path = f"/proc/self/task/{os.getpid()}/children"
            with open(path) as listing:
                return listing.read().split()

        before = sockets(), children()
        assert total([1, 2, 3]) == 6
        assert (sockets(), children()) == before
        assert not multiprocessing.active_children()
        assert not list(tmp_path.iterdir())


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

        with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
            compute([1, 2, 5, *[0] * 30])
        assert compute([1, 2]) == 3


class TestDevices:
    def test_clients_go_round_robin_over_devices(self):
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

    def test_unknown_device_is_named(self):
        with pytest.raises(ValueError, match=r"'TPU:9'.*TensorFlow has.*CPU:0"):
            in_process.create_in_process_context(devices=["TPU:9"])

    @pytest.mark.parametrize(
        "options",
        [
            {"devices": []},
            {"clients_at_once": 0},
            {"default_num_clients": -1},
            {"intra_op_threads": 0},
        ],
    )
    def test_options_out_of_range(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
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
        with pytest.raises(TypeError, match=r"Dataset or a list.*found a int"):
            count(3)

    def test_cohorts_of_different_sizes(self, installed):
        @tff.federated_computation(CLIENT_INTS, CLIENT_INTS)
        def compute(x, y):
            return tff.federated_sum(x), tff.federated_sum(y)

        with pytest.raises(ValueError, match="number of clients: found 2, 3"):
            compute([1, 2], [1, 2, 3])

    def test_default_number_of_clients(self):
        one = tff.tensorflow.computation(lambda: tf.constant(1))

        @tff.federated_computation
        def count():
            return tff.federated_sum(tff.federated_eval(one, tff.CLIENTS))

        context = in_process.create_in_process_context(default_num_clients=4)
        assert context.invoke(count, None) == 4


def test_many_clients_hold_little_memory(installed):
    """The values of 400 clients, 2 MB each, are summed without being held."""
    size = 500_000

    @tff.tensorflow.computation(np.float32)
    def blow_up(x):
        return tf.fill([size], x)

    @tff.federated_computation(CLIENT_FLOATS)
    def compute(x):
        return tff.federated_sum(tff.federated_map(blow_up, x))

    compute([1.0])
    before = resident_megabytes(peak=True)
    assert compute([1.0] * 400)[0] == 400
    assert resident_megabytes(peak=True) - before < 100


def run_python(program):
    return subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.strip()


def resident_megabytes(*, peak=False):
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM" if peak else "VmRSS"].split()[0]) / 1024
