"""The public originals of the data sets, fetched into the data folder.

Each reader uses what is already in the folder and otherwise downloads it.
"""

import contextlib
import gzip
import hashlib
import os
import sqlite3
import struct
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

TIMEOUT_SECONDS = 10

TFDS_ORIGINS = {
    "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "cifar100": "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
}
EMNIST_ORIGIN = (
    "https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma"
)
EMNIST_FILE = "emnist_all.sqlite"
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_QMNIST = (
    "https://github.com/facebookresearch/qmnist/raw/"
    "94061367ec2e099ea18c553c75727ecf849ddb9b/"
)
# QMNIST's extended labels follow the order of MNIST and add the NIST writers.
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte.gz", "qmnist-train-labels-idx2-int.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "qmnist-test-labels-idx2-int.gz"),
}
# MD5 of the official MNIST files, decompressed.
_MNIST_MD5 = {
    "train images": "6bbc9ace898e44ae57da46a324031adb",
    "train labels": "a25bea736e30d166cdddb491f175f624",
    "test images": "2646ac647ad5339dbf082846283269ea",
    "test labels": "27ae3e4e09519cfbb04c329615203637",
}


class UnavailableError(OSError):
    """An original is not in the data folder and could not be fetched."""


def read_tfds(
    name: str, data_dir: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reads an image data set with TensorFlow Datasets.

    Args:
      name: One of `TFDS_ORIGINS`.
      data_dir: TensorFlow Datasets' folder, which holds `<name>/<version>/`.

    Returns:
      Training images [N, height, width, channels] uint8 and labels [N] int64,
      and the same for the test split.

    Raises:
      UnavailableError: If the set is neither prepared nor can be downloaded.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=data_dir)
    if not builder.is_prepared():
        _check_reachable(TFDS_ORIGINS[name], missing=f"{name}/{builder.version}/")
        try:
            builder.download_and_prepare()
        except Exception as error:  # Its download errors have no common base.
            raise UnavailableError(f"preparing {name} failed: {error}") from error
    arrays = []
    for split in ("train", "test"):
        whole = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
        arrays += [whole["image"], whole["label"]]
    return tuple(arrays)


def read_mnist_with_writers(data_dir: Path) -> dict[str, np.ndarray]:
    """Reads MNIST's images and, from QMNIST, their labels and writers.

    Args:
      data_dir: Folder of the files named in `MNIST_FILES`.

    Returns:
      x_train [60000, 28, 28] and x_test [10000, 28, 28] uint8; y_train, y_test,
      writer_train and writer_test int32.

    Raises:
      UnavailableError: If a file is missing and cannot be downloaded.
      ValueError: If images or labels are not MNIST's own.
    """
    arrays = {}
    for split, (images, labels) in MNIST_FILES.items():
        for origin, file in ((_MNIST, images), (_QMNIST, labels)):
            if not (data_dir / file).exists():
                _fetch(origin + file, data_dir / file)
        pixels = read_idx(data_dir / images)
        # QMNIST goes on where MNIST's test set ends.
        table = read_idx(data_dir / labels)[: len(pixels)].astype(np.int32)
        digits = table[:, 0].astype(np.uint8)
        _check_md5(pixels, f"{split} images", data_dir / images)
        _check_md5(digits, f"{split} labels", data_dir / labels)
        arrays[f"x_{split}"] = pixels
        arrays[f"y_{split}"] = table[:, 0]
        arrays[f"writer_{split}"] = table[:, 2]
    return arrays


def read_idx(path: Path) -> np.ndarray:
    """Reads a gzipped IDX file of unsigned bytes or 32-bit integers.

    Args:
      path: The file.

    Returns:
      The array, of the shape and (big-endian) type the file states.

    Raises:
      ValueError: If the file is not of that format.
    """
    with gzip.open(path) as file:
        content = file.read()
    types = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in types:
        raise ValueError(f"{path} is not an IDX file of bytes or 32-bit integers")
    num_axes = content[3]
    shape = struct.unpack_from(f">{num_axes}I", content, 4)
    values = np.frombuffer(content, types[content[2]], offset=4 + 4 * num_axes)
    if values.size != np.prod(shape):
        raise ValueError(f"{path} states shape {shape} and holds {values.size} values")
    return values.reshape(shape)


def read_emnist(
    data_dir: Path,
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Reads TFF's federated EMNIST digits.

    Args:
      data_dir: Folder of `emnist_all.sqlite`.

    Returns:
      For "train" and "test": [N, 28, 28] uint8 grey levels, 255 the paper; [N]
      int64 labels; [N] str writers.

    Raises:
      UnavailableError: If the file is missing and cannot be downloaded.
      ValueError: If the file's examples are not those of its writers.
    """
    if (data_dir / EMNIST_FILE).exists():
        return _read_emnist(data_dir)
    _check_reachable(EMNIST_ORIGIN, missing=EMNIST_FILE)
    # TFF would take a half-written file for a whole one the next time, so it
    # downloads beside, and what it got moves in once it has been read whole.
    try:
        with tempfile.TemporaryDirectory(dir=data_dir) as partial:
            arrays = _read_emnist(Path(partial))
            os.replace(Path(partial, EMNIST_FILE), data_dir / EMNIST_FILE)
    except (OSError, sqlite3.Error, ValueError) as error:
        raise UnavailableError(f"fetching {EMNIST_FILE} failed: {error}") from error
    return arrays


def _read_emnist(
    folder: Path,
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    import tensorflow_federated as tff

    clients = tff.simulation.datasets.emnist.load_data(cache_dir=str(folder))
    path = folder / EMNIST_FILE
    arrays = {}
    for split, of_split in zip(("train", "test"), clients, strict=True):
        arrays[split] = _read_emnist_split(path, f"digits_only_{split}")
        if sorted(set(arrays[split][2])) != of_split.client_ids:
            raise ValueError(f"{path} lists other writers than its examples have")
    return arrays


def _read_emnist_split(
    path: Path, split: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads a split in one pass; TFF's queries scan the file once per client."""
    import tensorflow as tf

    spec = {
        "pixels": tf.io.FixedLenFeature((28, 28), tf.float32),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }
    pixels, labels, writers = [], [], []
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute(
            "SELECT client_id, serialized_example_proto FROM examples "
            "WHERE split_name = ?",
            (split,),
        )
        while batch := rows.fetchmany(10_000):
            owners, protos = zip(*batch, strict=True)
            parsed = tf.io.parse_example(list(protos), spec)
            pixels.append(np.round(255 * parsed["pixels"].numpy()).astype(np.uint8))
            labels.append(parsed["label"].numpy())
            writers.append(np.array(owners))
    return np.concatenate(pixels), np.concatenate(labels), np.concatenate(writers)


def _check_reachable(url: str, *, missing: str) -> None:
    """Fails soon where the downloaders of others would retry for minutes."""
    request = urllib.request.Request(url, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:
        return  # Refusing HEAD is an answer too: the host is there.
    except OSError as error:
        raise UnavailableError(
            f"{missing} is not there and {url} cannot be reached ({error})"
        ) from error


def _fetch(url: str, path: Path) -> None:
    """Downloads a small file; `path` appears only once it is complete."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            content = response.read()
        with tempfile.TemporaryDirectory(dir=path.parent) as partial:
            Path(partial, path.name).write_bytes(content)
            os.replace(Path(partial, path.name), path)
    except OSError as error:
        raise UnavailableError(
            f"{path.name} is not there and {url} could not be fetched ({error})"
        ) from error


def _check_md5(values: np.ndarray, what: str, path: Path) -> None:
    """Compares uint8 values, written as an IDX file, with the official file."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    found = hashlib.md5(header + values.tobytes(), usedforsecurity=False).hexdigest()
    if found != _MNIST_MD5[what]:
        raise ValueError(
            f"{path} does not hold MNIST's {what}: MD5 {found}, not {_MNIST_MD5[what]}"
        )
