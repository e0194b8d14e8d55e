"""A TFF execution context that spreads the clients' work over many machines."""

import contextlib
import dataclasses
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_federated.proto.v0 import executor_pb2

from tff_hdp.errors import check_count, check_positive, entries, require
from tff_hdp.runtime.cluster import contents
from tff_hdp.runtime.cluster.connection import Connection, ConnectionLostError
from tff_hdp.runtime.cluster.remote import Own, RemoteFunction, Replicated
from tff_hdp.runtime.in_process import InProcessContext, stages
from tff_hdp.runtime.in_process.execute import Tensors, Workers
from tff_hdp.runtime.in_process.program import Node

_LOG = logging.getLogger(__name__)
# Seconds that workers have to finish what they do when a call is interrupted.
_PATIENCE = 5.0


class ClusterError(ConnectionError):
    """No worker can do the work. The message is one line naming the addresses."""


@dataclasses.dataclass(eq=False)
class RemoteWorker:
    """A worker of the cluster.

    Attributes:
      address: host:port.
      connection: The way to it.
      is_up: Whether it takes work.
      in_flight: How many clients' work it has at the moment.
      completed: How many clients' work it has done.
      lost: Why it was last lost; empty if it never was.
    """

    address: str
    connection: Connection
    is_up: bool = False
    in_flight: int = 0
    completed: int = 0
    lost: str = ""


class Cluster(Workers):
    """Does clients' work on TFF workers, each client's on the least busy one.

    What a lost worker had in hand is done again by the others. A lost worker that
    answers again takes part from a later call on.

    Attributes:
      members: The workers, in the order of their addresses.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        clients_per_worker: int,
        bytes_kept: int,
        start_timeout: float,
    ) -> None:
        """Connects to all workers.

        Raises:
          ClusterError: If one does not answer.
        """
        super().__init__(["/device:CPU:0"], clients_per_worker * len(addresses))
        self._bytes_kept = bytes_kept
        self._join = Replicated(contents.joining())
        self.members = tuple(
            RemoteWorker(address, self._connect(address)) for address in addresses
        )
        self._lock = threading.Lock()  # Of who is up and busy.
        self._returning = threading.Lock()  # Of taking workers back.
        self._tracing = threading.Lock()  # Of tracing functions.
        self._functions: weakref.WeakKeyDictionary[stages.Function, RemoteFunction] = (
            weakref.WeakKeyDictionary()
        )
        for member in self.members:
            try:
                member.connection.open(start_timeout)
            except (ConnectionLostError, grpc.RpcError) as error:
                for started in self.members:
                    started.connection.drop()
                raise ClusterError(
                    f"no TFF worker answers at {member.address}: {_reason(error)}; "
                    "it is one of workers"
                ) from error
            member.is_up = True

    def client_values(
        self,
        function: stages.Function,
        shared: Mapping[Node, Tensors],
        own: Callable[[int], Mapping[Node, Tensors]],
        clients: int,
    ) -> Iterator[dict[Node, Tensors]]:
        """See `Workers.client_values`.

        Raises:
          ClusterError: If all workers are lost.
        """
        remote = self._remote(function) if function.outputs else None
        if remote is None or not remote.runs_anywhere:
            yield from super().client_values(function, shared, own, clients)
            return
        self._take_back()
        common = Replicated(remote.pack_shared(shared))

        def work(client: int) -> dict[Node, Tensors]:
            result = self._call(remote, common, remote.pack_own(own(client)))
            with tf.device(self.devices[0]):
                return remote.unpack(result)

        try:
            yield from self.in_order(work, clients)
        finally:
            common.discard()

    def hang_up(self) -> None:
        """See base class. Workers that are silent would keep it waiting for minutes."""
        deadline = time.monotonic() + _PATIENCE
        while any(member.in_flight for member in self.members):
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        for member in self.members:
            if member.in_flight:
                self._cut(member, member.connection, "it did not answer")

    def close(self) -> None:
        """Frees what the workers hold for this cluster."""
        for function in list(self._functions.values()):
            function.computation.discard()
        self._join.discard()
        for member in self.members:
            member.is_up = False
            member.connection.close()

    def _connect(self, address: str) -> Connection:
        return Connection(address, self._bytes_kept)

    def _remote(self, function: stages.Function) -> RemoteFunction:
        with self._tracing:
            if function not in self._functions:
                remote = self._functions[function] = RemoteFunction(function)
                weakref.finalize(function, remote.computation.discard)
            return self._functions[function]

    def _call(
        self, remote: RemoteFunction, common: Replicated, own: Own
    ) -> executor_pb2.Value:
        while True:
            with self._least_busy() as (member, connection):
                try:
                    result = connection.call(
                        remote.computation.at(connection),
                        common.at(connection),
                        own.tensors,
                        own.graphs,
                        self._join.at(connection),
                    )
                except ConnectionLostError as error:
                    self._lose(member, connection, error)
                else:
                    with self._lock:
                        member.completed += 1
                    return result

    @contextlib.contextmanager
    def _least_busy(self) -> Iterator[tuple[RemoteWorker, Connection]]:
        with self._lock:
            up = [member for member in self.members if member.is_up]
            if not up:
                lost = "; ".join(f"{m.address}: {m.lost}" for m in self.members)
                raise ClusterError(f"all workers were lost: {lost}")
            member = min(up, key=lambda member: member.in_flight)
            member.in_flight += 1
        try:
            yield member, member.connection
        finally:
            with self._lock:
                member.in_flight -= 1

    def _lose(
        self, member: RemoteWorker, connection: Connection, error: Exception
    ) -> None:
        if self._cut(member, connection, _reason(error)):
            _LOG.warning(
                "worker %s was lost (%s); its work goes to the others",
                member.address,
                member.lost,
            )

    def _cut(self, member: RemoteWorker, connection: Connection, reason: str) -> bool:
        """Ends a connection, for which another is made; False if it is no more."""
        with self._lock:
            if member.connection is not connection or not member.is_up:
                return False
            member.is_up, member.lost = False, reason
            member.connection = self._connect(member.address)
        connection.drop()
        return True

    def _take_back(self) -> None:
        """Lets lost workers that answer again take part."""
        with self._returning:
            for member in self.members:
                if member.is_up:
                    continue
                if not member.connection.is_ready:
                    # Tries anew, to be ready by a later call.
                    member.connection.drop()
                    member.connection = self._connect(member.address)
                    continue
                with contextlib.suppress(ConnectionLostError, grpc.RpcError):
                    member.connection.open(timeout=0.0)
                    member.is_up = True
                    _LOG.warning("worker %s is back", member.address)


class ClusterContext(InProcessContext):
    """Runs any TFF computation, the clients' work on remote TFF workers.

    What happens at the server runs in this process, as does the sum over the
    clients, in their order: the result is that of an `InProcessContext`.
    """

    def __init__(
        self,
        workers: Sequence[str],
        *,
        clients_per_worker: int = 4,
        bytes_kept: int = 2**30,
        default_num_clients: int = 0,
        start_timeout: float = 10.0,
    ) -> None:
        """Connects to the workers.

        Args:
          workers: host:port of each, all running; see scripts/worker.py.
          clients_per_worker: How many clients' work of a call a worker has at a time.
          bytes_kept: How much of clients' data each worker keeps, so that it need
            not be sent again; what was not used for longest goes first.
          default_num_clients: The number of clients of a computation whose argument
            does not tell.
          start_timeout: Seconds to wait for each worker.

        Raises:
          ArgumentError: If an argument is out of range.
          ClusterError: If a worker does not answer.
        """
        super().__init__(default_num_clients=default_num_clients)
        workers = entries("workers", workers, _check_address)
        require(bool(workers), "workers", workers, "host:port,host:port,...")
        is_new = len(set(workers)) == len(workers)
        require(is_new, "workers", workers, "each address once")
        self._workers = Cluster(
            workers,
            clients_per_worker=check_count("clients_per_worker", clients_per_worker, 1),
            bytes_kept=check_count("bytes_kept", bytes_kept),
            start_timeout=check_positive("start_timeout", start_timeout),
        )

    @property
    def members(self) -> tuple[RemoteWorker, ...]:
        """The workers and what they have done."""
        return self._workers.members

    def close(self) -> None:
        """Frees what the workers hold for this context, which is of no use then.

        Of no effect in a forked process, which would wait for ever, and have the
        other's next call wait too: they share a connection.
        """
        if os.getpid() == self._process:
            self._workers.close()


def _check_address(name: str, address: Any) -> str:
    host, _, port = str(address).rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    ok = isinstance(address, str) and bool(host) and is_port
    require(ok, name, address, "host:port")
    return address


def _reason(error: Exception) -> str:
    text = error.details() if isinstance(error, grpc.RpcError) else str(error)
    return " ".join(text.split())
