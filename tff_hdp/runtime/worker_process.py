"""TFF's worker program as a child that the kernel ends with its parent.

Does not import TFF, so that a process that only hosts a worker starts at once.
"""

import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
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
