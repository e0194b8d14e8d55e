"""Client work of FL-TOP and its family: train what may move, send what is agreed."""

from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_stack
from tff_hdp.systems.fl_top.compressors import Compressor


def train_compressed(
    model: StackedModel,
    weights: tf.Tensor,
    chunk: Any,
    *,
    compressor: Compressor,
    round_number: tf.Tensor,
    learning_rate: float,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """SGD of every client of a chunk on its own batches, and what each sends.

    Weights that may not move are held by the rule's mask (Algorithm 2).

    Args:
      model: The model, stacked.
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
    mask = None
    if coordinates is not None:
        ones = tf.ones_like(coordinates)
        chosen = tf.scatter_nd(coordinates[:, tf.newaxis], ones, [model.size]) > 0
        mask = split(chosen, model.shapes)
    rule = SgdRule(learning_rate=learning_rate, mask=mask)
    updates, sums = train_stack(model, split(weights, model.shapes), chunk, rule)
    sent = compressor.compress(join(updates, leading=1), round_number)
    return tf.ensure_shape(sent, [None, compressor.upload_size]), sums
