"""MNIST at 7x7 pixels, for models of so few weights that much noise is borne."""

import dataclasses
from pathlib import Path

import numpy as np

from tasks.dataset import Examples
from tasks.mnist import MNIST
from tasks.models import Architecture

# Pixels of MNIST to a side of one pixel here.
BLOCK = 4


def coarse(images: np.ndarray) -> np.ndarray:
    """The mean grey level of every block of pixels, float32.

    Args:
      images: [N, H, W, 1] of any number type; blocks fit into H and W.

    Returns:
      [N, H / BLOCK, W / BLOCK, 1].
    """
    count, height, width, _ = images.shape
    shape = count, height // BLOCK, BLOCK, width // BLOCK, BLOCK, 1
    return images.reshape(shape).mean(axis=(2, 4), dtype=np.float32)


def _read(data_dir: Path) -> Examples:
    digits = MNIST.read(data_dir)
    return dataclasses.replace(
        digits,
        features=coarse(digits.features),
        test_features=coarse(digits.test_features),
        source=f"{digits.source}; blocks of {BLOCK}x{BLOCK} pixels averaged",
    )


COARSE_MNIST = dataclasses.replace(
    MNIST,
    name="coarse_mnist",
    input_shape=(7, 7, 1),
    models={"dnn": Architecture(filters=(), units=32)},
    partitions=("iid", "writer", "dirichlet"),
    num_clients=6000,
    read=_read,
)
