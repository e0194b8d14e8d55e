"""pfl-research's worker processes, one a core or GPU, which share a cohort.

As pfl does on a cluster: each samples the same users, trains its part, and the sums
meet in an all-reduce. pfl reads a worker's address while it is imported, so `start`
comes before.
"""

import os
import socket
import subprocess
import sys

import machine

_RANK = "PFL_WORKER_RANK"
_ADDRESSES = "PFL_WORKER_ADDRESSES"


def rank() -> int:
    """This worker's number; 0 is the one that was started first."""
    return int(os.environ[_RANK])


def start(module: str) -> None:
    """Makes this one of as many workers as there are cores, starting the others.

    Where GPUs are to be seen it is one a GPU: pfl has a worker take the whole of one.

    Args:
      module: The program, which calls this as it starts, as in `python -m`.
    """
    if _RANK in os.environ:
        return
    count = len(machine.gpus()) or len(os.sched_getaffinity(0))
    addresses = ",".join(f"localhost:{_free_port()}" for _ in range(count))
    os.environ.update({_ADDRESSES: addresses, _RANK: "0", "OMP_NUM_THREADS": "1"})
    for number in range(1, count):
        subprocess.Popen(
            [sys.executable, "-m", module, *sys.argv[1:]],
            env={**os.environ, _RANK: str(number)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]
