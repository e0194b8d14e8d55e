"""What tests everywhere share: contexts, programs, processes, and data."""

import contextlib
import ctypes
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import tff_hdp  # noqa: F401, before the plugins import TensorFlow

pytest_plugins = [
    "tests.fixtures.accounts",
    "tests.fixtures.chunks",
    "tests.fixtures.runs",
]

REPOSITORY = pathlib.Path(__file__).parents[1]
# What a machine with a GPU computes on it.
ON_GPUS = (
    "tests/clients/test_gram.py",
    "tests/clients/test_stacked_model.py",
    "tests/noise/test_samplers.py",
    "tests/runtime/test_equivalence_matrix_",
    "tests/runtime/test_gpu.py",
)
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what `pytest -m gpu` is to run."""
    for item in items:
        if item.nodeid.startswith(ON_GPUS):
            item.add_marker("gpu")


class WorkerHost:
    """A running scripts/worker.py.

    Attributes:
        process: the script.
        address: where its worker answers.
        worker_pid: the process id of TFF's worker.
    """

    def __init__(self, *flags, stderr=None):
        self.process = subprocess.Popen(
            [sys.executable, REPOSITORY / "scripts" / "worker.py", *flags],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            # Killed tests leave nothing behind.
            preexec_fn=functools.partial(LIBC.prctl, PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        self.address = self.process.stdout.readline().split()[-1]
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        self.worker_pid = int(children)

    def end(self):
        """Kills the script, and with it the worker."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        _assert_ends(self.worker_pid)


def _is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def _assert_ends(pid):
    deadline = time.monotonic() + 10
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_alive(pid)


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


# Programs and processes ---------------------------------------------------------


@pytest.fixture(scope="session")
def run_program():
    """Runs a program of the repository to its end, with nothing on its stdin."""

    def run(program, *arguments, timeout=300):
        return subprocess.run(
            [sys.executable, program, *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=REPOSITORY,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def assert_refused(run_program):
    """Asserts that a program ends with code 2 and one line holding all words."""

    def check(program, arguments, words):
        result = run_program(program, *arguments)
        assert result.returncode == 2
        assert result.stdout == ""
        assert len(result.stderr.strip().splitlines()) == 1
        assert all(word in result.stderr for word in words), result.stderr

    return check


@pytest.fixture(scope="session")
def is_alive():
    """Tells whether the process of an id runs; a zombie does not."""
    return _is_alive


@pytest.fixture(scope="session")
def assert_ends():
    """Asserts that the process of an id, whoever's child, ends within ten seconds."""
    return _assert_ends


@pytest.fixture(scope="session")
def host_worker():
    """Gives a context manager that runs scripts/worker.py with flags."""

    @contextlib.contextmanager
    def host(*flags, stderr=None):
        worker = WorkerHost(*flags, stderr=stderr)
        try:
            yield worker
        finally:
            worker.end()

    return host


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
