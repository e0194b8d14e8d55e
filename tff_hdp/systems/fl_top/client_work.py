"""Client work of FL-TOP and its family: train what may move, send what is agreed."""

from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.sgd import SgdRule, descend
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_clients
from tff_hdp.systems.fl_top.compressors import Compressor
from tff_hdp.systems.fl_top.subset import LARGEST_SHARE, SubsetProblem


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

    Weights that may not move (Algorithm 2) are no variables where few move, and else
    held by the rule's mask. Clients of a model that convolves then train one after the
    other where that is better, as in `train_clients`.

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
    initial = split(weights, model.shapes)
    coordinates = compressor.trainable(round_number)
    few = compressor.upload_size <= LARGEST_SHARE * model.size
    if coordinates is not None and few:
        problem = SubsetProblem(model, initial, coordinates, chunk["features"])
        rule = SgdRule(learning_rate=learning_rate)
        (trained,), sums = descend(problem, rule, chunk["order"], chunk["labels"])
        sent = problem.start[0] - trained
    else:
        mask = None
        if coordinates is not None:
            ones = tf.ones_like(coordinates)
            chosen = tf.scatter_nd(coordinates[:, tf.newaxis], ones, [model.size]) > 0
            mask = split(chosen, model.shapes)
        rule = SgdRule(learning_rate=learning_rate, mask=mask)
        updates, sums = train_clients(model, initial, chunk, rule)
        sent = compressor.compress(join(updates, leading=1), round_number)
    return tf.ensure_shape(sent, [None, compressor.upload_size]), sums
