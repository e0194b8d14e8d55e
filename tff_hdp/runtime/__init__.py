"""Where a TFF computation runs. Knows nothing of learning."""

import atexit
import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any

from tff_hdp.errors import ArgumentError, check_word, require
from tff_hdp.runtime import environment

RUNTIMES = ("in_process", "native", "cluster")

# TensorFlow reads it; the number of threads within an operation.
_THREADS = "TF_NUM_INTRAOP_THREADS"
_contexts: dict[tuple[str, ...], Any] = {}
_lock = threading.Lock()
# Workers that contexts have started, each with a `log_file`.
_started: dict[tuple[str, ...], Any] = {}


def set_context(
    runtime: str,
    *,
    workers: Sequence[str] = (),
    log_file: str | os.PathLike[str] | None = None,
) -> None:
    """Makes `runtime` this thread's default TFF execution context.

    Each runtime's context is made once and kept until the process ends. TFF's default
    is a thread's own: others that run computations call this too.

    Args:
      runtime: One of `RUNTIMES`.
      workers: host:port of each worker of a cluster; see scripts/worker.py.
      log_file: Receives what a worker process that was started here prints from now
        on; None discards it.

    Raises:
      ArgumentError: If there is no such runtime, `workers` are missing, malformed,
        or given to a runtime that has none, or `log_file` is no path.
      ConnectionError: If one of `workers` does not answer.
    """
    check_word("runtime", runtime, RUNTIMES)
    is_list = isinstance(workers, list | tuple)
    is_list = is_list and all(isinstance(worker, str) for worker in workers)
    require(is_list, "workers", workers, "a list of host:port")
    if workers and runtime != "cluster":
        raise ArgumentError("workers", workers, "empty, unless runtime is cluster")
    is_path = log_file is None or isinstance(log_file, str | os.PathLike)
    require(is_path, "log_file", log_file, "a path, or None")
    import tensorflow as tf
    import tensorflow_federated as tff

    # In a notebook it would tell of every model that it saves.
    tf.get_logger().setLevel("WARNING")
    key = (runtime, *workers)
    with _lock:
        if key not in _contexts:
            _contexts[key] = _create_context(runtime, workers, log_file)
        if key in _started:
            _started[key].log_file = log_file
    tff.framework.set_default_context(_contexts[key])


def __getattr__(name: str) -> Any:
    # Importing this package must not import TensorFlow.
    if name == "set_in_process_context":
        from tff_hdp.runtime import in_process

        return in_process.set_in_process_context
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _create_context(
    runtime: str, workers: Sequence[str], log_file: str | os.PathLike[str] | None
) -> Any:
    if runtime != "in_process":
        _leave_gpus_alone()
    if runtime == "native":
        from tff_hdp.runtime.native import NativeWorker, create_native_context

        worker = _started[(runtime,)] = NativeWorker(log_file=log_file)
        return create_native_context(worker)
    if runtime == "cluster":
        from tff_hdp.runtime.cluster import ClusterContext

        cluster = ClusterContext(workers)
        # Else clients' examples would stay at the workers when this process is gone.
        atexit.register(cluster.close)
        return cluster
    from tff_hdp.runtime.in_process import create_in_process_context

    _give_operations_one_thread()
    return create_in_process_context()


def _leave_gpus_alone() -> None:
    """TFF's workers compute on CPUs: what is built for them must be built for those."""
    import tensorflow as tf

    # TensorFlow may be in use already, and then refuses.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")


def _give_operations_one_thread() -> None:
    """On CPUs, where clients fill the cores; unless the user chose another number.

    Operations of two clients that share all cores wait for each other.
    """
    import tensorflow as tf

    chosen = tf.config.threading.get_intra_op_parallelism_threads()
    if chosen or _THREADS in os.environ or environment.gpus():
        return
    # TensorFlow may be in use already, and then refuses.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
