"""A work's model in Keras and its execution context, for the programs on TFF."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import works

from tff_hdp import runtime
from tff_hdp.runtime.worker_process import ended_with_this

_WORKER = pathlib.Path(__file__).parents[2] / "scripts" / "worker.py"


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
    """Makes the spec's runtime the default TFF context.

    A cluster is a worker a core on this machine.
    """
    workers = []
    if spec["runtime"] == "cluster":
        workers = [start_worker() for _ in os.sched_getaffinity(0)]
    runtime.set_context(spec["runtime"], workers=workers)


def start_worker(core: int | None = None) -> str:
    """Starts a worker that ends with this program.

    Args:
      core: It runs on this one alone; None for any.

    Returns:
      host:port.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed if core is None else {core})
    try:
        process = subprocess.Popen(
            [*ended_with_this(), sys.executable, str(_WORKER), "--port=0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        os.sched_setaffinity(0, allowed)
    announcement = process.stdout.readline().split()
    if announcement[:2] != ["worker", "on"]:
        raise RuntimeError(f"{_WORKER} ended with status {process.wait()}")
    return announcement[2]


class ProcessFederation:
    """A `LearningProcess` over one cohort's data.

    Args:
      process: What runs a round.
      work: Gives the initial weights.
      data: The clients' data.

    Attributes:
      data: Of the next round's clients.
    """

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        work: works.Work,
        data: Sequence[Any],
    ) -> None:
        self._process = process
        self.data = data
        self._state = process.set_model_weights(
            process.initialize(), initial_model_weights(work)
        )

    def round(self) -> None:
        """Runs one round."""
        self._state = self._process.next(self._state, self.data).state

    def weights(self) -> list[np.ndarray]:
        """The trainable weights."""
        weights = self._process.get_model_weights(self._state)
        return [np.asarray(w) for w in weights.trainable]
