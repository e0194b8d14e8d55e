"""The HDP paper's Table II: its data sets as printed, and those that are at hand."""

import math
from typing import Any

import pandas as pd

import tasks

# As printed: size of an image, images, classes, n.
PRINTED = {
    "EMNIST": ("28x28x1", 382_705, 10, 3383),
    "CIFAR-10": ("32x32x3", 60_000, 10, 500),
    "CIFAR-100": ("32x32x3", 60_000, 100, 500),
}
# What stands for each here, the paper's own first.
_TASKS = {
    "EMNIST": ("emnist", "mnist"),
    "CIFAR-10": ("cifar10",),
    "CIFAR-100": ("cifar100",),
}
# k, a round's clients in the paper's Figure 2.
_COHORT = 100


def table_ii(data_dir: str | None) -> list[dict[str, Any]]:
    """A row for each printed set and what stands for it here.

    Args:
      data_dir: Where local sets lie; None takes the environment's.

    Returns:
      What is printed, and of the task its own: of a set that is not at hand all that
      must be counted is missing. `training` is the share of images that clients have,
      `q` a client's chance to be one of a round's hundred.
    """
    return [
        {
            "data_set": name,
            **dict(zip(("size", "images", "classes", "n"), printed, strict=True)),
            **_found(task, data_dir),
        }
        for name, printed in PRINTED.items()
        for task in _TASKS[name]
    ]


def _found(name: str, data_dir: str | None) -> dict[str, Any]:
    dataset = tasks.TASKS[name]
    found = {
        "task": name,
        "own_size": "x".join(map(str, dataset.input_shape)),
        "own_images": pd.NA,
        "own_classes": dataset.num_classes,
        "clients": pd.NA,
        "training": math.nan,
        "q": math.nan,
    }
    try:
        task = tasks.load(name, data_dir=data_dir)
    except tasks.DataNotFoundError:
        return found
    training, clients = len(task.train.labels), len(task.train.client_ids)
    images = training + len(task.test_labels)
    return found | {
        "own_images": images,
        "clients": clients,
        "training": training / images,
        "q": _COHORT / clients,
    }
