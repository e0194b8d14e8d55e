"""Zones that each keep a model of their own: train in them, sum, mix.

What GFL (servers in a graph) and HFL-DP (edges under a cloud) share. They differ
in what a client sends, what a zone makes of the sum of it, and what comes down.
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.totals import add_rows, federated_total
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.batches import check_data_type, seated
from tff_hdp.errors import NoiseError
from tff_hdp.simulation.system import System
from tff_hdp.systems.states import algorithm_state

# In all of them `number` is int32 [], how many rounds there were.

# (models [Z, d] of a chunk's zones, the chunk, number) -> (what C clients of each of
# these zones send, [Z, C, d]; measurements: float32 scalars that add up over chunks).
Client = Callable[[tf.Tensor, Any, tf.Tensor], tuple[tf.Tensor, dict[str, tf.Tensor]]]
# (models [s, d], sums of what their clients sent [s, d], how many sent float32 [s, 1],
# number) -> the zones' results [s, d] float32.
Edge = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
# (the zones' results [s, d], number) -> their next models [s, d].
Down = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def build_zoned_process(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    num_zones: int,
    data_type: tff.SequenceType,
    client: Client,
    edge: Edge,
    down: Down,
) -> tff.learning.templates.LearningProcess:
    """Builds the learning process.

    A TFF client is a chunk of clients, of one zone or of a few. It receives the
    models of its zones, and no other's. Models are vectors [d], as `join` makes of a
    Keras model's weights. The state's `global_model_weights` are the zones' models
    [s, d]; `get_model_weights` gives their plain average, `set_model_weights` gives
    every zone the same.

    Args:
      build_model: Returns a new Keras model, whose weights are float32.
      num_zones: s.
      data_type: Sequence of one chunk, a structure with `zone` (int32 [Z],
        Z known) and `labels` (int32 [Z, ...], or of any shape where Z is 1).
      client: What the clients of a chunk do; of any one dtype is what they send.
      edge: What every zone does with its clients' sum.
      down: What the zones, or those above them, do with the zones' results.

    Returns:
      A process whose metrics are the sums of `client`'s measurements, `clients`, how
      many there were of each zone, float32 [s], and `round`, the number of the round
      just run, from 1.

    Raises:
      ArgumentError: If `data_type` is not such a sequence type.
    """
    check_data_type(data_type)

    @tff.tensorflow.computation
    def initial_models() -> tf.Tensor:
        vector = join(build_model().trainable_weights)
        return tf.tile(vector[tf.newaxis], [num_zones, 1])

    models_type = initial_models.type_signature.result
    initial_round = tff.tensorflow.computation(lambda: tf.constant(0))

    @tff.tensorflow.computation(data_type)
    def zone_keys(data: tf.data.Dataset) -> tf.Tensor:
        return seated(data.get_single_element(), "zone", num_zones)["zone"]

    @tff.tensorflow.computation(models_type, np.int32)
    def model_of(models: tf.Tensor, zone: tf.Tensor) -> tf.Tensor:
        return models[zone]

    @tff.tensorflow.computation(
        tff.SequenceType(model_of.type_signature.result), data_type, np.int32
    )
    def train(own: tf.data.Dataset, data: tf.data.Dataset, number: tf.Tensor) -> Any:
        chunk = seated(data.get_single_element(), "zone", num_zones)
        zones = tf.shape(chunk["zone"], tf.int64)[0]
        models = own.batch(zones).get_single_element()
        sent, measured = client(models, chunk, number)
        clients = tf.fill([zones, 1], tf.cast(tf.shape(sent)[1], tf.float32))
        return collections.OrderedDict(
            zone=chunk["zone"],
            sums=tf.reduce_sum(sent, 1),
            clients=clients,
            measured=collections.OrderedDict(measured),
        )

    sent_type = train.type_signature.result

    @tff.tensorflow.computation
    def nothing() -> Any:
        return collections.OrderedDict(
            sums=tf.zeros(models_type.shape, sent_type.sums.dtype),
            clients=tf.zeros([num_zones, 1]),
            measured=collections.OrderedDict(
                (name, tf.constant(0.0)) for name in sent_type.measured._asdict()
            ),
        )

    total_type = nothing.type_signature.result

    @tff.tensorflow.computation(total_type, sent_type)
    def add(total: Any, sent: Any) -> Any:
        sums = {
            name: add_rows(total[name], sent["zone"], sent[name])
            for name in ("sums", "clients")
        }
        measured = tf.nest.map_structure(tf.add, total["measured"], sent["measured"])
        return collections.OrderedDict(**sums, measured=measured)

    @tff.tensorflow.computation(models_type, np.int32, total_type)
    def finish(models: tf.Tensor, number: tf.Tensor, total: Any) -> Any:
        results = edge(models, total["sums"], total["clients"], number)
        metrics = collections.OrderedDict(
            **total["measured"],
            clients=tf.squeeze(total["clients"], 1),
            round=number + 1,
        )
        return down(results, number), number + 1, metrics

    @tff.federated_computation
    def init_fn() -> Any:
        return algorithm_state(
            tff.federated_eval(initial_models, tff.SERVER),
            tff.federated_eval(initial_round, tff.SERVER),
        )

    @tff.federated_computation(
        init_fn.type_signature.result, tff.FederatedType(data_type, tff.CLIENTS)
    )
    def next_fn(state: Any, data: Any) -> Any:
        models, number = state.global_model_weights, state.aggregator
        own = tff.federated_select(
            tff.federated_map(zone_keys, data),
            tff.federated_value(num_zones, tff.SERVER),
            models,
            model_of,
        )
        sent = tff.federated_map(train, (own, data, tff.federated_broadcast(number)))
        total = federated_total(nothing, add, sent)
        new, number, metrics = tff.federated_map(finish, (models, number, total))
        return tff.learning.templates.LearningProcessOutput(
            algorithm_state(new, number), metrics
        )

    state_type = init_fn.type_signature.result.member
    weights_type = tff.tensorflow.computation(
        lambda: tff.learning.models.ModelWeights.from_model(build_model())
    ).type_signature.result

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state: Any) -> tff.learning.models.ModelWeights:
        mean = tf.reduce_mean(state.global_model_weights, 0)
        shapes = [weight.shape for weight in weights_type.trainable]
        return tff.learning.models.ModelWeights(
            trainable=split(mean, shapes), non_trainable=[]
        )

    @tff.tensorflow.computation(state_type, weights_type)
    def set_model_weights(state: Any, weights: Any) -> Any:
        vector = join(tf.nest.flatten(weights.trainable))
        models = tf.tile(vector[tf.newaxis], [num_zones, 1])
        return state._replace(global_model_weights=models)

    return tff.learning.templates.LearningProcess(
        init_fn, next_fn, get_model_weights, set_model_weights
    )


def check_all_took_part(metrics: Any, each: int) -> None:
    """Raises NoiseError unless as many clients of every zone took part as accounted.

    With fewer, each counts for more in its zone's mean, and less noise is in it. One
    that says a zone which is none is missing in its own.

    Args:
      metrics: Of a round of a process built here.
      each: How many clients of every zone the account is of.
    """
    for zone, came in enumerate(np.ravel(metrics["clients"])):
        if came != each:
            raise NoiseError(
                f"{came:g} clients of zone {zone} took part in a round whose account "
                f"is of {each} in every zone"
            )


class ZoneModelSystem(System):
    """A system of a process built here.

    Its clients measure sums `loss` (nats), `correct` and `examples`, and how many of
    them were `clipped` and `rejected`.
    """

    def weights_of(self, state: Any) -> list[np.ndarray]:
        """See base class."""
        return [state.global_model_weights]

    def measure(self, metrics: Any) -> dict[str, float]:
        """See base class."""
        examples = max(float(metrics["examples"]), 1.0)
        return {
            "train_loss": float(metrics["loss"]) / examples,
            "train_accuracy": float(metrics["correct"]) / examples,
            "clients": int(np.sum(metrics["clients"])),
            "clipped": int(metrics["clipped"]),
            "rejected": int(metrics["rejected"]),
        }
