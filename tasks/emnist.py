"""TFF's federated EMNIST, one client per writer: digits, and all 62 classes."""

import functools
import string
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.dataset import Dataset, Examples
from tasks.federated import FederatedFile
from tasks.models import CNN_LARGE, CNN_SMALL, DNN, LENET

if TYPE_CHECKING:
    import tensorflow as tf


def _load(cache_dir: str, *, only_digits: bool) -> tuple[Any, Any]:
    import tensorflow_federated as tff

    return tff.simulation.datasets.emnist.load_data(only_digits, cache_dir)


def _spec() -> Mapping[str, "tf.io.FixedLenFeature"]:
    import tensorflow as tf

    return {
        "pixels": tf.io.FixedLenFeature((28, 28), tf.float32),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }


def _arrays(parsed: Mapping[str, "tf.Tensor"]) -> tuple[np.ndarray, np.ndarray]:
    """Grey levels [N, 28, 28] uint8, 255 the paper, and labels."""
    pixels = parsed["pixels"].numpy()
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("pixels beyond 0..1")
    return np.round(255 * pixels).astype(np.uint8), parsed["label"].numpy()


def _file(only_digits: bool) -> FederatedFile:
    part = "digits_only" if only_digits else "all"
    return FederatedFile(
        name="emnist_all.sqlite",
        origin=(
            "https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma"
        ),
        load=functools.partial(_load, only_digits=only_digits),
        splits=(f"{part}_train", f"{part}_test"),
        spec=_spec,
        arrays=_arrays,
    )


DIGITS_FILE = _file(only_digits=True)
ALL_FILE = _file(only_digits=False)


def _read(data_dir: Path, *, file: FederatedFile, kind: str, split: str) -> Examples:
    arrays = file.read(data_dir)
    grey, labels, writers = arrays["train"]
    test_grey, test_labels, test_writers = arrays["test"]
    return Examples(
        features=255 - grey[..., np.newaxis],
        labels=labels,
        test_features=255 - test_grey[..., np.newaxis],
        test_labels=test_labels,
        source=(
            f"TFF's federated EMNIST {kind} (LEAF), grey levels inverted so that ink "
            f"is 255 as in MNIST, from {file.name}"
        ),
        split=split,
        writers=writers,
        test_writers=test_writers,
    )


def _dataset(
    name: str,
    *,
    class_names: str,
    num_clients: int,
    file: FederatedFile,
    kind: str,
    split: str,
) -> Dataset:
    return Dataset(
        name=name,
        num_classes=len(class_names),
        class_names=tuple(class_names),
        input_shape=(28, 28, 1),
        max_value=255,
        models={
            "dnn": DNN,
            "lenet": LENET,
            "cnn_small": CNN_SMALL,
            "cnn_large": CNN_LARGE,
        },
        partitions=("writer", "iid", "dirichlet"),
        num_clients=num_clients,
        read=functools.partial(_read, file=file, kind=kind, split=split),
        files=(
            f"Download {file.origin} (with a network this is done for you), "
            f"decompress it (unlzma) and put the result there as {file.name}. "
            "Instead, task=mnist uses digits of the same NIST origin, also by "
            "writer, and task=digits needs no files."
        ),
    )


EMNIST = _dataset(
    "emnist",
    class_names=string.digits,
    num_clients=3383,
    file=DIGITS_FILE,
    kind="digits",
    split=(
        "TFF's own, within each writer (341,873 : 40,832 in the official file, "
        "about 89:11; the HDP paper states 80:20)"
    ),
)
FEMNIST = _dataset(
    "femnist",
    class_names=string.digits + string.ascii_uppercase + string.ascii_lowercase,
    num_clients=3400,
    file=ALL_FILE,
    kind="digits and letters",
    split=(
        "TFF's own, within each writer (671,585 : 77,483 in the official file; the "
        "UDP-Alg paper states 600,000 : 150,000)"
    ),
)
