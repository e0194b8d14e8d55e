"""A connection to a TFF worker and the values kept at its other end."""

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2, executor_pb2

from tff_hdp.runtime import worker_process
from tff_hdp.runtime.cluster import contents

# A worker's host that fell silent is noticed after so long, instead of never. More
# often is refused by gRPC servers, which allow a ping in five minutes.
_PING_EVERY_MS, _PING_ANSWER_MS = 330_000, 30_000
_OPTIONS = (
    *worker_process.CHANNEL_OPTIONS,
    ("grpc.keepalive_time_ms", _PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", _PING_ANSWER_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # Channels to one address would otherwise share a connection, and its death.
    ("grpc.use_local_subchannel_pool", 1),
)
# What a worker says that was restarted and does not know our executor.
_NO_EXECUTOR = "No executor found"


class ConnectionLostError(Exception):
    """The worker died, restarted or cannot be reached."""


class Connection:
    """One executor of a worker, from its creation until the worker is lost.

    Calls may come from several threads.

    Attributes:
      address: host:port.
      bytes_sent: Of values, so far.
      contents: What the worker keeps of clients' data.
    """

    def __init__(self, address: str, bytes_kept: int) -> None:
        """Starts to connect and returns at once.

        Args:
          address: host:port.
          bytes_kept: How much of clients' data the worker keeps for later calls.
        """
        self.address = address
        self.bytes_sent = 0
        self._counting = threading.Lock()
        self.contents = contents.Contents(self.create, self.discard, bytes_kept)
        self._channel = grpc.insecure_channel(address, _OPTIONS)
        self._stub = tff.framework.RemoteExecutorGrpcStub(self._channel)
        self._executor = executor_pb2.ExecutorId()
        self._is_dropped = False
        self._unused: collections.deque[executor_pb2.ValueRef] = collections.deque()

    @property
    def is_ready(self) -> bool:
        """Whether the worker's host has answered and not gone since."""
        return self._stub.is_ready

    def open(self, timeout: float) -> None:
        """Waits for the worker and has it make an executor for work without clients.

        Args:
          timeout: Seconds to wait.

        Raises:
          ConnectionLostError: If it does not answer in time.
          grpc.RpcError: If what answers is no TFF worker.
        """
        deadline = time.monotonic() + timeout
        while not self.is_ready:
            if time.monotonic() > deadline:
                raise ConnectionLostError(f"no answer within {timeout:g} s")
            time.sleep(0.01)
        no_clients = executor_pb2.Cardinality(
            placement=computation_pb2.Placement(uri=tff.CLIENTS.uri), cardinality=0
        )
        request = executor_pb2.GetExecutorRequest(cardinalities=[no_clients])
        self._executor = self._ask(self._stub.get_executor, request).executor

    def create(self, value: executor_pb2.Value) -> executor_pb2.ValueRef:
        """Sends a value to stay at the worker until discarded."""
        with self._counting:
            self.bytes_sent += value.ByteSize()
        request = executor_pb2.CreateValueRequest(executor=self._executor, value=value)
        return self._ask(self._stub.create_value, request).value_ref

    def call(
        self,
        function: executor_pb2.ValueRef,
        shared: executor_pb2.ValueRef,
        own: executor_pb2.Value,
        graphs: Sequence[Sequence[contents.Piece]],
        join: executor_pb2.ValueRef,
    ) -> executor_pb2.Value:
        """Returns the value of a function of two arguments and data sets.

        Args:
          function: The function, as kept at the worker.
          shared: The first argument, as kept at the worker.
          own: The second argument, sent for this call only.
          graphs: The other arguments, cut; what the worker has of them is not sent.
          join: `contents.joining()`, as kept at the worker.

        Raises:
          ConnectionLostError: If the worker is lost meanwhile.
          grpc.RpcError: If the function fails.
        """
        with _Values(self) as values:
            arguments = [shared, values.create(own)]
            arguments += [values.joined(pieces, join) for pieces in graphs]
            result = values.apply(function, values.struct(arguments))
            request = executor_pb2.ComputeRequest(
                executor=self._executor, value_ref=result
            )
            return self._ask(self._stub.compute, request).value

    def struct(self, parts: Sequence[executor_pb2.ValueRef]) -> executor_pb2.ValueRef:
        """Puts values at the worker together."""
        element = executor_pb2.CreateStructRequest.Element
        request = executor_pb2.CreateStructRequest(
            executor=self._executor,
            element=[element(value_ref=part) for part in parts],
        )
        return self._ask(self._stub.create_struct, request).value_ref

    def apply(
        self, function: executor_pb2.ValueRef, argument: executor_pb2.ValueRef
    ) -> executor_pb2.ValueRef:
        """Starts a function at the worker, of an argument that is there."""
        request = executor_pb2.CreateCallRequest(
            executor=self._executor, function_ref=function, argument_ref=argument
        )
        return self._ask(self._stub.create_call, request).value_ref

    def discard(self, *values: executor_pb2.ValueRef) -> None:
        """Lets the worker free what was kept there, at the next call.

        Never waits, so it may be called while Python collects garbage.
        """
        self._unused.extend(values)

    def dispose(self) -> None:
        """Has the worker free what was discarded."""
        request = executor_pb2.DisposeRequest(executor=self._executor)
        with contextlib.suppress(IndexError):
            while True:
                request.value_ref.append(self._unused.popleft())
        # If the worker is lost so are the values; the next call notices.
        with contextlib.suppress(ConnectionLostError):
            self._ask(self._stub.dispose, request)

    def drop(self) -> None:
        """Ends the connection; calls that still wait for an answer fail as lost."""
        self._is_dropped = True
        self._channel.close()

    def close(self) -> None:
        """Frees what is kept at the worker, and ends the connection.

        One by one, since a worker has one executor for all who ask, and frees it once
        all have disposed of it: one that was killed never does.
        """
        self.contents.clear()
        request = executor_pb2.DisposeExecutorRequest(executor=self._executor)
        with contextlib.suppress(ConnectionLostError, grpc.RpcError):
            self.dispose()
            self._ask(self._stub.dispose_executor, request)
        self.drop()

    def _ask(self, method: Callable[[Any], Any], request: Any) -> Any:
        try:
            return method(request)
        # gRPC raises a ValueError for a channel that was closed before.
        except (grpc.RpcError, ValueError) as error:
            if self._is_dropped:
                raise ConnectionLostError("the connection was dropped") from error
            if isinstance(error, grpc.RpcError):
                unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
                if unavailable or _NO_EXECUTOR in error.details():
                    raise ConnectionLostError(error.details()) from error
            raise


class _Values:
    """What a worker has for the length of one call."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._refs: list[executor_pb2.ValueRef] = []
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "_Values":
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()
        self._connection.discard(*self._refs)
        self._connection.dispose()

    def create(self, value: executor_pb2.Value) -> executor_pb2.ValueRef:
        return self._mine(self._connection.create(value))

    def struct(self, parts: Sequence[executor_pb2.ValueRef]) -> executor_pb2.ValueRef:
        return self._mine(self._connection.struct(parts))

    def apply(
        self, function: executor_pb2.ValueRef, argument: executor_pb2.ValueRef
    ) -> executor_pb2.ValueRef:
        return self._mine(self._connection.apply(function, argument))

    def joined(
        self, pieces: Sequence[contents.Piece], join: executor_pb2.ValueRef
    ) -> executor_pb2.ValueRef:
        """A string of the pieces; what the worker has of them is not sent."""
        if len(pieces) == 1:
            return self.create(contents.string(pieces[0].before))
        wanted = [*(piece.kept for piece in pieces), b""]
        holding = self._connection.contents.hold(wanted)
        *refs, empty = self._held.enter_context(holding)
        parts = [(p.before, ref) for p, ref in zip(pieces, refs, strict=True)]
        while len(parts) > 1:
            parts += [(b"", empty)] * (-len(parts) % contents.GROUP)
            groups = [
                parts[i : i + contents.GROUP]
                for i in range(0, len(parts), contents.GROUP)
            ]
            parts = [(b"", self._of_group(group, join)) for group in groups]
        return parts[0][1]

    def _of_group(
        self,
        parts: Sequence[tuple[bytes, executor_pb2.ValueRef]],
        join: executor_pb2.ValueRef,
    ) -> executor_pb2.ValueRef:
        before, kept = zip(*parts, strict=True)
        together = self.struct([*kept, self.create(contents.strings(before))])
        return self.apply(join, together)

    def _mine(self, ref: executor_pb2.ValueRef) -> executor_pb2.ValueRef:
        self._refs.append(ref)
        return ref
