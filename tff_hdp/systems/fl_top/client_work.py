"""Client work of FL-TOP and its family: train what may move, send what is agreed."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_and_sum
from tff_hdp.clients.updates import Update
from tff_hdp.systems.fl_top.compressors import Compressor


def train_compressed(
    model: StackedModel,
    weights: tf.Tensor,
    chunk: Any,
    *,
    compressor: Compressor,
    round_number: tf.Tensor,
    learning_rate: float,
    then: Callable[[tf.Tensor, Any], Any],
) -> tuple[Any, Any]:
    """SGD of every client of a chunk on its own batches, and what each sends.

    Weights that may not move are held by the rule's mask (Algorithm 2).

    Args:
      model: The model, stacked.
      weights: [n], the global weights.
      chunk: A `make_chunk` as tensors.
      compressor: What clients train and send.
      round_number: int32 [].
      learning_rate: Of SGD.
      then: From what C clients send, [C, upload_size], of initial minus trained
        weights, and their chunk, to structures of tensors that add up.

    Returns:
      What `then` made, added up over the chunk; and the training sums of
      `train_stack`.
    """
    coordinates = compressor.trainable(round_number)
    mask = None
    if coordinates is not None:
        ones = tf.ones_like(coordinates)
        chosen = tf.scatter_nd(coordinates[:, tf.newaxis], ones, [model.size]) > 0
        mask = split(chosen, model.shapes)

    def compress(updates: list[Update], part: Any) -> Any:
        moved = join([update.dense() for update in updates], leading=1)
        sent = compressor.compress(moved, round_number)
        return then(tf.ensure_shape(sent, [None, compressor.upload_size]), part)

    return train_and_sum(
        model,
        split(weights, model.shapes),
        chunk,
        SgdRule(learning_rate=learning_rate, mask=mask),
        then=compress,
    )
