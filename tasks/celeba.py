"""TFF's federated CelebA: who smiles, one client per celebrity."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.dataset import Dataset, Examples
from tasks.federated import FederatedFile
from tasks.models import CNN_SMALL, LENET

if TYPE_CHECKING:
    import tensorflow as tf


def _load(cache_dir: str) -> tuple[Any, Any]:
    import tensorflow_federated as tff

    return tff.simulation.datasets.celeba.load_data(
        split_by_clients=False, cache_dir=cache_dir
    )


def _spec() -> Mapping[str, "tf.io.FixedLenFeature"]:
    import tensorflow as tf

    return {
        "image": tf.io.FixedLenFeature((84, 84, 3), tf.int64),
        "smiling": tf.io.FixedLenFeature((), tf.int64),
    }


def _arrays(parsed: Mapping[str, "tf.Tensor"]) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 84, 84, 3] uint8 and 1 for who smiles."""
    image = parsed["image"].numpy()
    if not ((image >= 0) & (image <= 255)).all():
        raise ValueError("pixels beyond 0..255")
    return image.astype(np.uint8), parsed["smiling"].numpy()


FILE = FederatedFile(
    name="celeba.sqlite",
    origin="https://storage.googleapis.com/tff-datasets-public/celeba.sqlite.lzma",
    load=_load,
    splits=("split_by_examples_train", "split_by_examples_test"),
    spec=_spec,
    arrays=_arrays,
)


def _read(data_dir: Path) -> Examples:
    arrays = FILE.read(data_dir)
    images, labels, celebrities = arrays["train"]
    test_images, test_labels, test_celebrities = arrays["test"]
    return Examples(
        features=images,
        labels=labels,
        test_features=test_images,
        test_labels=test_labels,
        source=(
            "TFF's federated CelebA (Liu et al. 2015, LEAF), attribute `smiling`, "
            f"from {FILE.name}"
        ),
        split=(
            "TFF's own, within each celebrity (177,457 : 22,831 of 9,343 celebrities "
            "in the official file; the UDP-Alg paper states 155,529 : 19,962 of 6,348)"
        ),
        writers=celebrities,
        test_writers=test_celebrities,
    )


CELEBA = Dataset(
    name="celeba",
    num_classes=2,
    class_names=("not smiling", "smiling"),
    input_shape=(84, 84, 3),
    max_value=255,
    models={"lenet": LENET, "cnn_small": CNN_SMALL},
    partitions=("writer", "iid", "dirichlet"),
    num_clients=9343,
    read=_read,
    files=(
        f"Download {FILE.origin} (with a network this is done for you), decompress "
        f"it (unlzma) and put the result there as {FILE.name}; the examples take "
        "4.3 GB of memory. task=digits needs no files."
    ),
)
