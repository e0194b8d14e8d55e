"""Client work of FL-TOP and its family: train what may move, send what is agreed."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.clients.stacked_model import StackedModel, Weights
from tff_hdp.clients.training import train_stack
from tff_hdp.systems.fl_top.compressors import Compressor


class SubsetModel:
    """A stacked model as a function of m of its n weights (Algorithm 2).

    The others are constants of it, so nothing can move them: not SGD, not a
    gradient that is NaN.

    Args:
      model: The model, stacked.
      shapes: Of its weights, in its order.
      base: [n], the weights to start from.
      coordinates: [m] int32, which ones may move.
    """

    num_weights = 1
    reads_examples_densely = False  # what moves is no whole kernel

    def __init__(
        self,
        model: StackedModel,
        shapes: Sequence[tuple[int, ...]],
        base: tf.Tensor,
        coordinates: tf.Tensor,
    ) -> None:
        self._model, self._shapes = model, shapes
        self._base, self._coordinates = base, coordinates

    def __call__(self, weights: Weights, features: tf.Tensor) -> tf.Tensor:
        """Logits of every client on its own batch.

        Args:
          weights: One tensor [C, m].
          features: [C, B, ...].
        """
        (moving,) = weights
        clients, moves = tf.shape(moving)[0], tf.shape(moving)[1]
        rows = tf.repeat(tf.range(clients), moves)
        columns = tf.tile(self._coordinates, [clients])
        whole = tf.tensor_scatter_nd_update(
            tf.tile(self._base[tf.newaxis], [clients, 1]),
            tf.stack([rows, columns], axis=1),
            tf.reshape(moving, [-1]),
        )
        return self._model(split(whole, self._shapes), features)


def split(flat: tf.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
    """Tensors [C, *shape] of a model's weights, from all of them as [C, n]."""
    sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
    return [
        tf.reshape(part, [-1, *shape])
        for part, shape in zip(tf.split(flat, sizes, axis=1), shapes, strict=True)
    ]


def join(weights: Sequence[tf.Tensor]) -> tf.Tensor:
    """The reverse of `split`."""
    clients = tf.shape(weights[0])[0]
    return tf.concat([tf.reshape(w, [clients, -1]) for w in weights], axis=1)


def train_compressed(
    model: StackedModel,
    shapes: Sequence[tuple[int, ...]],
    weights: tf.Tensor,
    chunk: Any,
    compressor: Compressor,
    round_number: tf.Tensor,
    learning_rate: float,
) -> tuple[tf.Tensor, Any]:
    """SGD of every client of a chunk on its own batches, and what each sends.

    Args:
      model: The model, stacked.
      shapes: Of its weights, in its order.
      weights: [n], the global weights.
      chunk: A `make_chunk` as tensors.
      compressor: What clients train and send.
      round_number: int32 [].
      learning_rate: Of SGD.

    Returns:
      What the C clients send, [C, upload_size], from initial minus trained
      weights; and the training sums of `train_stack`.
    """
    coordinates = compressor.trainable(round_number)
    if coordinates is None:
        initial = [w[0] for w in split(weights[tf.newaxis], shapes)]
        updates, sums = train_stack(model, initial, chunk, learning_rate=learning_rate)
        moved = join(updates)
    else:
        subset = SubsetModel(model, shapes, weights, coordinates)
        start = tf.gather(weights, coordinates)
        (moved,), sums = train_stack(
            subset, [start], chunk, learning_rate=learning_rate
        )
    sent = compressor.compress(moved, round_number)
    return tf.ensure_shape(sent, [None, compressor.upload_size]), sums
