"""HDP with a TFF client for a chunk of a zone: the same rounds, faster."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.factory import zone_sums
from tff_hdp.aggregators.levels import LevelQueries
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.clients.contributions import norms_decide, sum_by_norms, sum_one_by_one
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_metrics, train_one_by_one, train_stack
from tff_hdp.clients.updates import Update
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.hdp.server import HdpServer
from tff_hdp.systems.states import process_of_model


def build_stacked_hdp(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    plan: NoisePlan,
    client_learning_rate: float,
    client_momentum: float = 0.0,
    client_proximal: float = 0.0,
    mask: Sequence[np.ndarray | None] | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer,
    queries: LevelQueries | None = None,
) -> tff.learning.templates.LearningProcess:
    """Builds the process of `build_hdp` with clients trained in stacks.

    A TFF client trains all clients of a chunk, clips, weights and noises each
    update by the functions of `HierarchicalMeanFactory`, and passes their sum
    on; the server side is the same.

    Args:
      build_model: Returns a new Keras model that `StackedModel` takes.
      data_type: `chunk_type` of the data.
      plan: Who adds which noise.
      client_learning_rate: Of the clients' SGD.
      client_momentum: Of the clients' SGD.
      client_proximal: mu of FedProx' term mu/2 |w - w0|^2 in the clients' loss.
      mask: Per trainable weight a boolean array of its shape, true where clients
        may change it; None where they may change all of it.
      server_optimizer: Applied to the aggregated update.
      queries: See `HierarchicalMeanFactory`.

    Raises:
      ValueError: If the model has an unsupported layer.
    """
    stacked = StackedModel.built_by(build_model)
    rule = SgdRule(
        learning_rate=client_learning_rate,
        momentum=client_momentum,
        proximal=client_proximal,
        mask=mask,
    )

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights.from_model(build_model())

    trainable = initial_weights.type_signature.result.trainable
    mean = ZonedMean(
        plan, tff.types.type_to_tf_tensor_specs(trainable), queries=queries
    )
    server = HdpServer(mean, initial_weights, server_optimizer)
    add_up = sum_by_norms if norms_decide(plan, queries) else sum_one_by_one
    train = train_one_by_one if stacked.convolves else train_stack

    @tff.tensorflow.computation
    def train_chunk(sent: Any, weights: Any, data: tf.data.Dataset) -> Any:
        chunk = data.get_single_element()

        def contribute(updates: list[Update], part: Any) -> Any:
            return add_up(mean, sent, updates, weights.trainable, part)

        contribution, sums = train(
            stacked,
            tf.nest.flatten(weights.trainable),
            chunk,
            rule,
            then=contribute,
        )
        return (contribution, chunk["zone"]), sums

    @tff.federated_computation(
        server.state_type, tff.FederatedType(data_type, tff.CLIENTS)
    )
    def next_fn(state: Any, data: Any) -> Any:
        trained = tff.federated_map(train_chunk, (*server.send(state), data))
        total = zone_sums(mean, trained[0])
        return tff.learning.templates.LearningProcessOutput(
            *server.finish(state, total, train_metrics(trained[1]))
        )

    return process_of_model(server.initialize, next_fn)
