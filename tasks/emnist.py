"""TFF's federated EMNIST digits: one client per writer."""

from pathlib import Path

import numpy as np

from tasks import originals
from tasks.dataset import Dataset, Examples
from tasks.models import CNN_LARGE, CNN_SMALL, DNN


def _read(data_dir: Path) -> Examples:
    arrays = originals.read_emnist(data_dir)
    grey, labels, writers = arrays["train"]
    test_grey, test_labels, _ = arrays["test"]
    return Examples(
        features=255 - grey[..., np.newaxis],
        labels=labels,
        test_features=255 - test_grey[..., np.newaxis],
        test_labels=test_labels,
        source=(
            "TFF's federated EMNIST digits (LEAF), grey levels inverted so that ink "
            f"is 255 as in MNIST, from {originals.EMNIST_FILE}"
        ),
        split=(
            "TFF's own, within each writer (341,873 : 40,832 in the official file, "
            "about 89:11; the HDP paper states 80:20)"
        ),
        writers=writers,
    )


EMNIST = Dataset(
    name="emnist",
    num_classes=10,
    input_shape=(28, 28, 1),
    max_value=255,
    models={"dnn": DNN, "cnn_small": CNN_SMALL, "cnn_large": CNN_LARGE},
    partitions=("writer", "iid", "dirichlet"),
    num_clients=3383,
    read=_read,
    files=(
        f"Download {originals.EMNIST_ORIGIN} (with a network this is done for you), "
        f"decompress it (unlzma) and put the result there as {originals.EMNIST_FILE}. "
        "Instead, --task=mnist uses digits of the same NIST origin, also by writer, "
        "and --task=digits needs no files."
    ),
)
