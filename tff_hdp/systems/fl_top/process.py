"""FL-TOP and its family: federated averaging of compressed updates.

Source: FL-TOP paper, Algorithms 1 to 3. FL-STD, FL-BASIC, FL-CS and FL-TOP differ
in the compressor, their -DP forms in the noise plan, and in nothing else.
"""

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.secure_mean import build_mean
from tff_hdp.aggregators.sums import zone_sums
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.batches import check_data_type
from tff_hdp.clients.contributions import (
    each_client,
    norms_decide,
    sent_apart,
    sum_by_norms,
    sum_one_by_one,
    zones_of,
)
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import profiles, train_metrics
from tff_hdp.errors import ArgumentError, check_positive, require
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.fl_top.client_work import train_compressed
from tff_hdp.systems.fl_top.compressors import Compressor
from tff_hdp.systems.states import (
    algorithm_state,
    check_secure_sums,
    process_of_model,
)

if TYPE_CHECKING:
    from tff_hdp.systems.secure_sums import ProtocolProcess, SecureSums


def build_fl_top(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    plan: NoisePlan,
    compressor: Compressor,
    client_learning_rate: float,
    secure_sums: "SecureSums | None" = None,
) -> "tff.learning.templates.LearningProcess | ProtocolProcess":
    """Builds the learning process of any of the eight schemes.

    Each round the server sends the clients what the compressor makes of the
    weights; every client trains the weights it may, compresses its update, clips
    it to S and adds its share of the noise; the server adds the decompressed mean
    to its weights.

    Metrics report, besides those of training and of the aggregator, what the round
    exchanged, by the size of the tensors: `downstream_bytes` and `upstream_bytes`,
    summed over the cohort. What clients know from the start (w_0 and the Top-K
    coordinates, or the seed of random ones), the round's number and what a protocol
    adds are not in it.

    Args:
      build_model: Returns a new Keras model that `StackedModel` takes.
      data_type: `chunk_type` of the data.
      plan: One zone; who adds which noise; with an encoding, the sum is secure.
      compressor: What is trained and exchanged.
      client_learning_rate: Of the clients' SGD.
      secure_sums: Takes the secure sum by a protocol; None leaves it to TFF.

    Returns:
      A `LearningProcess` whose TFF clients each train a chunk of clients, or with
      `secure_sums` the like.

    Raises:
      ArgumentError: If an argument is something else, the model has an unsupported
        layer, the plan more than one zone, the compressor another number of weights
        than the model, or there are secure sums that the plan does not take.
    """
    require(isinstance(plan, NoisePlan), "plan", plan, "a NoisePlan")
    is_one = isinstance(compressor, Compressor)
    require(is_one, "compressor", compressor, "a Compressor")
    check_data_type(data_type)
    rate = check_positive("client_learning_rate", client_learning_rate)
    model = StackedModel.built_by(build_model)
    if plan.num_zones != 1:
        raise ArgumentError("plan.num_zones", plan.num_zones, "1")
    if compressor.num_weights != model.size:
        raise ArgumentError(
            "compressor.num_weights",
            compressor.num_weights,
            f"{model.size}, the model's",
        )
    check_secure_sums(secure_sums, plan)

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights.from_model(build_model())

    weights_type = initial_weights.type_signature.result
    record = tf.TensorSpec([compressor.upload_size], tf.float32)
    mean = build_mean(plan, record, draws_noise=secure_sums is None)
    add_up = sum_by_norms if norms_decide(plan, None) else sum_one_by_one
    size = mean.vector_size if mean.in_fixed_point else compressor.upload_size
    upload_bytes = 4 * size
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
            learning_rate=rate,
        )
        whose = profiles(chunk)
        given = (mean, sent["protocol"], [updates], updates, whose)
        clients, zones = tf.shape(updates, tf.int64)[0], zones_of(whose)
        shares: Any = ()
        if secure_sums is None:
            contribution = add_up(*given, zones)
        else:
            contribution, shares = sent_apart(each_client(*given), whose, zones)
        exchanged = collections.OrderedDict(
            downstream_bytes=clients * _bytes(sent["weights"]),
            upstream_bytes=clients * upload_bytes,
        )
        return ((contribution, zones), shares), sums, exchanged

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

    def train(state: Any, data: Any) -> tuple[Any, Any]:
        sent = tff.federated_broadcast(
            tff.federated_map(message, (state.aggregator, state.global_model_weights))
        )
        trained = tff.federated_map(train_chunk, (sent, data))
        metrics = collections.OrderedDict(
            client_work=train_metrics(trained[1]),
            exchanged=tff.federated_sum(trained[2]),
        )
        return trained[0], tff.federated_zip(metrics)

    def finish(state: Any, total: Any, trained: Any) -> tuple[Any, Any]:
        weights, aggregator_state, measurements = tff.federated_map(
            update_weights, (state.aggregator, state.global_model_weights, total)
        )
        metrics = collections.OrderedDict(
            client_work=trained["client_work"],
            aggregator=measurements,
            exchanged=trained["exchanged"],
        )
        return algorithm_state(weights, aggregator_state), tff.federated_zip(metrics)

    if secure_sums is not None:
        return secure_sums.process(
            mean, initialize=init_fn, data_type=data_type, train=train, finish=finish
        )

    @tff.federated_computation(
        init_fn.type_signature.result, tff.FederatedType(data_type, tff.CLIENTS)
    )
    def next_fn(state: Any, data: Any) -> Any:
        sent, trained = train(state, data)
        return tff.learning.templates.LearningProcessOutput(
            *finish(state, zone_sums(mean, sent[0]), trained)
        )

    return process_of_model(init_fn, next_fn)


def _bytes(tensor: tf.Tensor) -> tf.Tensor:
    return tf.size(tensor, tf.int64) * tensor.dtype.size
