"""Local SGD of a whole chunk of clients at once."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.clients import gram
from tff_hdp.clients.gram import GramProblem
from tff_hdp.clients.sgd import COPIES, Mask, SgdRule, WeightProblem, descend
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.updates import DenseUpdate, Update, sum_over_clients

Then = Callable[[list[Update], Any], Any]

# Beyond about this many clients the stacked weights leave the cache and a chunk
# gets slower per client.
MAX_CHUNK = 20
_CHUNK_BYTES = 512 * 2**20


def chunk_size(num_parameters: int) -> int:
    """How many clients to train at once, so that they fit cache and memory."""
    by_memory = _CHUNK_BYTES // (4 * COPIES * num_parameters)
    return max(1, min(MAX_CHUNK, by_memory))


def make_chunk(
    examples: Sequence[tuple[np.ndarray, np.ndarray]],
    orders: Sequence[np.ndarray],
    *,
    weights: Sequence[float],
    carries_noise: Sequence[bool],
    zone: int,
) -> collections.OrderedDict[str, np.ndarray]:
    """Pads C clients of one zone to one shape.

    Args:
      examples: Per client its features [n_k, ...] and labels [n_k].
      orders: Per client its `make_order`, all of one batch size.
      weights: Per client w in (0, 1].
      carries_noise: Per client whether it noises its own update.
      zone: Their zone.

    Returns:
      `features` [C, N, ...], `labels` [C, N], `order` [C, steps, batch size],
      `weight` [C], `carries_noise` [C], `zone` [].
    """
    size = max(len(labels) for _, labels in examples)
    steps = max(len(order) for order in orders)
    first = examples[0][0]
    features = np.zeros([len(examples), size, *first.shape[1:]], first.dtype)
    labels = np.zeros([len(examples), size], np.int32)
    order = np.full([len(examples), steps, orders[0].shape[1]], -1, np.int32)
    for i, (x, y) in enumerate(examples):
        features[i, : len(x)], labels[i, : len(y)] = x, y
        order[i, : len(orders[i])] = orders[i]
    return collections.OrderedDict(
        features=features,
        labels=labels,
        order=order,
        weight=np.asarray(weights, np.float32),
        carries_noise=np.asarray(carries_noise, bool),
        zone=np.int32(zone),
    )


def train_stack(
    model: StackedModel,
    initial: Sequence[tf.Tensor],
    chunk: Any,
    *,
    learning_rate: float,
    momentum: float = 0.0,
    proximal: float = 0.0,
    mask: Mask | None = None,
    then: Then | None = None,
) -> tuple[Any, Any]:
    """SGD of every client of a chunk on its own batches.

    The same arithmetic as training each alone: a client's loss is the mean
    cross-entropy over its own batch, and a client whose batches are used up
    stands still. Where a chunk's examples are few, the first dense layer is
    trained in their span (see `gram`), which is the same up to rounding.

    Args:
      model: The model, stacked.
      initial: The global weights, each without the client axis.
      chunk: A `make_chunk` as tensors.
      learning_rate: Of SGD.
      momentum: Of SGD.
      proximal: mu of FedProx' term mu/2 |w - w0|^2; see `SgdRule`.
      mask: Per weight a boolean tensor of its shape, true where the weight may
        change, the same for every client; None where all of it may.
      then: What to make of the updates, one `Update` per weight, and the chunk;
        by default the tensors [C, ...].

    Returns:
      The updates, initial minus trained, as `then` made them; and sums over all
      the steps: `loss` (nats), `correct` and `examples`, each float32 [].

    Raises:
      ValueError: If `mask` does not fit the weights, or a rate is out of range.
    """
    _check_mask(mask, initial)
    rule = SgdRule(
        learning_rate=learning_rate, momentum=momentum, proximal=proximal, mask=mask
    )
    order, labels, features = chunk["order"], chunk["labels"], chunk["features"]
    then = then or (lambda updates, _: [update.dense() for update in updates])

    def directly() -> tuple[Any, Any]:
        problem = WeightProblem(model, initial, features)
        trained, sums = descend(problem, rule, order, labels)
        return then(_updates(initial, trained), chunk), sums

    def in_span() -> tuple[Any, Any]:
        problem = GramProblem(model, initial, features)
        (coordinates, *trained), sums = descend(problem, rule, order, labels)
        first = problem.kernel_update(coordinates)
        return then([first, *_updates(initial[1:], trained)], chunk), sums

    if not gram.applies(model, rule):
        return directly()
    return tf.cond(gram.pays(initial[0], features, order), in_span, directly)


def train_one_by_one(
    model: StackedModel,
    initial: Sequence[tf.Tensor],
    chunk: Any,
    *,
    then: Then,
    **rule: Any,
) -> tuple[Any, Any]:
    """As `train_stack`, one client after the other, adding up what `then` makes.

    A large model's weights then stay in the cache over all of a client's steps,
    and a convolution needs no loop over clients.

    Args:
      model: See `train_stack`.
      initial: See `train_stack`.
      chunk: See `train_stack`.
      then: See `train_stack`; called for a stack of one client, with its chunk.
      **rule: See `train_stack`.

    Returns:
      Both added up over the clients.
    """

    def alone(client: tf.Tensor | int) -> tuple[Any, Any]:
        own = collections.OrderedDict(chunk)
        for name in chunk:
            if name != "zone":
                own[name] = chunk[name][client][tf.newaxis]
        return train_stack(model, initial, own, then=then, **rule)

    return sum_over_clients(alone, chunk, parallel_iterations=1)


def _check_mask(mask: Mask | None, initial: Sequence[tf.Tensor]) -> None:
    if mask is None:
        return
    if len(mask) != len(initial):
        raise ValueError(f"mask has {len(mask)} entries for {len(initial)} weights")
    for i, (part, weight) in enumerate(zip(mask, initial, strict=True)):
        if part is not None and tuple(part.shape) != tuple(weight.shape):
            raise ValueError(
                f"mask[{i}] has shape {tuple(part.shape)}; its weight has "
                f"{tuple(weight.shape)}"
            )


def _updates(
    initial: Sequence[tf.Tensor], trained: Sequence[tf.Tensor]
) -> list[Update]:
    pairs = zip(initial, trained, strict=True)
    return [DenseUpdate(a[tf.newaxis] - b) for a, b in pairs]


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
