"""What TensorFlow finds when it is imported, and what is left at the end: nothing."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from tests.thinning import thinned

REPOSITORY = pathlib.Path(__file__).parents[2]
OURS = {
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "NVIDIA_TF32_OVERRIDE": "0",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}

TELL = "import os, sys, tff_hdp\nassert 'tensorflow' not in sys.modules\n" + "".join(
    f"print(os.environ[{name!r}])\n" for name in OURS
)

# A round of federated averaging of a small convolutional model.
CONVOLUTIONS = """
import collections
from tff_hdp import runtime
runtime.set_context("in_process")
import numpy as np, tensorflow as tf, tensorflow_federated as tff

tf.keras.utils.set_random_seed(1)
layers = tf.keras.layers
keras = tf.keras.Sequential([
    layers.InputLayer((16, 16, 3)), layers.Conv2D(16, 5, padding="same"),
    layers.MaxPool2D(), layers.ReLU(), layers.Conv2D(16, 3), layers.Flatten(),
    layers.Dense(10),
])
spec = collections.OrderedDict(
    x=tf.TensorSpec([None, 16, 16, 3]), y=tf.TensorSpec([None], tf.int32)
)
model = tff.learning.models.functional_model_from_keras(
    keras, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), spec
)
process = tff.learning.algorithms.build_unweighted_fed_avg(
    model, tff.learning.optimizers.build_sgdm(0.05)
)
generator = np.random.default_rng(2)
clients = [
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(
        x=generator.normal(size=(16, 16, 16, 3)).astype(np.float32),
        y=generator.integers(10, size=16).astype(np.int32),
    )).batch(8)
    for _ in range(2)
]
state = process.next(process.initialize(), clients).state
weights = process.get_model_weights(state).trainable
print(np.concatenate([np.ravel(w) for w in weights]).tobytes().hex())
"""

PROGRAMS = {
    "in process": """
from tff_hdp import runtime
runtime.set_in_process_context()
import tensorflow as tf, tensorflow_federated as tff
assert tff.tensorflow.computation(lambda: tf.constant(1))() == 1
""",
    "nothing is run": "import tff_hdp, tensorflow_federated as tff\n",
    "a context beside TFF's": """
from tff_hdp.runtime import in_process
import tensorflow as tf, tensorflow_federated as tff
context = in_process.create_in_process_context()
with tff.framework.get_context_stack().install(context):
    assert tff.tensorflow.computation(lambda: tf.constant(1))() == 1
""",
    "native": """
from tff_hdp import runtime
runtime.set_context("native")
import tensorflow as tf, tensorflow_federated as tff
assert tff.tensorflow.computation(lambda: tf.constant(1))() == 1
""",
}


def run(program, **variables):
    """Runs a program where the user has set just these variables."""
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=inherited | variables,
        timeout=300,
    )


def test_importing_the_package_sets_what_tensorflow_will_read():
    assert run(TELL).stdout.split() == list(OURS.values())


def test_what_the_user_has_set_stays():
    for name in OURS:
        told = run(TELL, **{name: "2"}).stdout.split()
        assert dict(zip(OURS, told, strict=True)) == OURS | {name: "2"}


THREADS = """
import os
os.environ |= {variables}
import tensorflow as tf
{before}
from tff_hdp import runtime
runtime.set_context("in_process")
print(tf.config.threading.get_intra_op_parallelism_threads())
"""


@pytest.mark.parametrize(
    ("before", "variables", "threads"),
    [
        ("", {}, 1),
        ("", {"TF_NUM_INTRAOP_THREADS": "3"}, 0),
        ("tf.config.threading.set_intra_op_parallelism_threads(3)", {}, 3),
        ("tf.constant(1)", {}, 0),
    ],
)
def test_an_operation_has_one_thread_unless_the_user_chose(
    run_program, before, variables, threads
):
    variables = {"CUDA_VISIBLE_DEVICES": "", **variables}
    done = run_program("-c", THREADS.format(before=before, variables=variables))
    assert done.stdout.split() == [str(threads)], done.stderr


def test_workers_find_the_same(native_worker, host_worker):
    with host_worker("--port=0") as hosted:
        for pid in (native_worker[0].pid, hosted.worker_pid):
            environment = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
            assert f"TF_ENABLE_ONEDNN_OPTS={os.environ['TF_ENABLE_ONEDNN_OPTS']}" in (
                environment
            )


@pytest.mark.slow
def test_onednn_changes_results_by_rounding_alone():
    with_it, without = (
        np.frombuffer(bytes.fromhex(done.stdout.strip()), np.float32)
        for done in (run(CONVOLUTIONS, TF_ENABLE_ONEDNN_OPTS=x) for x in "10")
    )
    assert len(with_it) > 5000 and np.abs(with_it).max() > 0.01
    np.testing.assert_allclose(with_it, without, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", thinned(list(PROGRAMS), every=4))
def test_nothing_is_printed_that_the_program_does_not_print(name):
    done = run(PROGRAMS[name])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("runtime", "hidden"), [("native", True), ("cluster", True), ("in_process", False)]
)
def test_what_workers_run_is_not_built_for_gpus(monkeypatch, runtime, hidden):
    import tensorflow as tf

    from tff_hdp import runtime as runtimes
    from tff_hdp.runtime import cluster, in_process, native

    asked = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *a: asked.append(a))
    monkeypatch.setattr(runtimes, "_give_operations_one_thread", lambda: None)
    monkeypatch.setattr(runtimes, "_started", {})
    monkeypatch.setattr(native, "NativeWorker", mock.Mock())
    monkeypatch.setattr(native, "create_native_context", mock.Mock())
    monkeypatch.setattr(cluster, "ClusterContext", mock.Mock())
    monkeypatch.setattr(in_process, "create_in_process_context", mock.Mock())
    runtimes._create_context(runtime, ["host:1"], None)
    assert asked == ([([], "GPU")] if hidden else [])
