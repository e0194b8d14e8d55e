"""Breast cancer (Wisconsin, diagnostic): a binary outcome on 30 measurements.

scikit-learn bundles it. Of its 569 tumours 212 are malignant, so accuracy flatters
a classifier that says benign; judge it by balanced accuracy and AUROC.
"""

from pathlib import Path

import numpy as np

from tasks.dataset import Dataset, Examples, pooled_split
from tasks.models import Architecture

# The outcome to predict is class 1; scikit-learn calls the benign ones 1.
MALIGNANT = 1


def _read(_: Path | None) -> Examples:
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer()
    outcome = np.where(loaded.target_names[loaded.target] == "malignant", MALIGNANT, 0)
    return pooled_split(
        to_bytes(loaded.data),
        outcome,
        "scikit-learn's load_breast_cancer (UCI Breast Cancer Wisconsin, diagnostic), "
        "30 measurements each mapped from its range over the set to 0 to 255",
    )


def to_bytes(values: np.ndarray) -> np.ndarray:
    """Each column mapped linearly from its range to whole numbers 0..255.

    The ranges are taken as public: they are those of the whole set.

    Args:
      values: [N, columns] numbers.

    Returns:
      [N, 1, columns, 1] uint8, one example an image of one row.
    """
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = np.round(255 * (values - low) / (high - low)).astype(np.uint8)
    return scaled[:, np.newaxis, :, np.newaxis]


BREAST_CANCER = Dataset(
    name="breast_cancer",
    num_classes=2,
    input_shape=(1, 30, 1),
    max_value=255,
    models={"dnn": Architecture(filters=(), units=32)},
    partitions=("iid", "dirichlet"),
    # Patients are few, and the noise of a round is shared by those who take part:
    # the 455 training examples are two or three a client.
    num_clients=227,
    read=_read,
)
