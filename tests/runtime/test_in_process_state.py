"""No call leaves anything behind: fresh noise, bounded memory, no other process."""

import collections
import gc
import multiprocessing
import os
import tempfile
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime import in_process

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
CLIENT_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


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

    def test_noise_differs_between_processes_with_the_same_seed(self, run_python):
        program = (
            "import tensorflow as tf, tensorflow_federated as tff\n"
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
    @pytest.mark.slow
    def test_memory_is_bounded_over_rounds_and_cohort_sizes(
        self, installed, resident_megabytes
    ):
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

    @pytest.mark.parametrize("bound", [False, True])
    def test_clients_data_is_gone_with_the_call_that_used_it(self, installed, bound):
        """Without Python's search for cycles, which programs have look seldom."""
        numbers = tff.SequenceType(np.int64)
        everybody = tff.FederatedType(numbers, tff.CLIENTS)
        function = tff.FunctionType([np.int64, np.int64], np.int64)

        @tff.tensorflow.computation(np.int64, np.int64)
        def add(x, y):
            return x + y

        def summed(data, how):
            one = tff.federated_computation(
                lambda sequence: tff.sequence_reduce(sequence, zero(), how), numbers
            )
            return tff.federated_sum(tff.federated_map(one, data))

        zero = tff.tensorflow.computation(lambda: np.int64(0))
        if bound:
            total = tff.federated_computation(summed, [everybody, function])
        else:
            total = tff.federated_computation(lambda x: summed(x, add), everybody)
        given = [add] if bound else []
        assert total([tf.data.Dataset.range(1)], *given) == 0
        data = [tf.data.Dataset.range(3) for _ in range(2)]
        alive = [weakref.ref(dataset) for dataset in data]
        gc.collect()
        gc.disable()
        try:
            assert total(data, *given) == 6
            del data
            assert [dataset() for dataset in alive] == [None, None]
        finally:
            gc.enable()

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


def test_many_clients_hold_little_memory(installed, resident_megabytes):
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
