"""FL-TOP and its family: federated averaging of compressed updates.

Source: FL-TOP paper, Algorithms 1 to 3. FL-STD, FL-BASIC, FL-CS and FL-TOP differ
in the compressor, their -DP forms in the noise plan, and in nothing else.
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.sums import zone_sums
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.clients.contributions import norms_decide, sum_by_norms, sum_one_by_one
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_metrics
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.fl_top.client_work import train_compressed
from tff_hdp.systems.fl_top.compressors import Compressor
from tff_hdp.systems.states import algorithm_state, process_of_model


def build_fl_top(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    plan: NoisePlan,
    compressor: Compressor,
    client_learning_rate: float,
) -> tff.learning.templates.LearningProcess:
    """Builds the learning process of any of the eight schemes.

    Each round the server sends the clients what the compressor makes of the
    weights; every client trains the weights it may, compresses its update, clips
    it to S and adds its share of the noise; the server adds the decompressed mean
    to its weights.

    Metrics report, besides those of training and of the aggregator, what the round
    exchanged, taken from the tensors themselves: `downstream_bytes` and
    `upstream_bytes`, summed over the cohort. What clients know from the start (w_0
    and the Top-K coordinates, or the seed of random ones) and the round's number
    are not in it.

    Args:
      build_model: Returns a new Keras model that `StackedModel` takes.
      data_type: `chunk_type` of the data.
      plan: One zone; who adds which noise.
      compressor: What is trained and exchanged.
      client_learning_rate: Of the clients' SGD.

    Returns:
      A `LearningProcess` whose TFF clients each train a chunk of clients.

    Raises:
      ArgumentError: If the model has an unsupported layer, the plan more than one
        zone, or the compressor another number of weights than the model.
    """
    model = StackedModel.built_by(build_model)
    if plan.num_zones != 1:
        raise ArgumentError("plan.num_zones", plan.num_zones, "1")
    if compressor.num_weights != model.size:
        raise ArgumentError(
            "compressor.num_weights",
            compressor.num_weights,
            f"{model.size}, the model's",
        )

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights.from_model(build_model())

    weights_type = initial_weights.type_signature.result
    mean = ZonedMean(plan, tf.TensorSpec([compressor.upload_size], tf.float32))
    add_up = sum_by_norms if norms_decide(plan, None) else sum_one_by_one
    initial_state = tff.tensorflow.computation(mean.initial_state)
    state_type = initial_state.type_signature.result

    @tff.tensorflow.computation(state_type, weights_type)
    def message(state: Any, weights: Any) -> Any:
        vector = join(tf.nest.flatten(weights.trainable))
        return collections.OrderedDict(
            weights=compressor.send(vector), protocol=mean.client_state(state)
        )

    @tff.tensorflow.computation(message.type_signature.result, data_type)
    def train_chunk(sent: Any, data: tf.data.Dataset) -> Any:
        chunk = mean.seated(data.get_single_element())
        updates, sums = train_compressed(
            model,
            compressor.receive(sent["weights"]),
            chunk,
            compressor=compressor,
            round_number=sent["protocol"]["round"],
            learning_rate=client_learning_rate,
        )
        contribution = add_up(mean, sent["protocol"], [updates], updates, chunk)
        clients = tf.shape(updates, tf.int64)[0]
        exchanged = collections.OrderedDict(
            downstream_bytes=clients * _bytes(sent["weights"]),
            upstream_bytes=clients * _bytes(contribution["record"]),
        )
        return (contribution, chunk["zone"]), sums, exchanged

    @tff.tensorflow.computation
    def update_weights(state: Any, weights: Any, total: Any) -> Any:
        update, new_state, measurements = mean.release(state, total)
        steps = split(compressor.decompress(update, state["round"]), model.shapes)
        trainable = tf.nest.map_structure(
            tf.subtract,
            weights.trainable,
            tf.nest.pack_sequence_as(weights.trainable, steps),
        )
        new = tff.learning.models.ModelWeights(trainable, weights.non_trainable)
        return new, new_state, measurements

    @tff.federated_computation
    def init_fn() -> Any:
        return algorithm_state(
            tff.federated_eval(initial_weights, tff.SERVER),
            tff.federated_eval(initial_state, tff.SERVER),
        )

    @tff.federated_computation(
        init_fn.type_signature.result, tff.FederatedType(data_type, tff.CLIENTS)
    )
    def next_fn(state: Any, data: Any) -> Any:
        sent = tff.federated_broadcast(
            tff.federated_map(message, (state.aggregator, state.global_model_weights))
        )
        trained = tff.federated_map(train_chunk, (sent, data))
        total = zone_sums(mean, trained[0])
        weights, aggregator_state, measurements = tff.federated_map(
            update_weights, (state.aggregator, state.global_model_weights, total)
        )
        new_state = algorithm_state(weights, aggregator_state)
        metrics = tff.federated_zip(
            collections.OrderedDict(
                client_work=train_metrics(trained[1]),
                aggregator=measurements,
                exchanged=tff.federated_sum(trained[2]),
            )
        )
        return tff.learning.templates.LearningProcessOutput(new_state, metrics)

    return process_of_model(init_fn, next_fn)


def _bytes(tensor: tf.Tensor) -> np.ndarray:
    return tf.size(tensor, tf.int64) * tensor.dtype.size
