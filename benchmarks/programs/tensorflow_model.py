"""A work's model in Keras and its execution context, for the programs on TFF."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import works

from tff_hdp import runtime


def build_model(work: works.Work) -> tf.keras.Sequential:
    """Returns a new, uncompiled model from features to logits."""
    layers = tf.keras.layers
    stack = [layers.InputLayer(work.input_shape)]
    for filters in work.filters:
        stack += [
            layers.Conv2D(filters, work.kernel, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
        ]
    if work.filters:
        stack.append(layers.Flatten())
    stack += [layers.Dense(work.units, "relu"), layers.Dense(work.classes)]
    return tf.keras.Sequential(stack)


def initial_model_weights(work: works.Work) -> tff.learning.models.ModelWeights:
    """The work's initial weights as TFF takes them."""
    return tff.learning.models.ModelWeights(works.initial_weights(work), [])


def install_runtime(spec: dict[str, Any]) -> None:
    """Makes the spec's runtime the default TFF context."""
    options = {"workers": spec["workers"]} if spec.get("workers") else {}
    runtime.set_context(spec["runtime"], **options)


class ProcessFederation:
    """A `LearningProcess` over one cohort's data.

    Args:
      process: What runs a round.
      work: Gives the initial weights.
      data: The clients' data, the same every round.
    """

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        work: works.Work,
        data: Sequence[Any],
    ) -> None:
        self._process = process
        self._data = data
        self._state = process.set_model_weights(
            process.initialize(), initial_model_weights(work)
        )

    def round(self) -> None:
        """Runs one round."""
        self._state = self._process.next(self._state, self._data).state

    def weights(self) -> list[np.ndarray]:
        """The trainable weights."""
        weights = self._process.get_model_weights(self._state)
        return [np.asarray(w) for w in weights.trainable]
