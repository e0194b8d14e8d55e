"""Client work of UDP-Alg: train the model that a descriptor makes, and pull it back."""

from typing import Any

import tensorflow as tf

from tff_hdp.aggregators.clipping import screen
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import client_by_client, train_stack
from tff_hdp.clients.updates import OuterProducts
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork


def train_users(
    model: StackedModel,
    hypernetwork: Hypernetwork,
    phi: list[tf.Tensor],
    chunk: Any,
    rule: SgdRule,
) -> tuple[list[tf.Tensor | OuterProducts], tf.Tensor, tf.Tensor]:
    """Lines 8 to 12 of Algorithm 1, for U users one after the other.

    Args:
      model: The users' models, stacked.
      hypernetwork: h, of the model's shapes.
      phi: Its weights.
      chunk: A `make_chunk` as tensors, with the users' own `descriptor`
        [U, descriptor_dim].
      rule: Of the users' SGD.

    Returns:
      Delta_u for every tensor of phi, [U, ...] or as outer products; the descriptors'
      steps [U, descriptor_dim], 0 of a user whose training diverged, which so keeps
      its own; and mean training losses [U] (nats).
    """

    def train_one(own: Any) -> Any:
        theta = hypernetwork(phi, own["descriptor"][0])
        update, sums = train_stack(model, theta, own, rule)
        loss = tf.math.divide_no_nan(sums["loss"], sums["examples"])
        return [loss[tf.newaxis], *update], sums

    specs = [tf.TensorSpec(shape, tf.float32) for shape in ((), *model.shapes)]
    (losses, *updates), _ = client_by_client(train_one, chunk, specs)
    pulled, moved = hypernetwork.pull_back(phi, chunk["descriptor"], updates)
    moved, _ = screen(moved, stacked=True)
    return pulled, moved, losses
