"""The worker computes, and dies with its parent however the parent dies."""

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp import runtime
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime import in_process
from tff_hdp.runtime.native import NativeWorker
from tff_hdp.runtime.worker_process import CHANNEL_OPTIONS

PARENT = """
import os, signal, sys, threading, time
from tff_hdp.runtime.native import NativeWorker
worker = NativeWorker()
print(worker.pid, flush=True)
end = sys.argv[1]
if end == "exception":
    raise RuntimeError("as asked")
if end == "exit":
    os._exit(3)
if end == "return":
    sys.exit(0)
time.sleep(60)
"""


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)


@pytest.mark.parametrize("clients", [0, 1, 7])
def test_runs_federated_computations(native_context, clients):
    assert total(list(range(clients))) == sum(range(clients))


ENDS = ["SIGKILL", "return", "exception", "exit", "SIGTERM"]


@pytest.mark.parametrize("end", thinned(ENDS, every=5))
def test_no_worker_outlives_its_parent(end, is_alive, assert_ends):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    worker = int(parent.stdout.readline())
    if end.startswith("SIG"):
        assert is_alive(worker)
        os.kill(parent.pid, getattr(signal, end))
    # Reading to the end would hang if the worker held the pipe.
    assert parent.stdout.read() == ""
    parent.wait(timeout=30)
    assert_ends(worker)


def test_a_worker_that_died_is_started_anew(native_context):
    assert total([1, 2]) == 3
    before = native_context.pid
    os.kill(before, signal.SIGKILL)
    native_context._process.wait()
    assert total([1, 2, 3]) == 6
    assert native_context.pid != before


def test_the_thread_that_starts_it_may_end():
    """The kernel takes the death of the thread that forked for the parent's."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        worker = pool.submit(NativeWorker).result()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            worker._process.wait(timeout=1.0)
    finally:
        worker.close()


def test_unknown_runtime_is_refused():
    message = "runtime is abacus; allowed: in_process, native, cluster"
    with pytest.raises(ArgumentError, match=f"^{message}$"):
        runtime.set_context("abacus")


def test_arguments_of_other_kinds_are_refused_by_name():
    for workers in (None, 0, "a:1", [8470], np.zeros(2)):
        with pytest.raises(ArgumentError, match=r"^workers is .*; allowed: a list of"):
            runtime.set_context("native", workers=workers)
    with pytest.raises(ArgumentError, match=r"^log_file is 1; allowed: a path"):
        runtime.set_context("native", log_file=1)


def test_every_cohort_size_survives_the_workers_death(native_context):
    """TFF keeps an executor per number of clients; all are on the dead worker."""
    assert [total(list(range(n))) for n in (2, 3)] == [1, 3]
    os.kill(native_context.pid, signal.SIGKILL)
    native_context._process.wait()
    assert [total(list(range(n))) for n in (3, 2)] == [3, 1]


def test_a_closed_worker_stays_closed():
    worker = NativeWorker()
    worker.close()
    with pytest.raises(RuntimeError, match="closed"):
        worker.executor({})


@tff.tensorflow.computation(np.int32)
def loud(value):
    with tf.control_dependencies([tf.print("loud:", value, output_stream=sys.stderr)]):
        return tf.identity(value)


def test_a_second_run_in_a_process_gets_its_own_output_of_the_worker(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(runtime, "_contexts", {})
    monkeypatch.setattr(runtime, "_started", {})
    logs = [tmp_path / "1", tmp_path / "gone" / "2", tmp_path / "3"]
    try:
        for number, log in enumerate(logs, start=1):
            runtime.set_context("native", log_file=log)
            assert loud(number) == number
            deadline = time.monotonic() + 30
            while log.parent.exists() and f"loud: {number}" not in text_of(log):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        # The second's folder was removed: what was said then is nobody else's.
        assert "loud: 3" not in text_of(logs[0])
        assert "loud: 1" not in text_of(logs[2])
    finally:
        for worker in runtime._started.values():
            worker.close()


def test_threads_that_begin_at_once_share_a_context(monkeypatch):
    made = []

    def create(*_):
        time.sleep(0.2)
        made.append(in_process.create_in_process_context())
        return made[-1]

    monkeypatch.setattr(runtime, "_contexts", {})
    monkeypatch.setattr(runtime, "_create_context", create)
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        list(threads.map(runtime.set_context, ["in_process"] * 3))
    assert len(made) == 1


def text_of(path):
    return path.read_text() if path.exists() else ""


def test_no_proxy_stands_between_a_worker_and_us(monkeypatch):
    """Where one is set, as on many clusters, it would get clients' examples."""

    def asked(options):
        with socket.create_server(("127.0.0.1", 0)) as proxy:
            proxy.settimeout(2.0)
            port = proxy.getsockname()[1]
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
            for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy"):
                monkeypatch.delenv(name, raising=False)
            with grpc.insecure_channel("127.0.0.1:1", options) as channel:
                channel.subscribe(lambda state: None, try_to_connect=True)
                try:
                    proxy.accept()[0].close()
                except TimeoutError:
                    return False
                return True

    others = tuple(o for o in CHANNEL_OPTIONS if o[0] != "grpc.enable_http_proxy")
    assert asked(others)
    assert not asked(CHANNEL_OPTIONS)
