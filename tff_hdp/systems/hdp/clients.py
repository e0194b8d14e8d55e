"""What clients do in a round with secure sums: train, clip and encode.

Two ways to train, each alone or in stacks, give the same: a structure for
`tff_hdp.aggregators.secure_factory` from every TFF client.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE
from tff_hdp.aggregators.secure_factory import zoned
from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.clients.client_work import build_zoned_client_work
from tff_hdp.clients.contributions import profiles
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_metrics, train_stack

# From `mean.client_state`, the weights and the data, all at CLIENTS, to what
# `train` of `Clients` returns.
Train = Callable[[Any, Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clients:
    """Clients of a learning process.

    Attributes:
      initial_weights: A `tff.Computation` without argument.
      data_type: Of a TFF client's data.
      bind: From a mean, the type of its `client_state` and whether to keep clients'
        vectors apart, to a function for use inside a federated computation: from
        client state, weights and data, all at CLIENTS, to what each TFF client
        sends (see `tff_hdp.aggregators.secure_factory.zoned`, and beside it
        `carries_noise` [C] where vectors are kept apart), and training metrics at
        SERVER.
    """

    initial_weights: tff.Computation
    data_type: tff.Type
    bind: Callable[[SecureZonedMean, tff.Type, bool], Train]


def single_clients(
    *,
    model_fn: Callable[[], tff.learning.models.VariableModel],
    client_optimizer: tff.learning.optimizers.Optimizer,
) -> Clients:
    """A TFF client for every client; see `tff_hdp.systems.hdp.process.build_hdp`."""
    work = build_zoned_client_work(
        tff.learning.templates.build_model_delta_client_work(
            model_fn,
            client_optimizer,
            client_weighting=tff.learning.ClientWeighting.UNIFORM,
        )
    )

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights.from_model(model_fn())

    def bind(mean: SecureZonedMean, sent_type: tff.Type, apart: bool) -> Train:
        result_type = work.next.type_signature.result.result.member

        @tff.tensorflow.computation(sent_type, result_type.update, WEIGHT_TYPE)
        def contribute(sent: Any, update: Any, profile: Any) -> Any:
            contribution = mean.contribution(sent, update, profile)
            if not apart:
                return zoned(contribution, profile["zone"])
            contribution["vector"] = _small(contribution["vector"][tf.newaxis])
            return collections.OrderedDict(
                zoned(contribution, profile["zone"]),
                carries_noise=profile["carries_noise"][tf.newaxis],
            )

        def train(sent: Any, weights: Any, data: Any) -> tuple[Any, Any]:
            output = work.next(work.initialize(), weights, data)
            result = output.result
            contributions = tff.federated_map(
                contribute, (sent, result.update, result.update_weight)
            )
            return contributions, output.measurements

        return train

    return Clients(
        initial_weights=initial_weights,
        data_type=work.next.type_signature.parameter[2].member,
        bind=bind,
    )


def stacked_clients(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    client_learning_rate: float,
    client_momentum: float = 0.0,
) -> Clients:
    """A TFF client for a chunk of a zone; see `build_stacked_hdp`."""
    stacked = StackedModel.built_by(build_model)
    rule = SgdRule(learning_rate=client_learning_rate, momentum=client_momentum)

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights.from_model(build_model())

    def bind(mean: SecureZonedMean, sent_type: tff.Type, apart: bool) -> Train:
        weights_type = initial_weights.type_signature.result

        @tff.tensorflow.computation(sent_type, weights_type, data_type)
        def train_chunk(sent: Any, weights: Any, data: tf.data.Dataset) -> Any:
            chunk = data.get_single_element()
            updates, sums = train_stack(
                stacked, tf.nest.flatten(weights.trainable), chunk, rule
            )
            updates = tf.nest.pack_sequence_as(weights.trainable, updates)
            each = _contributions(mean, sent, updates, chunk)
            vectors = each.pop("vector")
            summed = tf.nest.map_structure(lambda t: tf.reduce_sum(t, 0), each)
            summed["vector"] = _small(vectors) if apart else tf.reduce_sum(vectors, 0)
            clients = tf.size(chunk["weight"])
            contribution = zoned(summed, chunk["zone"], clients)
            if apart:
                contribution["carries_noise"] = chunk["carries_noise"]
            return contribution, sums

        def train(sent: Any, weights: Any, data: Any) -> tuple[Any, Any]:
            trained = tff.federated_map(train_chunk, (sent, weights, data))
            return trained[0], train_metrics(trained[1])

        return train

    return Clients(initial_weights=initial_weights, data_type=data_type, bind=bind)


def _contributions(mean: SecureZonedMean, sent: Any, updates: Any, chunk: Any) -> Any:
    """Every client's contribution, each tensor with a leading axis [C].

    Args:
      mean: What a client does to its update.
      sent: `mean.client_state`.
      updates: Structure of tensors [C, ...].
      chunk: Whose they are.
    """
    tensors = len(tf.nest.flatten(updates))
    return tf.map_fn(
        lambda client: mean.contribution(sent, *client),
        (updates, profiles(chunk)),
        fn_output_signature=collections.OrderedDict(
            vector=tf.TensorSpec([mean.vector_size], tf.int64),
            rejected=tf.TensorSpec([], tf.int32),
            saturated=tf.TensorSpec([], tf.int32),
            tensor_norms=tf.TensorSpec([tensors], tf.float32),
            norm=tf.TensorSpec([], tf.float32),
        ),
    )


def _small(vectors: tf.Tensor) -> tf.Tensor:
    """Vectors without noise, within 2^29 of zero, in half the memory."""
    return tf.cast(vectors, tf.int32)
