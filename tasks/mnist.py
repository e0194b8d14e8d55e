"""MNIST with the NIST writer of each digit: one client per writer."""

import string
from pathlib import Path

import numpy as np

from tasks import originals, packs
from tasks.dataset import Dataset, Examples
from tasks.models import CNN_LARGE, CNN_SMALL, DNN, LENET
from tff_hdp.errors import require

PACK = "mnist_qmnist_writers.npz"
ARRAYS = ("x_train", "y_train", "x_test", "y_test", "writer_train")
_IMAGES, _LABELS = map(" and ".join, zip(*originals.MNIST_FILES.values(), strict=True))


def _read(data_dir: Path) -> Examples:
    if (data_dir / PACK).exists():
        arrays = packs.read_plain(data_dir / PACK, *ARRAYS)
        origin = PACK
    else:
        arrays = originals.read_mnist_with_writers(data_dir)
        origin = "the original files"
    # What are no whole numbers would be taken for names.
    writers = arrays["writer_train"]
    ok = writers.dtype.kind in "iu" and writers.ndim == 1
    found = f"{writers.dtype} of shape {writers.shape}"
    require(ok, f"{PACK}.writer_train", found, "whole numbers in a row")
    return Examples(
        features=arrays["x_train"][..., np.newaxis],
        labels=arrays["y_train"],
        test_features=arrays["x_test"][..., np.newaxis],
        test_labels=arrays["y_test"],
        source=f"MNIST with QMNIST's NIST writer ids, from {origin}",
        split="MNIST's own; no writer is in both parts",
        writers=np.array([f"writer_{writer:04d}" for writer in writers]),
    )


MNIST = Dataset(
    name="mnist",
    num_classes=10,
    class_names=tuple(string.digits),
    input_shape=(28, 28, 1),
    max_value=255,
    models={
        "dnn": DNN,
        "lenet": LENET,
        "cnn_small": CNN_SMALL,
        "cnn_large": CNN_LARGE,
    },
    partitions=("writer", "iid", "dirichlet"),
    num_clients=500,
    read=_read,
    files=(
        f"Put there either {PACK}, or four original files, which with a network are "
        f"fetched: {_IMAGES} of MNIST (storage.googleapis.com/cvdf-datasets/mnist) "
        f"and {_LABELS} of QMNIST (github.com/facebookresearch/qmnist). "
        "task=digits needs no files."
    ),
)
