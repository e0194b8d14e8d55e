"""A TFF worker that nobody outside this machine can reach.

TFF's worker listens on every interface and asks for no credentials: whoever reaches
its port can run TensorFlow graphs in it, which read and write files. Here the worker
lives in a network namespace of its own that holds nothing but a loopback. A socket
stays in the namespace it was made in, so one that listened on 127.0.0.1 before the
process moved still hears this machine, and what it hears is passed on to the worker.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import os
import socket
import struct
import subprocess
from collections.abc import Callable

from tff_hdp.runtime import worker_process

# linux/sched.h, linux/sockios.h and linux/if.h
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_IFREQ = struct.Struct("16sh22x")

_PIECE_BYTES = 2**20


class NoPrivateNetworkError(PermissionError):
    """The kernel gives this process no network namespace of its own."""


def serve_on_loopback(port: int, announce: Callable[[str], None]) -> int:
    """Runs a worker behind 127.0.0.1 until it ends. The process stays cut off.

    Args:
      port: Where to listen on 127.0.0.1; 0 takes a free port.
      announce: Called with the address once the worker answers.

    Returns:
      The worker's exit status; negative if a signal ended it.

    Raises:
      OSError: If the port is taken.
      NoPrivateNetworkError: If the process may not have a network of its own.
    """
    with socket.create_server(("127.0.0.1", port)) as listener:
        enter_private_network()
        inner_port = worker_process.free_port()
        worker = worker_process.start_worker(inner_port, output=worker_process.STDERR)
        try:
            if worker_process.answers(inner_port, worker):
                asyncio.run(_relay(listener, inner_port, worker, announce))
        finally:
            worker.kill()
        return worker.wait()


def enter_private_network() -> None:
    """Moves this process to a network namespace with a loopback and nothing else.

    Raises:
      RuntimeError: If the process has several threads, of which one would move.
      NoPrivateNetworkError: If the kernel does not permit it.
    """
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise RuntimeError(f"the process has {threads} threads; allowed: 1")
    libc = ctypes.CDLL(None, use_errno=True)
    # Who may not make a network namespace may often make one in a user namespace.
    if libc.unshare(_CLONE_NEWNET) and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise NoPrivateNetworkError(number, os.strerror(number))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", _IFF_UP))
    except PermissionError as error:
        # As where a user namespace may be made, but gives no rights.
        raise NoPrivateNetworkError(error.errno, error.strerror) from error


async def _relay(
    listener: socket.socket,
    inner_port: int,
    worker: subprocess.Popen[bytes],
    announce: Callable[[str], None],
) -> None:
    """Passes on every connection to `listener` until the worker ends."""
    ended = asyncio.Event()
    descriptor = os.pidfd_open(worker.pid)
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    try:
        handler = functools.partial(_forward, inner_port)
        async with await asyncio.start_server(
            handler, sock=listener, limit=_PIECE_BYTES
        ):
            announce("{}:{}".format(*listener.getsockname()))
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def _forward(
    inner_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    # Of a connection that is cancelled as the relay ends, asyncio would tell at length.
    ended = contextlib.suppress(ConnectionError, asyncio.CancelledError)
    with contextlib.closing(writer), ended:
        inner_reader, inner_writer = await asyncio.open_connection(
            "127.0.0.1", inner_port, limit=_PIECE_BYTES
        )
        with contextlib.closing(inner_writer):
            directions = [
                asyncio.create_task(_copy(reader, inner_writer)),
                asyncio.create_task(_copy(inner_reader, writer)),
            ]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE_BYTES):
        target.write(piece)
        await target.drain()
