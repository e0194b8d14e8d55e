"""What tests everywhere share: contexts, programs, processes, and data."""

import gc
import os
import pathlib
import signal

import hypothesis
import pytest

# A process a core runs the tests. NumPy's threads, read when it is imported, would wait
# for each other beside them: an account of seconds took a quarter of an hour.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Each on a core of its own, with the programs that it starts: TensorFlow has threads
# for all cores in every process, which would wait for each other.
CORES = sorted(os.sched_getaffinity(0))
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.sched_setaffinity(0, {CORES[int(worker.removeprefix("gw")) % len(CORES)]})

import tff_hdp  # noqa: E402, F401, before the plugins import TensorFlow

pytest_plugins = [
    "tests.fixtures.accounts",
    "tests.fixtures.chunks",
    "tests.fixtures.programs",
    "tests.fixtures.random_device",
    "tests.fixtures.runs",
    "tests.fixtures.workers",
]

# TFF makes small objects by the million, and keeps what was compiled.
gc.set_threshold(50_000, 20, 50)

# Where a shell runs the tests in the background, they and the programs that they start
# would ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is up to what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

REPOSITORY = pathlib.Path(__file__).parents[1]
# What a machine with a GPU computes on it.
ON_GPUS = (
    "tests/aggregators/test_totals.py",
    "tests/clients/test_gram.py",
    "tests/clients/test_stacked_model.py",
    "tests/clients/test_updates.py",
    "tests/noise/test_samplers.py",
    "tests/runtime/test_equivalence_matrix_",
    "tests/runtime/test_gpu.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what `pytest -m gpu` is to run."""
    for item in items:
        if item.nodeid.startswith(ON_GPUS):
            item.add_marker("gpu")


# Contexts ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def native_worker(tmp_path_factory):
    """One TFF worker for the session, with a context on it."""
    from tff_hdp.runtime.native import NativeWorker, create_native_context

    worker = NativeWorker(log_file=tmp_path_factory.mktemp("worker") / "log")
    yield worker, create_native_context(worker)
    worker.close()


@pytest.fixture
def native_context(native_worker):
    """TFF's own worker as the default context, whatever the test before set."""
    import tensorflow_federated as tff

    worker, context = native_worker
    tff.framework.set_default_context(context)
    return worker


@pytest.fixture
def in_process_default():
    """A new in-process context as the default one."""
    from tff_hdp import runtime

    runtime.set_in_process_context()


@pytest.fixture
def every_core():
    """All cores that the tests were given, for what is about using them."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CORES)
    yield
    os.sched_setaffinity(0, own)


@pytest.fixture(scope="session")
def resident_megabytes():
    """Reads how much memory a process has, this one unless told, or has had at most."""

    def read(process="self", *, peak=False):
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        found = dict(line.split(":", 1) for line in status.splitlines())
        return int(found["VmHWM" if peak else "VmRSS"].split()[0]) / 1024

    return read


# Data -------------------------------------------------------------------------


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def data_dir():
    """The shared data packs, or skip."""
    given = os.environ.get("TFF_HDP_DATA")
    path = pathlib.Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no data packs: set TFF_HDP_DATA to their folder")
    return path


@pytest.fixture
def need(data_dir):
    """Returns the path of a pack, or skips the test without it."""

    def path_of(file):
        if not (data_dir / file).exists():
            pytest.skip(f"{file} is not in {data_dir}")
        return data_dir / file

    return path_of
