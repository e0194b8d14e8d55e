"""Initial weights and metrics of a task's Keras classifier."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks.task import Task


def initial_weights(
    build_model: Callable[[], tf.keras.Model], seed: int | None
) -> tff.learning.models.ModelWeights:
    """A new model's weights as NumPy arrays.

    Args:
      build_model: Returns a new Keras model.
      seed: Fixes them, for tests; it does not reach any noise.
    """
    if seed is not None:
        tf.keras.utils.set_random_seed(seed)
    weights = tff.learning.models.ModelWeights.from_model(build_model())
    if seed is not None:
        # Graphs traced from here on must not inherit the seed: they draw noise.
        tf.random.set_seed(None)
    return tf.nest.map_structure(lambda v: v.numpy(), weights)


def build_evaluation(
    task: Task, batch_size: int = 512
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """Returns a function from model weights to test metrics.

    Args:
      task: Whose model and test set.
      batch_size: Examples at a time.

    Returns:
      A function to `accuracy`, the share classified rightly, and `loss`, the mean
      cross-entropy in nats.
    """
    model = task.build_model()
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    batches = tf.data.Dataset.from_tensor_slices(
        (task.test_features, task.test_labels)
    ).batch(batch_size)

    @tf.function
    def sums() -> tuple[tf.Tensor, tf.Tensor]:
        right, loss = tf.constant(0, tf.int64), tf.constant(0.0)
        for x, y in batches:
            logits = model(x, training=False)
            hits = tf.argmax(logits, 1) == tf.cast(y, tf.int64)
            right += tf.math.count_nonzero(hits)
            loss += tf.reduce_sum(loss_fn(y, logits))
        return right, loss

    def evaluate(weights: Any) -> dict[str, float]:
        weights.assign_weights_to(model)
        right, loss = sums()
        count = len(task.test_labels)
        return {"accuracy": float(right) / count, "loss": float(loss) / count}

    return evaluate


def training_columns(metrics: Any) -> dict[str, float]:
    """Columns of metrics.csv of a round of GFL or HFL-DP.

    Args:
      metrics: The process's: sums `loss` (nats), `correct` and `examples`, and how
        many `clients` there were, were `clipped` and were `rejected`.
    """
    examples = max(float(metrics["examples"]), 1.0)
    return {
        "train_loss": float(metrics["loss"]) / examples,
        "train_accuracy": float(metrics["correct"]) / examples,
        "clients": int(metrics["clients"]),
        "clipped": int(metrics["clipped"]),
        "rejected": int(metrics["rejected"]),
    }
