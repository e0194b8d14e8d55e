"""TFF's worker program as a child that the kernel ends with its parent.

Does not import TFF, so that a process that only hosts a worker starts at once.
"""

import contextlib
import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO

# For gRPC channels to a worker, which accepts messages of 2 GB.
MAX_MESSAGE_BYTES = 2 * 1000**3
CHANNEL_OPTIONS = (
    ("grpc.max_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Where http_proxy is set, clients' examples would go through it.
    ("grpc.enable_http_proxy", 0),
)

STDERR = 2

# Runs in a fresh interpreter so that nothing executes between fork and exec of
# the threaded parent. The death signal survives exec.
_LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent died before the worker started")
os.execv(sys.argv[2], sys.argv[2:])
"""


def ended_with_this() -> list[str]:
    """What to put before a command so that the kernel kills it with this process."""
    return [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(os.getpid())]


def start_worker(port: int, *, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Starts TFF's `worker_binary`; it listens on every interface.

    Start it from a thread that lives as long as the worker should: the kernel
    counts the death of the starting thread as the death of the parent.

    Args:
      port: Where it listens, on every interface of its network namespace and
        without credentials.
      output: Receives what the worker prints.

    Raises:
      ModuleNotFoundError: If TFF is not installed.
    """
    package = importlib.util.find_spec("tensorflow_federated")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("tensorflow_federated is not installed")
    binary = pathlib.Path(package.origin).parent / "data" / "worker_binary"
    return subprocess.Popen(
        [*ended_with_this(), str(binary), f"--port={port}"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


def free_port() -> int:
    """A TCP port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def answers(port: int, worker: subprocess.Popen[bytes]) -> bool:
    """Waits until the worker listens; False if it ended instead."""
    while worker.poll() is None:
        with contextlib.suppress(ConnectionError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        time.sleep(0.05)
    return False


def serve_everyone(port: int, announce: Callable[[str], None]) -> int:
    """Runs a worker that everyone who can reach this machine can use.

    Args:
      port: Where to listen, on every interface; 0 takes a free port.
      announce: Called with the address once the worker answers.

    Returns:
      The worker's exit status; negative if a signal ended it.

    Raises:
      OSError: If the port is taken.
    """
    # The worker itself would share the port with whoever has it.
    with socket.create_server(("", port)) as probe:
        port = probe.getsockname()[1]
    worker = start_worker(port, output=STDERR)
    try:
        if answers(port, worker):
            announce(f"0.0.0.0:{port}")
            worker.wait()
    finally:
        worker.kill()
    return worker.wait()
