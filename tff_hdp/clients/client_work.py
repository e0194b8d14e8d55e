"""Clients that train alone, by any TFF client work, with their zone beside it."""

import collections
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE
from tff_hdp.clients.batches import dataset_of_one
from tff_hdp.clients.updates import cross_entropy, out_of_range, spoilt
from tff_hdp.errors import (
    ArgumentError,
    as_float,
    check_bool,
    check_makes_models,
    require,
)

# The optimizers that are SGD, with their momentum.
SGD_MOMENTUM = {"sgd": 0.0, "sgdm": 0.9}


def client_profile(*, weight: float, zone: int, carries_noise: bool) -> tf.data.Dataset:
    """What the aggregator must know of a client, as a data set of one element.

    Args:
      weight: w in (0, 1].
      zone: Index of the client's zone.
      carries_noise: Whether the client noises its own update.

    Raises:
      ArgumentError: If an argument is of another kind. Of a weight or a zone out of
        range the aggregator rejects the update.
    """
    weight = as_float("weight", weight, "a number in (0, 1]")
    is_whole = isinstance(zone, numbers.Integral) and not isinstance(zone, bool)
    fits = is_whole and tf.int32.min <= zone <= tf.int32.max
    require(fits, "zone", zone, "a whole number that int32 holds")
    carries_noise = check_bool("carries_noise", carries_noise)
    return dataset_of_one(
        {
            "weight": np.float32(weight),
            "zone": np.int32(zone),
            "carries_noise": np.bool_(carries_noise),
        }
    )


def build_optimizer(
    name: str, learning_rate: float
) -> tff.learning.optimizers.Optimizer:
    """The TFF optimizer of a name.

    Args:
      name: `sgd`, `sgdm` (with momentum 0.9), `adam`, `yogi` or `adagrad`.
      learning_rate: Its rate.

    Raises:
      ArgumentError: If there is no such optimizer.
    """
    optimizers = tff.learning.optimizers
    builders = {
        "sgd": optimizers.build_sgdm,
        "sgdm": lambda rate: optimizers.build_sgdm(rate, SGD_MOMENTUM["sgdm"]),
        "adam": optimizers.build_adam,
        "yogi": optimizers.build_yogi,
        "adagrad": optimizers.build_adagrad,
    }
    if name not in builders:
        raise ArgumentError("optimizer", name, ", ".join(builders))
    optimizer = builders[name](learning_rate)
    # AutoGraph would rewrite its steps, which branch on what Python knows alone.
    optimizer.next = tf.autograph.experimental.do_not_convert(optimizer.next)
    return optimizer


def model_fn_from_keras(
    build_model: Callable[[], tf.keras.Model], input_spec: tuple[tf.TensorSpec, ...]
) -> Callable[[], tff.learning.models.VariableModel]:
    """A TFF model function for a Keras classifier that outputs logits.

    An id that is no row of an `Embedding`, which TensorFlow would end the round of
    all clients at, spoils its own client's update, as a label that is no class does.

    Args:
      build_model: Returns a new, uncompiled Keras model.
      input_spec: Specs of a batch (features, labels).

    Raises:
      ArgumentError: If `build_model` is not a function, as a model itself is not.
    """
    allowed = "a function to a new Keras model"
    check_makes_models("build_model", build_model, allowed)

    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            _spoilt_by_unknown_ids(build_model()),
            loss=_CrossEntropy(name="loss"),
            input_spec=input_spec,
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        )

    return model_fn


def _spoilt_by_unknown_ids(model: tf.keras.Model) -> tf.keras.Model:
    """The model, whose embeddings give NaN for what is no id of theirs."""
    for layer in model.submodules:
        if isinstance(layer, tf.keras.layers.Embedding):
            layer.call = _known_ids_only(layer.call, layer.input_dim)
    return model


def _known_ids_only(
    look_up: Callable[[tf.Tensor], tf.Tensor], size: int
) -> Callable[[tf.Tensor], tf.Tensor]:
    def call(ids: tf.Tensor) -> tf.Tensor:
        wrong = out_of_range(ids, size)
        rows = look_up(tf.where(wrong, tf.zeros_like(ids), ids))
        return spoilt(rows, wrong[..., tf.newaxis])

    return call


class _CrossEntropy(tf.keras.losses.Loss):
    """Mean `cross_entropy`."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return cross_entropy(y_true, y_pred)


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
            examples=examples_type.member, profile=tff.SequenceType(WEIGHT_TYPE)
        ),
        tff.CLIENTS,
    )
    inner_type = inner.next.type_signature.result.result.member

    @tff.tensorflow.computation(inner_type, tff.SequenceType(WEIGHT_TYPE))
    def with_profile(inner_result: Any, profile: Any) -> Any:
        hidden = tf.cast(inner_result.update_weight, tf.float32) <= 0.0
        update = tf.nest.map_structure(
            lambda t: tf.where(hidden, tf.cast(float("nan"), t.dtype), t),
            inner_result.update,
        )
        return tff.learning.templates.ClientResult(update, profile.get_single_element())

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
