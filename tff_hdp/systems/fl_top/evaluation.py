"""Test metrics of the FL-TOP paper's tasks."""

import math
from collections.abc import Callable

import numpy as np
import tensorflow_federated as tff

import tasks
from tff_hdp.simulation.classifier import build_evaluation


def build_fl_top_evaluation(
    task: tasks.Task,
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """As `build_evaluation`; for two classes balanced accuracy and AUROC too."""
    plain = build_evaluation(task)
    if task.num_classes != 2:
        return plain
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    model = task.build_model()

    def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
        weights.assign_weights_to(model)
        logits = model(task.test_features, training=False).numpy()
        guesses = np.argmax(logits, axis=1)
        scores = logits[:, 1] - logits[:, 0]
        # Weights that are still finite may overflow in the model.
        ranked = np.isfinite(scores).all()
        return plain(weights) | {
            "balanced_accuracy": balanced_accuracy_score(task.test_labels, guesses),
            "auroc": roc_auc_score(task.test_labels, scores) if ranked else math.nan,
        }

    return evaluate
