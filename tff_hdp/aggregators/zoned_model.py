"""A client's zone on its way through TFF's own federated averaging.

TFF shows an aggregator what training changed, and a number, and nothing else of a
client. So a client's profile takes the way of the weights: it rides beside every
batch (`client`), and the model (`zoned_model`) has one more trainable weight, which
learns the profile and nothing else. The aggregator takes it off again (`taken_off`)
and returns zero in its place, so the global model never holds anybody's profile.
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.errors import (
    check_bool,
    check_count,
    check_makes_models,
    check_probability,
    require,
)

ModelFn = Callable[[], tff.learning.models.VariableModel]

# The aggregator's view of a client: w, its zone, whether it noises its own update.
WEIGHT_TYPE = tff.to_type(
    collections.OrderedDict(weight=np.float32, zone=np.int32, carries_noise=np.bool_)
)
# The same beside a batch: a one, by which it is known, and then the three.
_PROFILE = tf.TensorSpec([4], tf.float32)
# And as a weight. No layer has one of six axes, so no other is taken for it.
_LEARNT = tf.TensorSpec([1, 1, 1, 1, 1, 4], tf.float32)


def client(
    dataset: tf.data.Dataset,
    *,
    zone: int,
    weight: float = 1.0,
    carries_noise: bool = False,
) -> tf.data.Dataset:
    """A client's batches, each with the client's profile beside it.

    Args:
      dataset: Batches as the model takes them, of which there is an end.
      zone: Index of the client's zone.
      weight: w in (0, 1], at least what float32 has with all its digits.
      carries_noise: Whether the client noises its own update.

    Returns:
      Batches for a `zoned_model`: pairs of a batch and a profile, float32 [4].

    Raises:
      ArgumentError: If an argument is out of range.
    """
    is_data = isinstance(dataset, tf.data.Dataset)
    require(is_data, "dataset", type(dataset).__name__, "a tf.data.Dataset")
    # None in a graph, where nobody knows.
    batches = tf.get_static_value(dataset.cardinality())
    ends = batches != tf.data.INFINITE_CARDINALITY
    require(ends, "dataset", "without an end", "one that ends: repeat(epochs)")
    zone = check_count("zone", zone)
    # A float32 says which zone.
    require(zone < 2**24, "zone", zone, "below 2^24")
    weight = check_probability("weight", weight)
    # What is less may be taken for none, and the update is rejected.
    least = float(np.finfo(np.float32).tiny)
    require(weight >= least, "weight", weight, f"at least {least:.3g}, as in float32")
    carries_noise = check_bool("carries_noise", carries_noise)
    profile = tf.constant([1.0, weight, zone, carries_noise], tf.float32)
    return tf.data.Dataset.zip(
        (dataset, tf.data.Dataset.from_tensors(profile).repeat())
    )


def zoned_model(model_fn: ModelFn) -> ModelFn:
    """A model function for clients that come with their zone; see `client`.

    The model is that of `model_fn` with one more trainable weight, the last one,
    float32 [1, 1, 1, 1, 1, 4], which is zero in every global model.

    Args:
      model_fn: Returns a new `tff.learning.models.VariableModel`.

    Raises:
      ArgumentError: If `model_fn` is a functional model, in which a forward pass
        cannot change weights, or a Keras model; when called, if `model_fn` returns
        something else, or a zoned model.
    """
    allowed = "a function to a new tff.learning.models.VariableModel (of a Keras "
    allowed += "model: tff.learning.models.from_keras_model)"
    check_makes_models("model_fn", model_fn, allowed)

    def build() -> _ZonedModel:
        model = model_fn()
        is_one = isinstance(model, tff.learning.models.VariableModel)
        given = f"a function to a {type(model).__name__}"
        require(is_one, "model_fn", given, allowed)
        # The inner profile would be averaged as a weight.
        is_plain = not isinstance(model, _ZonedModel)
        require(is_plain, "model_fn", "one of zoned_model", f"{allowed}, once")
        return _ZonedModel(model)

    return build


def taken_off(
    value: Any, weight: tf.Tensor, example_cap: float | None
) -> tuple[Any, Any, tf.Tensor]:
    """What a `zoned_model`'s update says of update and client.

    TFF sends zeros for a client whose training diverged or that had no examples: its
    profile is lost with its update.

    Args:
      value: The update of a `zoned_model`, a list or a tuple.
      weight: TFF's weight of it.
      example_cap: The weight that counts as 1, as heavier ones do; None takes the
        weight as it is.

    Returns:
      The update without profile; the profile, a `WEIGHT_TYPE`, of weight 0 and in
      the first zone where it was lost or is none; and whether it was (bool []).
    """
    known, own_weight, zone, carries = tf.unstack(tf.reshape(value[-1], _PROFILE.shape))
    lost = tf.logical_or(tf.not_equal(known, 1.0), tf.not_equal(zone, tf.floor(zone)))
    weight = tf.cast(weight, tf.float32)
    if example_cap is not None:
        weight = tf.minimum(weight / example_cap, 1.0)
    profile = collections.OrderedDict(
        weight=tf.where(lost, 0.0, own_weight * weight),
        zone=tf.cast(tf.where(lost, 0.0, zone), tf.int32),
        carries_noise=tf.logical_and(carries > 0.0, tf.logical_not(lost)),
    )
    return value[:-1], profile, lost


def put_back(value: Any) -> Any:
    """A list or tuple of tensors with a profile of nobody at its end."""
    return type(value)([*value, tf.zeros(_LEARNT.shape, _LEARNT.dtype)])


def is_zoned(value_type: tff.Type) -> bool:
    """Whether it is the type of a `zoned_model`'s update, which ends in a profile."""
    fits = isinstance(value_type, tff.StructWithPythonType)
    fits = fits and value_type.python_container in (list, tuple)
    profile_type = tff.TensorType(np.float32, _LEARNT.shape)
    return fits and len(value_type) > 1 and [*value_type][-1] == profile_type


class _ZonedModel(tff.learning.models.VariableModel):
    """See `zoned_model`."""

    def __init__(self, model: tff.learning.models.VariableModel) -> None:
        self._model = model
        zeros = tf.zeros(_LEARNT.shape, _LEARNT.dtype)
        self._profile = tf.Variable(zeros, name="profile")

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        return [*self._model.trainable_variables, self._profile]

    @property
    def non_trainable_variables(self) -> Any:
        return self._model.non_trainable_variables

    @property
    def local_variables(self) -> Any:
        return self._model.local_variables

    @property
    def input_spec(self) -> Any:
        return self._model.input_spec, _PROFILE

    def forward_pass(self, batch_input: Any, training: bool = True) -> Any:
        batch, profile = batch_input
        if training:
            # An update is initial minus trained, and the initial profile is zero.
            self._profile.assign(tf.reshape(-profile, _LEARNT.shape))
        return self._model.forward_pass(batch, training)

    def predict_on_batch(self, batch_input: Any, training: bool = True) -> Any:
        return self._model.predict_on_batch(batch_input, training)

    def report_local_unfinalized_metrics(self) -> Any:
        return self._model.report_local_unfinalized_metrics()

    def metric_finalizers(self) -> Any:
        return self._model.metric_finalizers()

    def reset_metrics(self) -> None:
        self._model.reset_metrics()
