"""Running the stages of a program on the devices of this process."""

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.runtime.in_process import arguments, stages, values
from tff_hdp.runtime.in_process.program import Input, Node, Program, Tree

T = TypeVar("T")
Tensors = list[tf.Tensor]


class Workers:
    """Threads that do the clients' work, spread over devices.

    Attributes:
      devices: Names of the devices, client i using number i modulo their count; the
        server's work runs on the first.
    """

    def __init__(self, devices: Sequence[str], threads: int) -> None:
        self.devices = tuple(devices)
        self._threads = threads
        self._kept = self._new_pool()
        self._kept_is_free = threading.Lock()

    def in_order(self, work: Callable[[int], T], count: int) -> Iterator[T]:
        """Yields `work(i)` for i = 0..count-1, computing somewhat ahead.

        At most two results a thread are waiting at any time, so memory does not grow
        with `count`.
        """
        if self._threads == 1 or count == 1:
            yield from map(work, range(count))
            return
        pending: collections.deque[futures.Future[T]] = collections.deque()
        with self._pool() as pool:
            try:
                for i in range(count):
                    if len(pending) == 2 * self._threads:
                        yield pending.popleft().result()
                    pending.append(pool.submit(work, i))
                while pending:
                    yield pending.popleft().result()
            except BaseException as error:
                for future in pending:
                    future.cancel()
                if isinstance(error, KeyboardInterrupt):
                    self.hang_up()
                futures.wait(pending)
                raise

    def hang_up(self) -> None:
        """Called when a call is interrupted, before it waits for what is under way."""

    @contextlib.contextmanager
    def _pool(self) -> Iterator[futures.Executor]:
        """The threads kept for calls or, where a call has these, new ones.

        What makes a client's data may call a computation: its clients would wait for
        threads that wait for them.
        """
        if not self._kept_is_free.acquire(blocking=False):
            with self._new_pool() as pool:
                yield pool
            return
        try:
            yield self._kept
        finally:
            self._kept_is_free.release()

    def _new_pool(self) -> futures.Executor:
        return futures.ThreadPoolExecutor(self._threads, "tff_hdp_client")

    def client_values(
        self,
        function: stages.Function,
        shared: Mapping[Node, Tensors],
        own: Callable[[int], Mapping[Node, Tensors]],
        clients: int,
    ) -> Iterator[dict[Node, Tensors]]:
        """Yields what `function` computes for each client, in the clients' order.

        Args:
          function: The work.
          shared: The inputs that are the same for every client.
          own: Gives the other inputs of a client.
          clients: How many there are.
        """
        copies = self._copy_to_devices(list(shared.values()))

        def work(client: int) -> dict[Node, Tensors]:
            device = self.devices[client % len(self.devices)]
            known = dict(zip(shared, copies[device], strict=True))
            with tf.device(device):
                known |= own(client)
                return function(known[node] for node in function.inputs)

        return self.in_order(work, clients)

    def _copy_to_devices(self, tensors: list[Tensors]) -> dict[str, list[Tensors]]:
        """Returns the tensors on each device, copied once. Datasets stay on the CPU."""
        if len(self.devices) == 1:
            return {self.devices[0]: tensors}
        copies = {}
        for device in self.devices:
            with tf.device(device):
                copies[device] = [
                    [t if t.dtype == tf.variant else tf.identity(t) for t in group]
                    for group in tensors
                ]
        return copies


class Executable:
    """A computation ready to run, from any thread, any number of times."""

    def __init__(self, computation: tff.framework.ConcreteComputation) -> None:
        """Compiles `computation`.

        Raises:
          UnsupportedComputationError: If it cannot run in process.
        """
        self._program = Program(computation)
        self._stages = stages.plan(self._program)

    def run(self, argument: arguments.Argument, clients: int, workers: Workers) -> Any:
        """Runs the computation once.

        Returns:
          The result, structures as tuples of their parts.
        """
        run = _Run(argument, clients, workers)
        for stage in self._stages:
            run.advance(stage)
        return run.export(self._program.result)


class _Run:
    """The values known so far in one run."""

    def __init__(
        self, argument: arguments.Argument, clients: int, workers: Workers
    ) -> None:
        self._argument = argument
        self._clients = clients
        self._workers = workers
        self._server: dict[Node, Tensors] = {}
        self._kept: dict[Node, list[Tensors]] = {}

    def advance(self, stage: stages.Stage) -> None:
        """Runs one stage."""
        with tf.device(self._workers.devices[0]):
            self._server |= stage.server(map(self._at_server, stage.server.inputs))
        if not stage.has_client_work:
            return
        kept = {node: [] for node in stage.kept}
        totals = {node: self._server[node.zero] for node in stage.aggregates}
        for client, known in enumerate(self._client_values(stage.clients)):
            for node, column in kept.items():
                column.append(known[node])
            with tf.device(self._workers.devices[0]):
                totals = stage.accumulate(
                    totals[node]
                    if node in totals
                    else self._at_client(node, client, known)
                    for node in stage.accumulate.inputs
                )
        self._kept |= kept
        self._server |= totals

    def _client_values(
        self, function: stages.Function
    ) -> Iterator[dict[Node, Tensors]]:
        shared = {
            node: self._at_server(node)
            for node in function.inputs
            if not node.per_client
        }

        def own(client: int) -> dict[Node, Tensors]:
            return {
                node: self._at_client(node, client, {})
                for node in function.inputs
                if node.per_client
            }

        return self._workers.client_values(function, shared, own, self._clients)

    def _at_server(self, node: Node) -> Tensors:
        if node not in self._server:
            value = values.ingest(self._argument[node.path], node.type)
            self._server[node] = values.flatten(value, node.type)
        return self._server[node]

    def _at_client(
        self, node: Node, client: int, known: Mapping[Node, Tensors]
    ) -> Tensors:
        if node in known:
            return known[node]
        if not node.per_client:
            return self._at_server(node)
        if isinstance(node, Input):
            value = values.ingest(self._argument[node.path][client], node.type)
            return values.flatten(value, node.type)
        return self._kept[node][client]

    def export(self, tree: Tree) -> Any:
        """Returns the result for the caller."""
        if isinstance(tree, tuple):
            return tuple(map(self.export, tree))

        def build(tensors: Tensors) -> Any:
            types = values.leaves(tree.type)
            exported = map(values.export, tensors, types)
            return values.unflatten(exported, tree.type)

        if not tree.per_client:
            return build(self._at_server(tree))
        return [build(self._at_client(tree, i, {})) for i in range(self._clients)]
