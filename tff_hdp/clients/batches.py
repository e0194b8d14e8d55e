"""Local training, by any TFF client work, with the client's zone beside it."""

import collections
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE

PROFILE_SPEC = collections.OrderedDict(
    weight=tf.TensorSpec([], tf.float32),
    zone=tf.TensorSpec([], tf.int32),
    carries_noise=tf.TensorSpec([], tf.bool),
)


def client_profile(*, weight: float, zone: int, carries_noise: bool) -> tf.data.Dataset:
    """What the aggregator must know of a client, as a data set of one element.

    Args:
      weight: w in (0, 1].
      zone: Index of the client's zone.
      carries_noise: Whether the client noises its own update.
    """
    return tf.data.Dataset.from_tensors(
        collections.OrderedDict(
            weight=tf.constant(weight, tf.float32),
            zone=tf.constant(zone, tf.int32),
            carries_noise=tf.constant(carries_noise),
        )
    )


def client_batches(
    features: np.ndarray, labels: np.ndarray, order: np.ndarray
) -> tf.data.Dataset:
    """One client's batches of a round.

    Args:
      features: [n_k, ...] of one client.
      labels: [n_k].
      order: [steps, batch size] rows; -1 is no example. See `make_order`.
    """
    sizes = np.sum(order >= 0, axis=1)
    runs = np.split(order, np.flatnonzero(np.diff(sizes)) + 1)
    # No `map`: TensorFlow never frees what a data set's function closed over.
    batches = []
    for run in runs:
        rows = run[run >= 0].reshape(len(run), -1)
        batches.append(
            tf.data.Dataset.from_tensor_slices((features[rows], labels[rows]))
        )
    return functools.reduce(tf.data.Dataset.concatenate, batches)


def make_order(
    size: int, *, epochs: int, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """The batches of one client's round: shuffled anew every epoch.

    Args:
      size: n_k, how many examples the client has.
      epochs: Passes over them.
      batch_size: Examples a batch; the last one of an epoch may be smaller.
      rng: Decides the order.

    Returns:
      [steps, batch_size] int32 rows into the client's examples; -1 is no example.
    """
    per_epoch = math.ceil(size / batch_size)
    order = np.full([epochs, per_epoch * batch_size], -1, np.int32)
    for epoch in order:
        epoch[:size] = rng.permutation(size)
    return order.reshape(epochs * per_epoch, batch_size)


def model_fn_from_keras(
    build_model: Callable[[], tf.keras.Model], input_spec: tuple[tf.TensorSpec, ...]
) -> Callable[[], tff.learning.models.VariableModel]:
    """A TFF model function for a Keras classifier that outputs logits.

    Args:
      build_model: Returns a new, uncompiled Keras model.
      input_spec: Specs of a batch (features, labels).
    """

    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            build_model(),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=input_spec,
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        )

    return model_fn


def build_zoned_client_work(
    inner: tff.learning.templates.ClientWorkProcess,
) -> tff.learning.templates.ClientWorkProcess:
    """Runs `inner` on a client's examples and passes the client's profile on.

    Client data becomes the structure (examples, profile) of sequences; the
    update weight becomes the aggregator's `WEIGHT_TYPE`. TFF's client work hides a
    non-finite update as zeros of weight 0; here it is NaN again, for the aggregator
    to screen and count.

    Args:
      inner: Any client work whose weighting is uniform.

    Returns:
      A `ClientWorkProcess` with the state and measurements of `inner`.
    """
    state_type, weights_type, examples_type = inner.next.type_signature.parameter
    data_type = tff.FederatedType(
        collections.OrderedDict(
            examples=examples_type.member,
            profile=tff.SequenceType(WEIGHT_TYPE),
        ),
        tff.CLIENTS,
    )
    inner_type = inner.next.type_signature.result.result.member

    @tff.tensorflow.computation(inner_type, tff.SequenceType(WEIGHT_TYPE))
    def with_profile(inner_result: Any, profile: Any) -> Any:
        blank = tf.nest.map_structure(
            lambda s: tf.zeros(s.shape, s.dtype), PROFILE_SPEC
        )
        hidden = tf.cast(inner_result.update_weight, tf.float32) <= 0.0
        update = tf.nest.map_structure(
            lambda t: tf.where(hidden, tf.cast(float("nan"), t.dtype), t),
            inner_result.update,
        )
        known = profile.reduce(blank, lambda _, element: element)
        return tff.learning.templates.ClientResult(update, known)

    @tff.federated_computation(state_type, weights_type, data_type)
    def next_fn(state: Any, weights: Any, data: Any) -> Any:
        output = inner.next(state, weights, data.examples)
        result = tff.federated_map(with_profile, (output.result, data.profile))
        return tff.templates.MeasuredProcessOutput(
            output.state, result, output.measurements
        )

    return tff.learning.templates.ClientWorkProcess(
        inner.initialize,
        next_fn,
        get_hparams_fn=inner.get_hparams,
        set_hparams_fn=inner.set_hparams,
    )
