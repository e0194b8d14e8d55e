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


# The ranges of the 30 columns over the whole set, as scikit-learn's page states them;
# they are taken as public.
LOWEST = (
    # Of cell nuclei: mean, standard error, worst.
    *(6.981, 9.71, 43.79, 143.5, 0.05263, 0.01938, 0, 0, 0.106, 0.04996),
    *(0.1115, 0.3602, 0.757, 6.802, 0.001713, 0.002252, 0, 0, 0.007882, 0.0008948),
    *(7.93, 12.02, 50.41, 185.2, 0.07117, 0.02729, 0, 0, 0.1565, 0.05504),
)
HIGHEST = (
    # Of cell nuclei: mean, standard error, worst.
    *(28.11, 39.28, 188.5, 2501.0, 0.1634, 0.3454, 0.4268, 0.2012, 0.304, 0.09744),
    *(2.873, 4.885, 21.98, 542.2, 0.03113, 0.1354, 0.396, 0.05279, 0.07895, 0.02984),
    *(36.04, 49.54, 251.2, 4254.0, 0.2226, 1.058, 1.252, 0.291, 0.6638, 0.2075),
)


def _read(_: Path | None) -> Examples:
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer()
    outcome = np.where(loaded.target_names[loaded.target] == "malignant", MALIGNANT, 0)
    return pooled_split(
        loaded.data.astype(np.float32),
        outcome,
        "scikit-learn's load_breast_cancer (UCI Breast Cancer Wisconsin, diagnostic), "
        "30 measurements",
    )


BREAST_CANCER = Dataset(
    name="breast_cancer",
    num_classes=2,
    class_names=("benign", "malignant"),
    input_shape=(30,),
    min_value=LOWEST,
    max_value=HIGHEST,
    models={"dnn": Architecture(filters=(), units=32)},
    partitions=("iid", "dirichlet"),
    # Patients are few, and the noise of a round is shared by those who take part:
    # the 455 training examples are two or three a client.
    num_clients=227,
    read=_read,
)
