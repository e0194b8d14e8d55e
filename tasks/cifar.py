"""CIFAR-10 and CIFAR-100: 60,000 photographs over 500 clients."""

import dataclasses
import functools
from pathlib import Path

import numpy as np

from tasks import originals, packs
from tasks.dataset import Dataset, Examples, pooled_split
from tasks.models import CNN_LARGE, CNN_SMALL, LENET


def _read(data_dir: Path, *, name: str) -> Examples:
    pack = data_dir / f"{name}_lossless.npz"
    if pack.exists():
        images, labels = zip(
            *(packs.read_strips(pack, split) for split in ("train", "test")),
            strict=True,
        )
        origin = pack.name
    else:
        *train, test_images, test_labels = originals.read_tfds(name, data_dir)
        images, labels = (train[0], test_images), (train[1], test_labels)
        origin = "TensorFlow Datasets"
    return pooled_split(
        np.concatenate(images),
        np.concatenate(labels),
        f"{name.upper().replace('CIFAR', 'CIFAR-')} (Krizhevsky 2009), from {origin}",
    )


def _dataset(name: str, num_classes: int, *class_names: str) -> Dataset:
    return Dataset(
        name=name,
        num_classes=num_classes,
        class_names=class_names,
        input_shape=(32, 32, 3),
        max_value=255,
        models={"cnn_small": CNN_SMALL, "lenet": LENET, "cnn_large": CNN_LARGE},
        partitions=("iid", "dirichlet", "classes"),
        num_clients=500,
        read=functools.partial(_read, name=name),
        files=(
            f"Put there either {name}_lossless.npz, or the folder {name}/ that "
            f"TensorFlow Datasets makes from {originals.TFDS_ORIGINS[name]} (with a "
            f"network this is done for you; elsewhere: tfds build {name} "
            "--data_dir=FOLDER). task=digits needs no files."
        ),
    )


CIFAR10 = _dataset(
    "cifar10",
    10,
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR100 = _dataset("cifar100", 100)
CIFAR10_MIRRORED, CIFAR100_MIRRORED = (
    dataclasses.replace(each, name=f"{each.name}_mirrored", mirrored=True)
    for each in (CIFAR10, CIFAR100)
)
