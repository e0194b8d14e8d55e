"""Drawing and testing a task's Keras classifier."""

import contextlib
import pathlib
import random
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.task import Task
from tff_hdp.errors import FileError

# From features and their clients to classes.
Classify = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
Evaluate = Callable[[tff.learning.models.ModelWeights], dict[str, float]]
_BATCH = 512
_EVALUATIONS: "weakref.WeakKeyDictionary[Task, Evaluate]" = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draws what Keras draws meanwhile from a seed, for tests; None from anywhere.

    Graphs traced later do not inherit the seed: they draw noise. Nor does the next
    model of the process. Python's and NumPy's own generators are left as they were; a
    seed that the program gave Keras and TensorFlow is forgotten.
    """
    if seed is None:
        yield
        return
    python, numpy = random.getstate(), np.random.get_state()
    tf.keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        # Keras keeps a generator of its own, which models to come would draw from.
        tf.keras.utils.set_random_seed(secrets.randbelow(2**32))
        tf.random.set_seed(None)
        random.setstate(python)
        np.random.set_state(numpy)


def evaluation_of(task: Task) -> Evaluate:
    """The evaluation of a task, one for all runs that share the object."""
    if task not in _EVALUATIONS:
        _EVALUATIONS[task] = build_evaluation(task)
    return _EVALUATIONS[task]


def build_evaluation(task: Task, batch_size: int = _BATCH) -> Evaluate:
    """Returns a function from model weights to test metrics.

    Returns:
      A function to `accuracy`, the share classified rightly, and `loss`, the mean
      cross-entropy in nats.
    """
    model = task.build_model()
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    features, labels = tf.constant(task.test_features), tf.constant(task.test_labels)

    def add(
        start: tf.Tensor, right: tf.Tensor, loss: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x, y = (t[start : start + batch_size] for t in (features, labels))
        logits = model(x, training=False)
        hits = tf.argmax(logits, 1) == tf.cast(y, tf.int64)
        right += tf.math.count_nonzero(hits)
        return start + batch_size, right, loss + tf.reduce_sum(loss_fn(y, logits))

    own = tff.learning.models.ModelWeights.from_model(model)
    variables = [*own.trainable, *own.non_trainable]

    # AutoGraph would take as long as all tests of a short run.
    @tf.function(autograph=False)
    def sums(*weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for variable, value in zip(variables, weights, strict=True):
            variable.assign(value)
        none = (tf.constant(0), tf.constant(0, tf.int64), tf.constant(0.0))
        _, right, loss = tf.while_loop(lambda start, *_: start < len(labels), add, none)
        return right, loss

    # As itself, it would be warned of where many runs in one process have one each.
    specs = [tf.TensorSpec(v.shape, v.dtype) for v in variables]
    dtypes = [v.dtype for v in variables]
    traced, count = sums.get_concrete_function(*specs), len(task.test_labels)

    # Runs that share a task share the model.
    one_at_a_time = threading.Lock()

    def evaluate(weights: Any) -> dict[str, float]:
        values = (*weights.trainable, *weights.non_trainable)
        tensors = list(map(tf.constant, values, dtypes))
        with one_at_a_time:
            # Called itself, it takes longer to look at its arguments than to test a
            # little model.
            right, loss = traced._call_flat(tensors, traced.captured_inputs)
        return {"accuracy": float(right) / count, "loss": float(loss) / count}

    return evaluate


def save_classifier(
    model: tf.keras.Model, features: np.ndarray, path: pathlib.Path
) -> None:
    """Writes a classifier of raw features as a Keras file and as a SavedModel.

    Args:
      model: From features to logits, preprocessing included.
      features: [N, ...], examples of what it takes.
      path: The folder that gets `model.keras` and `saved_model/`, whose signature
        takes `features` as stored and gives `logits` and `probabilities`.

    Raises:
      FileError: If TensorFlow cannot write the SavedModel, as on a full disk.
      OSError: If Keras cannot write its file.
    """
    model.save(path / "model.keras")
    spec = tf.TensorSpec([None, *features.shape[1:]], features.dtype, "features")

    @tf.function(input_signature=[spec], autograph=False)
    def serve(features: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = model(features, training=False)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    module = tf.Module()
    module.kept = model.variables
    folder = path / "saved_model"
    try:
        tf.saved_model.save(module, str(folder), signatures=serve)
    except tf.errors.OpError as error:
        # What TensorFlow says of files is no OSError, and begins with its operation.
        reason = error.message.rpartition("}} ")[2]
        raise FileError(folder, f"cannot be written: {reason}") from error


def load_classifier(path: pathlib.Path, num_classes: int) -> Classify:
    """What `save_classifier` wrote, one for the examples of all clients.

    Args:
      path: The folder with `model.keras`.
      num_classes: How many classes it must tell apart; see `classes`.

    Raises:
      FileError: If that file is damaged or missing.
    """
    model = load_keras(path / "model.keras")
    return lambda features, _: classes(model, features, num_classes)


def load_keras(path: pathlib.Path) -> tf.keras.Model:
    """A model that Keras saved in a file.

    Raises:
      FileError: If the file is damaged or missing.
    """
    try:
        return tf.keras.models.load_model(path)
    except Exception as error:  # Those of zip, JSON, HDF5 and Keras share no base.
        raise FileError(path, f"is damaged, or no Keras model: {error}") from error


def logits_of(model: tf.keras.Model, features: np.ndarray) -> np.ndarray:
    """[N, classes], what a model makes of [N, ...] features, some at a time."""
    starts = range(0, len(features), _BATCH)
    batches = (features[start : start + _BATCH] for start in starts)
    found = [np.asarray(model(batch, training=False)) for batch in batches]
    return np.concatenate(found)


def classes(
    model: tf.keras.Model, features: np.ndarray, num_classes: int
) -> np.ndarray:
    """[N] int64, the class of each of [N, ...] features by a model of logits.

    Raises:
      ValueError: If what it gives are no finite [N, num_classes].
    """
    logits, shape = logits_of(model, features), (len(features), num_classes)
    if logits.shape != shape:
        raise ValueError(f"logits of shape {logits.shape}, where {shape} is wanted")
    if not np.isfinite(logits).all():
        raise ValueError("logits that are not all finite")
    return np.argmax(logits, -1)
