"""Zones that each keep a model of their own: train in them, sum, mix.

What GFL (servers in a graph) and HFL-DP (edges under a cloud) share. They differ
in what a client sends and in how the zones' sums become their next models.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.sums import federated_total
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.systems.states import algorithm_state

# (models [Z, d] of a chunk's zones, the chunk, rounds so far) -> (zones' sums [Z, d],
# zones' clients [Z] float32, measurements: float32 scalars that add up over chunks).
Work = Callable[
    [tf.Tensor, Any, tf.Tensor], tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]
]
# (models [s, d], sums [s, d], clients [s], rounds so far) -> models [s, d].
Combine = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class FlatModel:
    """A Keras `Sequential` whose weights are one vector, for many clients at once.

    Its Keras model is made in a graph, after which Keras refuses eager models made
    before, until a new one is made: make those to evaluate with later.

    Args:
      build_model: Returns a new Keras model that `StackedModel` takes.

    Raises:
      ValueError: If the model has an unsupported layer.
    """

    def __init__(self, build_model: Callable[[], tf.keras.Sequential]) -> None:
        with tf.Graph().as_default():
            model = build_model()
            self._model = StackedModel(model)
            self._shapes = [tuple(w.shape) for w in model.trainable_weights]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]

    @property
    def size(self) -> int:
        """d, the number of parameters."""
        return sum(self._sizes)

    def split(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The weights of C models, each [C, ...], of their vectors [C, d]."""
        parts = tf.split(flat, self._sizes, axis=-1)
        return [
            tf.reshape(part, [-1, *shape])
            for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def gradients(
        self, flat: tf.Tensor, features: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Gradients of the mean cross-entropy of C clients on their own batches.

        Args:
          flat: [C, d] float, a model for each client.
          features: [C, B, ...].
          labels: [C, B] int.
          mask: [C, B] of the weights' dtype; 0 where there is no example.

        Returns:
          The gradients [C, d], zero for a client without examples; and sums over
          all examples: `loss` (nats), `correct` and `examples`, float32 [].
        """
        count = tf.reduce_sum(mask, 1)
        with tf.GradientTape() as tape:
            tape.watch(flat)
            logits = self._model(self.split(flat), features)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            # Each client's gradient sees its own term of the sum only.
            own = tf.math.divide_no_nan(tf.reduce_sum(losses * mask, 1), count)
            total = tf.reduce_sum(own)
        hits = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), labels), mask.dtype)
        sums = {"loss": losses * mask, "correct": hits * mask, "examples": mask}
        return tape.gradient(total, flat), {
            name: tf.cast(tf.reduce_sum(value), tf.float32)
            for name, value in sums.items()
        }


def screen_rows(rows: tf.Tensor, instead: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Replaces each row of [C, d] whose L2 norm is not finite in its dtype.

    That is one with a NaN, an infinity, or values so large that their squares
    overflow: clipping would turn those into NaN.

    Args:
      rows: Clients' gradients or models.
      instead: What a rejected client's counts as, of a shape that broadcasts.

    Returns:
      The rows, and how many were rejected, float32 [].
    """
    finite = tf.math.is_finite(tf.norm(rows, axis=1, keepdims=True))
    rejected = tf.reduce_sum(tf.cast(tf.logical_not(finite), tf.float32))
    return tf.where(finite, rows, instead), rejected


def clip_rows(rows: tf.Tensor, norm: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Clips each row of [C, d] to an L2 norm; also how many were clipped, float32."""
    norms = tf.norm(rows, axis=1, keepdims=True)
    clipped = tf.reduce_sum(tf.cast(norms > norm, tf.float32))
    return rows * tf.minimum(1.0, tf.math.divide_no_nan(norm, norms)), clipped


def flatten(weights: Sequence[Any]) -> np.ndarray:
    """[d] float32, the vector of a model's weights."""
    return np.concatenate([np.ravel(w) for w in weights]).astype(np.float32)


def build_zoned_process(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    num_zones: int,
    data_type: tff.SequenceType,
    sum_dtype: tf.DType,
    work: Work,
    combine: Combine,
) -> tff.learning.templates.LearningProcess:
    """Builds the learning process.

    A TFF client is a chunk of clients, of one zone or of a few. It receives the
    models of its zones, and no other's. The state's `global_model_weights` are the
    zones' models [s, d]; `get_model_weights` gives their plain average,
    `set_model_weights` gives every zone the same.

    Args:
      build_model: Returns a new Keras model that `StackedModel` takes.
      num_zones: s.
      data_type: Sequence of one chunk, a structure with `zone` (int32 [Z],
        Z known).
      sum_dtype: Of the sums that `work` returns.
      work: What a chunk of clients does.
      combine: What the zones and those above them do.

    Returns:
      A process whose metrics are the sums of `work`'s measurements, `clients`, and
      `round`, the number of the round just run, from 1.
    """
    flat = FlatModel(build_model)
    shape = [num_zones, flat.size]

    @tff.tensorflow.computation
    def initial_models() -> tf.Tensor:
        parts = [tf.reshape(w, [-1]) for w in build_model().trainable_weights]
        return tf.tile(tf.concat(parts, 0)[tf.newaxis], [num_zones, 1])

    models_type = initial_models.type_signature.result
    initial_round = tff.tensorflow.computation(lambda: tf.constant(0))

    @tff.tensorflow.computation(data_type)
    def zone_keys(data: tf.data.Dataset) -> tf.Tensor:
        return data.get_single_element()["zone"]

    @tff.tensorflow.computation(models_type, np.int32)
    def model_of(models: tf.Tensor, zone: tf.Tensor) -> tf.Tensor:
        return models[zone]

    @tff.tensorflow.computation(
        tff.SequenceType(model_of.type_signature.result), data_type, np.int32
    )
    def train(own: tf.data.Dataset, data: tf.data.Dataset, number: tf.Tensor) -> Any:
        chunk = data.get_single_element()
        zones = tf.shape(chunk["zone"], tf.int64)[0]
        models = own.batch(zones).get_single_element()
        value, clients, measured = work(models, chunk, number)
        return collections.OrderedDict(
            value=value,
            clients=clients,
            zone=chunk["zone"],
            measured=collections.OrderedDict(measured),
        )

    sent_type = train.type_signature.result
    measured_type = sent_type.measured

    @tff.tensorflow.computation
    def zero() -> Any:
        return collections.OrderedDict(
            value=tf.zeros(shape, sum_dtype),
            clients=tf.zeros([num_zones]),
            measured=collections.OrderedDict(
                (name, tf.constant(0.0)) for name in measured_type._asdict()
            ),
        )

    total_type = zero.type_signature.result

    @tff.tensorflow.computation(total_type, sent_type)
    def add(total: Any, sent: Any) -> Any:
        zones = sent["zone"][:, tf.newaxis]
        sums = {
            name: tf.tensor_scatter_nd_add(total[name], zones, sent[name])
            for name in ("value", "clients")
        }
        measured = tf.nest.map_structure(tf.add, total["measured"], sent["measured"])
        return collections.OrderedDict(**sums, measured=measured)

    @tff.tensorflow.computation(models_type, np.int32, total_type)
    def finish(models: tf.Tensor, number: tf.Tensor, total: Any) -> Any:
        new = combine(models, total["value"], total["clients"], number)
        metrics = collections.OrderedDict(
            **total["measured"],
            clients=tf.reduce_sum(total["clients"]),
            round=number + 1,
        )
        return new, number + 1, metrics

    max_key = tff.tensorflow.computation(lambda: tf.constant(num_zones))

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
            tff.federated_eval(max_key, tff.SERVER),
            models,
            model_of,
        )
        sent = tff.federated_map(train, (own, data, tff.federated_broadcast(number)))
        total = federated_total(zero, add, sent)
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
        mean = tf.reduce_mean(state.global_model_weights, 0, keepdims=True)
        return tff.learning.models.ModelWeights(
            trainable=[w[0] for w in flat.split(mean)], non_trainable=[]
        )

    @tff.tensorflow.computation(state_type, weights_type)
    def set_model_weights(state: Any, weights: Any) -> Any:
        parts = [tf.reshape(w, [-1]) for w in tf.nest.flatten(weights.trainable)]
        models = tf.tile(tf.concat(parts, 0)[tf.newaxis], [num_zones, 1])
        return state._replace(global_model_weights=models)

    return tff.learning.templates.LearningProcess(
        init_fn, next_fn, get_model_weights, set_model_weights
    )
