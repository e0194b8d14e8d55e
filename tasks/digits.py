"""scikit-learn's handwritten digits: small, real, and bundled with it."""

import string
from pathlib import Path

import numpy as np

from tasks.dataset import Dataset, Examples, pooled_split
from tasks.models import Architecture


def _read(_: Path | None) -> Examples:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return pooled_split(
        digits.images.astype(np.uint8)[..., np.newaxis],
        digits.target,
        "scikit-learn's load_digits (UCI Optical Recognition of Handwritten Digits, "
        "test part), 8x8 images of values 0 to 16",
    )


DIGITS = Dataset(
    name="digits",
    num_classes=10,
    class_names=tuple(string.digits),
    input_shape=(8, 8, 1),
    max_value=16,
    # The fewer parameters, the less noise in all: its norm grows with their root.
    models={"dnn": Architecture(filters=(), units=32)},
    partitions=("iid", "dirichlet"),
    # The noise of a round is shared by the clients that take part. 200 clients
    # of 7 examples leave room for zones of 20 and cohorts of 100, the paper's.
    num_clients=200,
    read=_read,
)
