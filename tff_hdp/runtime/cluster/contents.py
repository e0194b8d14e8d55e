"""Clients' data sets at a worker: what it was sent is kept there, by content."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2

# Smaller pieces go along with every call: naming one costs about as much.
LEAST_BYTES = 16_384
# Pieces that one call puts together.
GROUP = 32


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes that go along with every call, and after them some that are kept."""

    before: bytes
    kept: bytes


def cut(graph: bytes) -> list[Piece]:
    """Cuts a data set's graph into what is likely to be sent again, and what is not.

    A tensor that the data set holds is kept whole, or row by row where its rows are
    long enough: those of a chunk of clients are its clients, whoever else is in it.
    Zeros at a row's end, which pad it, are apart from it.

    Args:
      graph: A serialised `tf.compat.v1.GraphDef`.

    Returns:
      Pieces whose bytes, one after the other, are `graph`.
    """
    pieces, done = [], 0
    for begin, end in _runs(graph):
        pieces.append(Piece(graph[done:begin], graph[begin:end]))
        done = end
    return [*pieces, Piece(graph[done:], b"")]


def _runs(graph: bytes) -> Iterator[tuple[int, int]]:
    """Where in the graph there is what is worth keeping, in order."""
    parsed = tf.compat.v1.GraphDef.FromString(graph)
    searched = 0
    for node in parsed.node:
        if node.op != "Const":
            continue
        tensor = node.attr["value"].tensor
        content = tensor.tensor_content
        if len(content) < LEAST_BYTES:
            continue
        found = graph.find(content, searched)
        if found < 0:
            continue
        searched = found + len(content)
        rows = tensor.tensor_shape.dim[0].size if tensor.tensor_shape.dim else 1
        row = len(content) // rows
        if row < LEAST_BYTES:
            row = len(content)
        for begin in range(found, searched, row):
            filled = begin + len(graph[begin : begin + row].rstrip(b"\0"))
            for start, end in ((begin, filled), (filled, begin + row)):
                if end - start >= LEAST_BYTES:
                    yield start, end


class Contents:
    """What one worker was sent and still has.

    Calls may come from several threads.

    Attributes:
      bytes: How many are kept at the worker.
    """

    def __init__(
        self,
        create: Callable[[executor_pb2.Value], executor_pb2.ValueRef],
        discard: Callable[..., None],
        capacity: int,
    ) -> None:
        """Starts with nothing.

        Args:
          create: Sends a value to stay at the worker until discarded.
          discard: Lets the worker free what was kept there.
          capacity: Bytes; beyond it what was not used for longest is discarded. What
            calls in progress need is there whatever it takes.
        """
        self._create, self._discard, self._capacity = create, discard, capacity
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[bytes, _Kept] = collections.OrderedDict()
        self.bytes = 0

    @contextlib.contextmanager
    def hold(self, contents: Sequence[bytes]) -> Iterator[list[executor_pb2.ValueRef]]:
        """Has the worker keep contents while the context lasts, and after if it can.

        Args:
          contents: Each is sent only if the worker does not have it.

        Yields:
          A reference to each, of type string.
        """
        digests = [hashlib.sha256(content).digest() for content in contents]
        held: list[_Kept] = []
        try:
            # What is on its way for one call is not sent by another.
            with self._lock:
                for digest, content in zip(digests, contents, strict=True):
                    held.append(self._use(digest, content))
            yield [kept.ref for kept in held]
        finally:
            with self._lock:
                for kept in held:
                    kept.users -= 1
                self._shrink()

    def clear(self) -> None:
        """Lets the worker free all of it, also what calls in progress need."""
        with self._lock:
            self._discard(*(kept.ref for kept in self._kept.values()))
            self._kept.clear()
            self.bytes = 0

    def _use(self, digest: bytes, content: bytes) -> "_Kept":
        kept = self._kept.get(digest)
        if kept is None:
            ref = self._create(string(content))
            kept = self._kept[digest] = _Kept(ref, len(content))
            self.bytes += kept.bytes
        self._kept.move_to_end(digest)
        kept.users += 1
        return kept

    def _shrink(self) -> None:
        for digest, kept in list(self._kept.items()):
            if self.bytes <= self._capacity:
                return
            if not kept.users:
                del self._kept[digest]
                self.bytes -= kept.bytes
                self._discard(kept.ref)


@dataclasses.dataclass
class _Kept:
    ref: executor_pb2.ValueRef
    bytes: int
    users: int = 0


@functools.cache
def joining() -> executor_pb2.Value:
    """The computation of `GROUP` kept contents, and of what comes before each."""
    kept_type, before_type = tff.TensorType(np.str_), tff.TensorType(np.str_, [GROUP])

    @tff.tensorflow.computation([*[kept_type] * GROUP, before_type])
    def join(parts: Sequence[tf.Tensor]) -> tf.Tensor:
        *kept, before = parts
        pairs = zip(tf.unstack(before), kept, strict=True)
        return tf.strings.join(list(itertools.chain.from_iterable(pairs)))

    return executor_pb2.Value(computation=tff.framework.serialize_computation(join))


def string(content: bytes) -> executor_pb2.Value:
    """A string, ready to be sent."""
    return tff.framework.serialize_value(content, tff.TensorType(np.str_))[0]


def strings(contents: Sequence[bytes]) -> executor_pb2.Value:
    """A vector of strings, ready to be sent."""
    array = np.array(contents, dtype=object)
    type_ = tff.TensorType(np.str_, [len(contents)])
    return tff.framework.serialize_value(array, type_)[0]
