"""Whom an attack is after: a model, examples, and the updates that clients make.

Updates come from the clients' own training (`tff_hdp.clients.training`), in float32.
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import tasks
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_stack
from tff_hdp.errors import ArgumentError, FileError, require
from tff_hdp.files import read_numbers
from tff_hdp.reading import read_json
from tff_hdp.simulation.classifier import load_keras

# Zhu, Liu and Han (2019): three 5x5 convolutions of 12 channels with sigmoids, and a
# dense layer; all weights uniform in (-.5, .5). What deep leakage was shown on.
_ZHU_STRIDES = (2, 2, 1)
# Clients trained at once.
_CHUNK = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """A model as clients receive it, and how they train.

    Attributes:
      model: The network.
      weights: Global weights, in Keras' order, float32.
      learning_rate: Of the clients' SGD.
      local_steps: Steps each client takes on its one batch.
      features: [N, ...] examples to draw victims and candidates from.
      labels: [N] int32.
      num_classes: How many.
      max_value: What the model takes for 1, of images.
      keras_model: The Keras model with these weights.
    """

    model: StackedModel
    weights: tuple[np.ndarray, ...]
    learning_rate: float
    local_steps: int
    features: np.ndarray
    labels: np.ndarray
    num_classes: int
    max_value: float | None
    keras_model: tf.keras.Model

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the weights."""
        return self.model.shapes

    def updates(
        self,
        features: np.ndarray,
        labels: np.ndarray,
        weights: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """What clients send before it is clipped, initial minus trained weights.

        Args:
          features: [V, B, ...] each client's batch.
          labels: [V, B] int32.
          weights: To train from; None takes the target's own.

        Returns:
          [V, d] float32; not finite where training diverged.
        """
        initial = [tf.constant(w) for w in weights or self.weights]
        chunks = (slice(i, i + _CHUNK) for i in range(0, len(features), _CHUNK))
        return np.concatenate(
            [np.asarray(self._train(features[c], labels[c], initial)) for c in chunks]
        )

    @functools.cached_property
    def _train(self) -> tf.types.experimental.GenericFunction:
        rule = SgdRule(learning_rate=self.learning_rate)
        batches = [
            tf.TensorSpec([None, None, *self.features.shape[1:]], self.features.dtype),
            tf.TensorSpec([None, None], tf.int32),
        ]
        weights = [tf.TensorSpec(shape, tf.float32) for shape in self.shapes]

        @tf.function(input_signature=[*batches, weights], autograph=False)
        def train(
            features: tf.Tensor, labels: tf.Tensor, initial: list[tf.Tensor]
        ) -> tf.Tensor:
            clients, batch = tf.shape(labels)[0], tf.shape(labels)[1]
            order = tf.tile(
                tf.range(batch)[tf.newaxis, tf.newaxis], [clients, self.local_steps, 1]
            )
            chunk = collections.OrderedDict(
                features=features, labels=labels, order=order
            )
            updates, _ = train_stack(self.model, initial, chunk, rule)
            return tf.concat([tf.reshape(u, [clients, -1]) for u in updates], 1)

        return train

    def features_before_dense(self, place: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """What the dense layer whose kernel is weight number `place` reads.

        Returns:
          A function from images [V, ...] in [0, 1], float64, to [V, n].
        """
        kernels = [tf.constant(w[np.newaxis], tf.float64) for w in self.weights[:place]]

        def features(images: tf.Tensor) -> tf.Tensor:
            read = self.model.to_dense(
                kernels, place, images[tf.newaxis] * self.max_value
            )
            return tf.cast(read[0], tf.float64)

        return features

    def norms(self, examples: slice) -> np.ndarray:
        """Of the updates of clients of one example each, [V]; not finite like them."""
        batch = self.features[examples, np.newaxis], self.labels[examples, np.newaxis]
        with np.errstate(over="ignore"):
            return np.linalg.norm(self.updates(*batch), axis=1)

    def median_norm(self, count: int = 200) -> float:
        """The median norm of single examples' updates, as --clip_norm=auto takes it."""
        norms = self.norms(slice(-count, None))
        known = norms[~np.isnan(norms)]
        return float(np.median(known)) if known.size else float("nan")


def load_target(
    task: tasks.Task,
    *,
    learning_rate: float = 0.02,
    local_steps: int = 1,
    weights: str = "init",
    zhu: bool = False,
    seed: int = 0,
) -> Target:
    """A task's model, ready to be attacked; its test examples are the victims'.

    Args:
      task: The data and the model.
      learning_rate: Of the clients' SGD.
      local_steps: Of each client.
      weights: `init` for fresh ones; else an .npz of them in Keras' order, or a run
        folder, whose last round's model is read.
      zhu: Whether to take Zhu et al.'s network in place of the task's.
      seed: Of fresh weights and of the order of the examples.

    Raises:
      ArgumentError: If the model is not one that clients train in stacks, or is of
        images and the task is not, or the task's pixels have another range.
      FileError: If the weights are not of this model, or of another task.
    """
    require(local_steps >= 1, "local_steps", local_steps, "a whole number >= 1")
    tf.keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    of_images = np.ndim(task.test_features) == 4
    require(of_images or not zhu, "task", task.name, "one of images for model=zhu")
    most = _most(task) if of_images else None
    keras_model = _zhu_network(task) if zhu else task.build_model()
    model = StackedModel(keras_model)
    if weights != "init":
        held = _read_weights(pathlib.Path(weights), model.shapes, task.name)
        keras_model.set_weights(held)
    order = rng.permutation(len(task.test_labels))
    return Target(
        model=model,
        weights=tuple(w.numpy() for w in keras_model.trainable_weights),
        learning_rate=learning_rate,
        local_steps=local_steps,
        features=np.asarray(task.test_features)[order],
        labels=np.asarray(task.test_labels, np.int32)[order],
        num_classes=task.num_classes,
        max_value=most,
        keras_model=keras_model,
    )


def _most(task: tasks.Task) -> float:
    """The largest value of an image's pixels, whose least is 0."""
    most, least = tasks.TASKS[task.name].max_value, tasks.TASKS[task.name].min_value
    in_one_range = np.ndim(most) == np.ndim(least) == 0 and least == 0.0
    allowed = "one of images whose pixels are from 0 to one number"
    require(in_one_range, "task", task.name, allowed)
    return float(most)


def _zhu_network(task: tasks.Task) -> tf.keras.Sequential:
    layers = tf.keras.layers
    convolution = functools.partial(
        layers.Conv2D, 12, 5, padding="same", activation="sigmoid"
    )
    network = tf.keras.Sequential(
        [
            layers.Input(task.test_features.shape[1:]),
            layers.Rescaling(1.0 / _most(task)),
            *(convolution(strides=strides) for strides in _ZHU_STRIDES),
            layers.Flatten(),
            layers.Dense(task.num_classes),
        ]
    )
    for weight in network.trainable_weights:
        weight.assign(tf.random.uniform(weight.shape, -0.5, 0.5))
    return network


def _read_weights(
    path: pathlib.Path, shapes: tuple[tuple[int, ...], ...], task: str
) -> list[np.ndarray]:
    if path.is_dir():
        found = _trained(path, task)
    elif path.suffix == ".npz" and path.exists():
        found = read_numbers(path)
    else:
        raise ArgumentError("weights", path, "init, an .npz file, or a run folder")
    held = tuple(np.shape(w) for w in found)
    if held != shapes:
        raise FileError(path, f"holds weights of shapes {held}, not {shapes}")
    return found


def _trained(folder: pathlib.Path, task: str) -> list[np.ndarray]:
    """The weights of the model that a finished run of the task left."""
    path = folder / "model" / "last" / "model.keras"
    for name in (path.relative_to(folder), "config.json"):
        if not (folder / name).exists():
            raise FileError(folder, f"holds no finished run: no {name}")
    made = read_json(folder / "config.json")
    flags = made.get("flags") if isinstance(made, dict) else None
    ran = flags.get("task") if isinstance(flags, dict) else None
    if ran != task:
        raise FileError(folder, f"is a run of task {ran}, not {task}")
    return load_keras(path).get_weights()
