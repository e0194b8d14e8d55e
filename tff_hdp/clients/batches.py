"""What clients bring to a round: examples, their order, many in padded chunks."""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.errors import require


def seated(chunk: Any, field: str, count: int) -> Any:
    """The chunk; a number out of range becomes 0 and its labels -1.

    Such labels have an update rejected.

    Args:
      chunk: A structure with `labels`, [C, ...] where C is not 1.
      field: The name in it of numbers, int32 [C], as of zones.
      count: They are below it, and not negative.
    """
    chunk = collections.OrderedDict(chunk)
    number, labels = chunk[field], chunk["labels"]
    known = tf.logical_and(number >= 0, number < count)
    of_all = tf.reshape(known, [-1] + [1] * (labels.shape.rank - 1))
    chunk[field] = tf.where(known, number, 0)
    chunk["labels"] = tf.where(of_all, labels, -1)
    return chunk


def make_order(
    size: int, *, epochs: int, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """The batches of one client's round: shuffled anew every epoch.

    Args:
      size: n_k, how many examples the client has.
      epochs: Passes over them.
      batch_size: Examples a batch; the last one of an epoch may be smaller.
      rng: Decides the order.

    Returns:
      [steps, batch_size] int32 rows into the client's examples; -1 is no example.
    """
    per_epoch = math.ceil(size / batch_size)
    order = np.full([epochs, per_epoch * batch_size], -1, np.int32)
    for epoch in order:
        epoch[:size] = rng.permutation(size)
    return order.reshape(epochs * per_epoch, batch_size)


def order_of_steps(
    size: int, *, steps: int, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """As `make_order`, but so many batches: of as many epochs as they take."""
    epochs = math.ceil(steps / math.ceil(size / batch_size))
    return make_order(size, epochs=epochs, batch_size=batch_size, rng=rng)[:steps]


def example_weights(weighting: str, sizes: np.ndarray, cap: int | None) -> np.ndarray:
    """How much every client counts, w_k, float64 [n].

    Args:
      weighting: `uniform` for 1, or `examples` for min(n_k / cap, 1).
      sizes: [n], the n_k.
      cap: None takes the largest.
    """
    if weighting == "uniform":
        return np.ones(len(sizes))
    return np.minimum(sizes / (cap or sizes.max()), 1.0)


def client_batches(
    features: np.ndarray, labels: np.ndarray, order: np.ndarray
) -> tf.data.Dataset:
    """One client's batches of a round.

    Args:
      features: [n_k, ...] of one client.
      labels: [n_k].
      order: [steps, batch size] rows; -1 is no example. See `make_order`.
    """
    sizes = np.sum(order >= 0, axis=1)
    runs = np.split(order, np.flatnonzero(np.diff(sizes)) + 1)
    # No `map`: TensorFlow never frees what a data set's function closed over.
    batches = []
    for run in runs:
        rows = run[run >= 0].reshape(len(run), -1)
        batches.append(
            tf.data.Dataset.from_tensor_slices((features[rows], labels[rows]))
        )
    return functools.reduce(tf.data.Dataset.concatenate, batches)


def make_chunk(
    examples: Sequence[tuple[np.ndarray, np.ndarray]],
    orders: Sequence[np.ndarray],
    *,
    weights: Sequence[float],
    carries_noise: Sequence[bool],
    zone: int | Sequence[int],
) -> collections.OrderedDict[str, np.ndarray]:
    """Pads C clients to one shape.

    Args:
      examples: Per client its features [n_k, ...] and labels [n_k].
      orders: Per client its `make_order`.
      weights: Per client w in (0, 1].
      carries_noise: Per client whether it noises its own update.
      zone: Their zone, or per client its own.

    Returns:
      `features` [C, N, ...], `labels` [C, N], `order` [C, steps, batch size],
      `weight` [C], `carries_noise` [C], `zone` [C].
    """
    size = max(len(labels) for _, labels in examples)
    steps = max(len(order) for order in orders)
    first = examples[0][0]
    features = np.zeros([len(examples), size, *first.shape[1:]], first.dtype)
    labels = np.zeros([len(examples), size], np.int32)
    batch_size = max(order.shape[1] for order in orders)
    order = np.full([len(examples), steps, batch_size], -1, np.int32)
    for i, ((x, y), own) in enumerate(zip(examples, orders, strict=True)):
        features[i, : len(x)], labels[i, : len(y)] = x, y
        order[i, : len(own), : own.shape[1]] = own
    return collections.OrderedDict(
        features=features,
        labels=labels,
        order=order,
        weight=np.asarray(weights, np.float32),
        carries_noise=np.asarray(carries_noise, bool),
        zone=np.broadcast_to(np.int32(zone), len(examples)),
    )


def dataset_of_one(element: Mapping[str, np.ndarray]) -> tf.data.Dataset:
    """A data set of one element, from named arrays, as of `make_chunk`.

    `tf.data.Dataset.from_tensors` takes several times as long to find what the element
    consists of, which with little work in a round is a good part of it, and leaves
    memory behind for every new combination of shapes, of which rounds have many.
    """
    # A data set keeps what it holds by name in the order of the names.
    arrays = [element[name] for name in sorted(element)]
    # TensorFlow keeps an operation for all shapes that it is told here, for good.
    untold = [[None] * array.ndim for array in arrays]
    with tf.device("/device:CPU:0"):
        variant = tf.raw_ops.TensorDataset(components=arrays, output_shapes=untold)
    specs = ((name, _spec(part.shape, part.dtype)) for name, part in element.items())
    return tf.data.experimental.from_variant(variant, collections.OrderedDict(specs))


@functools.lru_cache(maxsize=1024)
def _spec(shape: tuple[int, ...], dtype: np.dtype) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


def chunk_type(feature_shape: tuple[int, ...], dtype: Any) -> tff.SequenceType:
    """The type of a TFF client's data: a sequence of one `make_chunk`.

    Args:
      feature_shape: Of one example.
      dtype: Of the features as stored.
    """
    return tff.SequenceType(
        collections.OrderedDict(
            features=tff.TensorType(dtype, [None, None, *feature_shape]),
            labels=tff.TensorType(np.int32, [None, None]),
            order=tff.TensorType(np.int32, [None, None, None]),
            weight=tff.TensorType(np.float32, [None]),
            carries_noise=tff.TensorType(np.bool_, [None]),
            zone=tff.TensorType(np.int32, [None]),
        )
    )


def check_data_type(data_type: Any) -> None:
    """Raises ArgumentError unless `data_type` is one of a TFF client's data."""
    is_one = isinstance(data_type, tff.SequenceType)
    is_one = is_one and hasattr(data_type.element, "labels")
    require(is_one, "data_type", data_type, "a tff.SequenceType, as of chunk_type")


@dataclasses.dataclass(frozen=True)
class Participant:
    """A client in one round.

    Attributes:
      examples: Its features [n_k, ...] and labels [n_k].
      order: Its batches; see `make_order`.
      weight: w_k.
      carries_noise: Whether it noises its own update.
      zone: Its zone.
    """

    examples: tuple[np.ndarray, np.ndarray]
    order: np.ndarray
    weight: float = 1.0
    carries_noise: bool = True
    zone: int = 0


def most_examples(participants: Sequence[Participant]) -> int:
    """On how many examples, in all passes, one of them trains at most."""
    return max((one.order.size for one in participants), default=0)


def chunks(
    participants: Sequence[Participant], size: int, *, across_zones: bool = False
) -> Iterator[Any]:
    """Makes a `make_chunk` of up to `size` clients at a time.

    Args:
      participants: Zone by zone, unless `across_zones`.
      size: C.
      across_zones: Whether clients of several zones may share a chunk.
    """
    zones = itertools.groupby(participants, key=lambda p: not across_zones and p.zone)
    for _, members in zones:
        members = list(members)
        for start in range(0, len(members), size):
            part = members[start : start + size]
            yield make_chunk(
                [p.examples for p in part],
                [p.order for p in part],
                weights=[p.weight for p in part],
                carries_noise=[p.carries_noise for p in part],
                zone=[p.zone for p in part],
            )
