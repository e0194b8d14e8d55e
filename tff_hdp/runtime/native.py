"""TFF's own C++ worker, owned from birth to death.

TFF starts its worker with the parent's output pipes and ends it only from a
Python destructor, so a killed parent leaves it running. Here the kernel ends
the worker when its parent dies, and its output goes to a file or nowhere.
"""

import atexit
import concurrent.futures
import contextlib
import os
import subprocess
import threading
import time

import grpc
import tensorflow_federated as tff

from tff_hdp.runtime import worker_process

# How long a worker may take until it answers.
_START_SECONDS = 60.0
_PIECE_BYTES = 2**16


class NativeWorker:
    """One `worker_binary` process that cannot outlive this process.

    Args:
      log_file: See the attribute.

    Attributes:
      log_file: Receives the worker's output from now on; None discards it.

    Raises:
      RuntimeError: If the worker exits or does not answer in time.
    """

    def __init__(self, *, log_file: str | os.PathLike[str] | None = None) -> None:
        self.log_file = log_file
        self._closed = False
        self._owner = os.getpid()
        self._start()
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the worker process is alive."""
        return self._process.poll() is None

    def executor(
        self, cardinalities: dict[object, int]
    ) -> tff.framework.RemoteExecutor:
        """An executor on the worker for the given number of clients.

        A worker that died since the last call is started anew, so the call that
        met its death fails and the next one works.

        Raises:
          RuntimeError: If the worker was closed.
        """
        if self._closed:
            raise RuntimeError("the worker was closed; set a context again")
        if not self.is_running:
            # The old channel stays open: executors on it must fail in the way that
            # makes TFF try again.
            self._start()
        cardinalities.setdefault(tff.CLIENTS, 0)
        executor = tff.framework.RemoteExecutor(self._stub)
        executor.set_cardinalities(cardinalities)
        return executor

    def close(self) -> None:
        """Ends the worker. Safe to call twice; of no effect in a forked process."""
        if os.getpid() != self._owner:
            # It would wait for ever, for threads that stayed in the other process.
            return
        self._closed = True
        if self.is_running:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        atexit.unregister(self.close)

    def _start(self) -> None:
        port = worker_process.free_port()
        started: concurrent.futures.Future[subprocess.Popen[bytes]]
        started = concurrent.futures.Future()
        host = threading.Thread(target=self._host, args=[port, started], daemon=True)
        host.start()
        self._process = started.result()
        self._channel = grpc.insecure_channel(
            f"localhost:{port}", worker_process.CHANNEL_OPTIONS
        )
        self._stub = tff.framework.RemoteExecutorGrpcStub(self._channel)
        deadline = time.monotonic() + _START_SECONDS
        while not self._stub.is_ready:
            if not self.is_running:
                raise RuntimeError(
                    f"TFF worker exited with status {self._process.returncode} "
                    f"at start; its output is in {self.log_file}"
                )
            if time.monotonic() > deadline:
                self.close()
                raise RuntimeError(
                    f"TFF worker did not answer within {_START_SECONDS} s"
                )
            time.sleep(0.05)

    def _host(self, port: int, started: concurrent.futures.Future) -> None:
        """Starts the worker and writes its output to where it belongs, to its end.

        So this thread lives as long as the worker, which the kernel kills with the
        thread that starts it.
        """
        # By a pipe: a worker that wrote to a file would keep to that one, of the first
        # of several runs.
        output, log = os.pipe()
        try:
            started.set_result(worker_process.start_worker(port, output=log))
        except BaseException as error:
            started.set_exception(error)
        finally:
            os.close(log)
        with open(output, "rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE_BYTES):
                # Whatever becomes of the log, the worker must not wait for a reader.
                log_file = self.log_file or os.devnull
                with contextlib.suppress(OSError), open(log_file, "ab") as log:
                    log.write(piece)


def create_native_context(worker: NativeWorker) -> tff.framework.SyncExecutionContext:
    """An execution context on `worker`, not yet anybody's default."""
    from tensorflow_federated.python.core.backends.native import compiler

    def compile_to_native(
        computation: tff.framework.ConcreteComputation,
    ) -> tff.framework.ConcreteComputation:
        # The worker knows no secure sums; in one machine plain ones hide as much.
        plain = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
        return compiler.desugar_and_transform_to_native(plain)

    factory = tff.framework.ResourceManagingExecutorFactory(worker.executor)
    return tff.framework.SyncExecutionContext(
        executor_fn=factory,
        compiler_fn=compile_to_native,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )
