"""TFF's federated EMNIST digits: one client per writer."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tasks import originals
from tasks.dataset import Dataset, Examples
from tasks.models import CNN_LARGE, CNN_SMALL, DNN

if TYPE_CHECKING:
    import tensorflow_federated as tff


def _read(data_dir: Path) -> Examples:
    train, test = originals.load_emnist(data_dir)
    features, labels, writers = _arrays(train)
    test_features, test_labels, _ = _arrays(test)
    return Examples(
        features=features,
        labels=labels,
        test_features=test_features,
        test_labels=test_labels,
        source=(
            "TFF's federated EMNIST digits (LEAF), grey values inverted so that ink "
            f"is 255 as in MNIST, from {originals.EMNIST_FILE}"
        ),
        split=(
            "TFF's own, within each writer (341,873 : 40,832 in the official file, "
            "about 89:11; the HDP paper states 80:20)"
        ),
        writers=writers,
    )


def _arrays(
    data: "tff.simulation.datasets.ClientData",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads all clients' examples.

    One graph reads all clients: a data set per client takes twice as long.

    Args:
      data: Clients with `pixels` [28, 28] float32 in [0, 1] and `label` int32.

    Returns:
      [N, 28, 28, 1] uint8 pixels, inverted; [N] int32 labels; [N] str writers.
    """
    import tensorflow as tf

    def of_client(writer: tf.Tensor) -> tf.data.Dataset:
        return data.serializable_dataset_fn(writer).map(
            lambda example: (
                tf.cast(tf.round(255.0 * (1.0 - example["pixels"])), tf.uint8),
                example["label"],
                writer,
            )
        )

    batches = list(
        tf.data.Dataset.from_tensor_slices(data.client_ids)
        .flat_map(of_client)
        .batch(10_000)
        .as_numpy_iterator()
    )
    features, labels, writers = map(np.concatenate, zip(*batches, strict=True))
    return features[..., np.newaxis], labels, writers.astype(str)


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
