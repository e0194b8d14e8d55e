"""Local SGD of a whole chunk of clients at once."""

import collections
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.clients import deferred, gram
from tff_hdp.clients.gram import GramProblem
from tff_hdp.clients.sgd import COPIES, SUMS, SgdRule, WeightProblem, descend
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.updates import sum_over_clients
from tff_hdp.runtime import environment

# From the updates of a stack of clients, a tensor [C, ...] per weight, and
# their chunk.
Then = Callable[[list[tf.Tensor], Any], Any]

# Measured of clients that train together:
# - in a chunk of fifty each costs a tenth less than in one of twenty, and no less than
#   that in a larger one;
# - chunks are what cores share: two of ten clients beat one of twenty, two of five one
#   of ten.
# So a chunk has a core's share of the clients, of these at least and at most.
_LEAST, _MOST = 5, 50
# Of so little, examples times weights, what a chunk costs beside its arithmetic is more
# than what cores that share it save.
_LITTLE = 10**7
# Where clients train one after the other a larger chunk gains nothing, and small ones
# share the cores out evenly, also where zones part them.
_CHUNKS_A_CORE = 5
# A chunk sends a sum back, though, which on a cluster costs as the model is large.
_LARGE = 10**6
_CHUNK_BYTES = 512 * 2**20
# A GPU waits for one small operation after another: the more clients each of them is
# for, the better.
_GPU_MOST = 200
_GPU_CHUNK_BYTES = 2 * 2**30


def one_by_one(model: StackedModel) -> bool:
    """Whether clients of a chunk had better train one after the other.

    On CPUs those of a model that convolves, see `train_one_by_one`.
    """
    return model.convolves and not environment.gpus()


def chunk_size(model: StackedModel, clients: int, examples: float = math.inf) -> int:
    """How many clients to train at once: they fit memory and use every core or GPU.

    Args:
      model: What they train.
      clients: Of a round.
      examples: On how many one of them trains at most, in all passes. Where all of it
        is little, clients are trained together.
    """
    client_bytes = 4 * COPIES * model.size
    if gpus := environment.gpus():
        by_gpus = math.ceil(clients / gpus)
        return max(1, min(by_gpus, _GPU_MOST, _GPU_CHUNK_BYTES // client_bytes))
    cores = len(os.sched_getaffinity(0))
    share = math.ceil(clients / cores)
    by_cores = max(_LEAST, share)
    if model.convolves:
        least = min(_LEAST, share) if model.size > _LARGE else 1
        by_cores = max(least, math.ceil(share / _CHUNKS_A_CORE))
    little = not model.convolves and model.size * clients * examples <= _LITTLE
    together = clients if little else min(by_cores, _MOST)
    return max(1, min(together, _CHUNK_BYTES // client_bytes))


def train_stack(
    model: StackedModel, initial: Sequence[tf.Tensor], chunk: Any, rule: SgdRule
) -> tuple[list[tf.Tensor], Any]:
    """SGD of every client of a chunk on its own batches.

    The same arithmetic as training each alone: a client's loss is the mean
    cross-entropy over its own batch, and a client whose batches are used up
    stands still. Where a chunk's examples are few, the first dense layer is
    trained in their span (see `gram`), which is the same up to rounding; so is keeping
    the steps of a large kernel for a while (see `deferred`).

    Args:
      model: The model, stacked.
      initial: The weights sent, each without the client axis.
      chunk: `features`, `labels` and `order` of a `make_chunk`, as tensors.
      rule: How clients descend.

    Returns:
      The updates, initial minus trained, a tensor [C, ...] per weight; and sums
      over all the steps: `loss` (nats), `correct` and `examples`, each float32 [].

    Raises:
      ArgumentError: If the rule's mask does not fit the weights.
    """
    rule.check_mask(initial)
    order, labels, features = chunk["order"], chunk["labels"], chunk["features"]

    def directly() -> tuple[list[tf.Tensor], Any]:
        if deferred.applies(model, rule, features):
            given = (model, initial, features, rule, order, labels)
            trained, sums = deferred.descend_deferred(*given)
            return _updates(initial, trained), sums
        problem = WeightProblem(model, initial, features)
        trained, sums = descend(problem, rule, order, labels)
        return _updates(initial, trained), sums

    def in_span() -> tuple[list[tf.Tensor], Any]:
        problem = GramProblem(model, initial, features)
        (coordinates, *trained), sums = descend(problem, rule, order, labels)
        first = problem.kernel_update(coordinates)
        return [first, *_updates(initial[1:], trained)], sums

    if not gram.applies(model, rule):
        return directly()
    return tf.cond(gram.pays(initial[0], features, order), in_span, directly)


def train_one_by_one(
    model: StackedModel,
    initial: Sequence[tf.Tensor],
    chunk: Any,
    rule: SgdRule,
    *,
    then: Then,
) -> tuple[Any, Any]:
    """As `train_stack`, one client after the other, adding up what `then` makes.

    A large model's weights then stay in the cache over all of a client's steps,
    and a convolution needs no loop over clients.

    Args:
      model: See `train_stack`.
      initial: See `train_stack`.
      chunk: See `train_stack`.
      rule: See `train_stack`.
      then: What to make of the updates, for a stack of one client and its chunk.

    Returns:
      Both added up over the clients.
    """

    def alone(client: tf.Tensor | int) -> tuple[Any, Any]:
        own = _alone(chunk, client)
        updates, sums = train_stack(model, initial, own, rule)
        return then(updates, own), sums

    clients = tf.shape(chunk["order"])[0]
    return sum_over_clients(alone, clients, parallel_iterations=1)


def train_clients(
    model: StackedModel, initial: Sequence[tf.Tensor], chunk: Any, rule: SgdRule
) -> tuple[list[tf.Tensor], Any]:
    """As `train_stack`, but one client after the other where that is better.

    See `one_by_one`; here the updates are kept apart.
    """
    if not one_by_one(model):
        return train_stack(model, initial, chunk, rule)

    pairs = zip(model.shapes, initial, strict=True)
    return client_by_client(
        lambda own: train_stack(model, initial, own, rule),
        chunk,
        [tf.TensorSpec(shape, weight.dtype) for shape, weight in pairs],
    )


def client_by_client(
    train: Callable[[Any], tuple[list[tf.Tensor], Any]],
    chunk: Any,
    specs: Sequence[tf.TensorSpec],
) -> tuple[list[tf.Tensor], Any]:
    """What comes of the clients of a chunk, one after the other.

    Args:
      train: From the chunk of one client to tensors [1, ...] and the sums of `descend`.
      chunk: A `make_chunk` as tensors.
      specs: Of the tensors, without the client axis.

    Returns:
      The tensors, each [C, ...], and the sums added up.
    """

    @tf.autograph.experimental.do_not_convert
    def alone(client: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        found, sums = train(_alone(chunk, client))
        return [tf.squeeze(tensor, 0) for tensor in found], sums

    found, sums = tf.map_fn(
        alone,
        tf.range(tf.shape(chunk["order"])[0]),
        fn_output_signature=(
            list(specs),
            collections.OrderedDict.fromkeys(SUMS, tf.float32),
        ),
        parallel_iterations=1,
    )
    return found, tf.nest.map_structure(tf.reduce_sum, sums)


def profiles(chunk: Any) -> Any:
    """What the aggregator must know of a chunk's clients: `WEIGHT_TYPE`, each [C]."""
    return collections.OrderedDict(
        (name, chunk[name]) for name in ("weight", "zone", "carries_noise")
    )


def _alone(chunk: Any, client: tf.Tensor | int) -> Any:
    """A client of a chunk, as a chunk whose one client TensorFlow knows to be one."""
    return collections.OrderedDict(
        (name, part[client][tf.newaxis]) for name, part in chunk.items()
    )


def _updates(
    initial: Sequence[tf.Tensor], trained: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    pairs = zip(initial, trained, strict=True)
    return [a[tf.newaxis] - b for a, b in pairs]


def train_metrics(sums: Any) -> Any:
    """Accuracy, loss and count of examples, as `train` at SERVER.

    For use inside a `tff.federated_computation`.

    Args:
      sums: Of `train_stack`, at CLIENTS.
    """

    @tff.tensorflow.computation(sums.type_signature.member)
    def metrics_of(total: Any) -> Any:
        count = total["examples"]
        return collections.OrderedDict(
            accuracy=tf.math.divide_no_nan(total["correct"], count),
            loss=tf.math.divide_no_nan(total["loss"], count),
            num_examples=tf.cast(count, tf.int64),
        )

    train = tff.federated_map(metrics_of, tff.federated_sum(sums))
    return tff.federated_zip(collections.OrderedDict(train=train))
