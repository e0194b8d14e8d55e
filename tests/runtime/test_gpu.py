"""What only a GPU can show: where work lies, what is copied, memory, sharing."""

import collections
import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tff_hdp.clients.batches import chunk_type, make_chunk
from tff_hdp.privacy import Clipping, FullParticipation, configurations
from tff_hdp.runtime import in_process
from tff_hdp.systems.hdp.clients import stacked_clients
from tff_hdp.systems.hdp.process import build_hdp

FEATURES, CLASSES, CLIENTS, EXAMPLES = 64, 10, 4, 40


@pytest.fixture(scope="module")
def gpus():
    found = [device.name for device in tf.config.list_logical_devices("GPU")]
    if not found:
        pytest.skip("no GPU")
    return found


@pytest.fixture(scope="module")
def federation():
    """Rounds of HDP on given devices: `chunks` stacks, `steps` of SGD a client."""

    def build(devices, steps=5, chunks=1):
        def build_model():
            return tf.keras.Sequential(
                [
                    tf.keras.layers.InputLayer([FEATURES]),
                    tf.keras.layers.Dense(32, "relu"),
                    tf.keras.layers.Dense(CLASSES),
                ]
            )

        plan = configurations.c1(
            zone_sizes=(CLIENTS * chunks,),
            sampling=FullParticipation(),
            clipping=Clipping(clip_norm=0.1),
            noise_multiplier=1.0,
        )
        process = build_hdp(
            clients=stacked_clients(
                build_model=build_model,
                data_type=chunk_type((FEATURES,), np.float32),
                client_learning_rate=0.1,
            ),
            plan=plan,
            server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
        )
        rng = np.random.default_rng(0)
        examples = [
            (
                rng.normal(size=(EXAMPLES, FEATURES)).astype(np.float32),
                rng.integers(CLASSES, size=EXAMPLES).astype(np.int32),
            )
            for _ in range(CLIENTS)
        ]
        order = np.arange(8 * steps).reshape(steps, 8).astype(np.int32) % EXAMPLES
        chunk = make_chunk(
            examples,
            [order] * CLIENTS,
            weights=[1.0] * CLIENTS,
            carries_noise=[True] * CLIENTS,
            zone=0,
        )
        data = [tf.data.Dataset.from_tensors(chunk)] * chunks
        context = in_process.create_in_process_context(devices=devices)

        def run(rounds=1):
            with tff.framework.get_context_stack().install(context):
                state = process.initialize()
                for _ in range(rounds):
                    state = process.next(state, data).state
            return state

        return run

    return build


def traced(run, folder):
    """How often what happened on which device while `run` did, by TensorFlow."""
    options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options)
    run()
    tf.profiler.experimental.stop()
    (trace,) = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(trace.read_bytes())
    return collections.Counter(
        (plane.name, plane.event_metadata[event.metadata_id].name)
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    )


def kernels(counts):
    """By GPU, how many events are no copies."""
    return collections.Counter(
        plane
        for plane, name in counts
        if "GPU" in plane and "memcpy" not in name.lower()
    )


def copies(counts):
    """How often a GPU's memory and the host's were copied from one to the other.

    The host's events say the same once more.
    """
    return sum(
        n
        for (plane, name), n in counts.items()
        if "GPU" in plane and name in ("MemcpyH2D", "MemcpyD2H")
    )


def test_a_trace_tells_operations(federation, tmp_path):
    """The instrument itself, which any machine can try."""
    run = federation(["CPU:0"])
    run()
    counts = traced(run, tmp_path)
    steps = sum(
        n
        for (_, name), n in counts.items()
        if name.endswith("SoftmaxCrossEntropyWithLogits")
    )
    assert steps == 5
    assert all("CPU" in plane for plane, name in counts if name.endswith("MatMul"))


def test_client_work_is_on_the_gpu(gpus, federation, tmp_path):
    run = federation([gpus[0]])
    run()
    counts = traced(run, tmp_path)
    # A step is a forward pass, a backward pass and an update at least.
    assert sum(kernels(counts).values()) > 3
    assert sum(n for (plane, _), n in counts.items() if "GPU" in plane) > 5 * 5


def test_steps_copy_nothing(gpus, federation, tmp_path):
    found = []
    for steps in (5, 50):
        run = federation([gpus[0]], steps=steps)
        run()
        found.append(copies(traced(run, tmp_path / str(steps))))
    # What is around the steps is not always copied in as many pieces.
    assert found[0] > 0
    assert found[1] <= found[0] + 5


def test_memory_is_flat_over_a_hundred_rounds(gpus, federation):
    run = federation([gpus[0]])
    run(5)
    device = gpus[0].removeprefix("/device:")
    tf.config.experimental.reset_memory_stats(device)
    run(5)
    before = tf.config.experimental.get_memory_info(device)
    run(100)
    after = tf.config.experimental.get_memory_info(device)
    assert after["current"] <= before["current"] + 2**20
    assert after["peak"] <= before["peak"] + 2**20


def test_float32_products_are_not_shortened(gpus):
    rng = np.random.default_rng(1)
    a = rng.normal(size=(1024, 1024)).astype(np.float32)
    with tf.device(gpus[0]):
        found = tf.matmul(a, a).numpy()
    exact = a.astype(np.float64) @ a.astype(np.float64)
    assert np.abs(found - exact).max() < 1e-4 * np.abs(exact).max()


def test_two_processes_share_a_gpu(gpus, start_program, tmp_path):
    def train(name):
        return start_program(
            "scripts/train.py",
            *("--task=digits", "--rounds=2", "--privacy=hdp", "--noise_multiplier=1"),
            f"--out={tmp_path / name}",
        )

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for result in pool.map(train, ["one", "two"]):
            assert result.returncode == 0, result.stderr


def test_several_gpus_take_chunks_in_turn(gpus, federation, tmp_path):
    if len(gpus) < 2:
        pytest.skip("one GPU")
    run = federation(gpus, chunks=len(gpus))
    run()
    assert len(kernels(traced(run, tmp_path))) == len(gpus)
