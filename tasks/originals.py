"""The public originals of the data sets, fetched into the data folder.

Each reader uses what is already in the folder and otherwise downloads it.
"""

import contextlib
import gzip
import hashlib
import http.client
import math
import os
import struct
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tff_hdp.errors import FileError

TIMEOUT_SECONDS = 10

TFDS_ORIGINS = {
    "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "cifar100": "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
}
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
      FileError: If what is prepared is damaged.
    """
    import tensorflow_datasets as tfds

    with readable(data_dir / name, "is no folder of TensorFlow Datasets'"):
        builder = tfds.builder(name, data_dir=data_dir)
    # Of a folder that is not there it would warn.
    if not (builder.data_path.is_dir() and builder.is_prepared()):
        check_reachable(TFDS_ORIGINS[name], missing=f"{name}/{builder.version}/")
        try:
            builder.download_and_prepare()
        except Exception as error:  # Its download errors have no common base.
            raise UnavailableError(f"preparing {name} failed: {error}") from error
    arrays = []
    with readable(data_dir / name, "is no folder of TensorFlow Datasets'"):
        for split in ("train", "test"):
            whole = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
            arrays += [whole["image"], whole["label"]]
    return tuple(arrays)


@contextlib.contextmanager
def readable(path: Path, problem: str) -> Iterator[None]:
    """Raises FileError for whatever a library that reads `path` makes of damage.

    SQLite's errors, TensorFlow's and those of its libraries share no base.
    """
    try:
        yield
    except (FileError, OSError, MemoryError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise FileError(path, f"{problem}: {said}") from error


def read_mnist_with_writers(data_dir: Path) -> dict[str, np.ndarray]:
    """Reads MNIST's images and, from QMNIST, their labels and writers.

    Args:
      data_dir: Folder of the files named in `MNIST_FILES`.

    Returns:
      x_train [60000, 28, 28] and x_test [10000, 28, 28] uint8; y_train, y_test,
      writer_train and writer_test int32.

    Raises:
      UnavailableError: If a file is missing and cannot be downloaded.
      FileError: If images or labels are not MNIST's own.
    """
    arrays = {}
    for split, (images, labels) in MNIST_FILES.items():
        for origin, file in ((_MNIST, images), (_QMNIST, labels)):
            if not (data_dir / file).exists():
                _fetch(origin + file, data_dir / file)
        pixels = read_idx(data_dir / images)
        # QMNIST goes on where MNIST's test set ends.
        table = read_idx(data_dir / labels)[: len(pixels)].astype(np.int32)
        _check_md5(pixels, f"{split} images", data_dir / images)
        if table.ndim != 2 or table.shape[1] < 3:
            raise FileError(data_dir / labels, "is without writers, so not QMNIST's")
        digits = table[:, 0].astype(np.uint8)
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
      FileError: If the file is not of that format.
    """
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(path, f"is damaged: {error}") from error
    types = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in types:
        raise FileError(path, "is not an IDX file of bytes or 32-bit integers")
    dtype, start = types[content[2]], 4 + 4 * content[3]
    if len(content) < start:
        raise FileError(path, f"states {content[3]} axes and ends before their sizes")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    wanted, found = math.prod(shape) * dtype.itemsize, len(content) - start
    if wanted != found:
        raise FileError(
            path, f"states shape {shape} and holds {found} bytes of {wanted}"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


def check_reachable(url: str, *, missing: str) -> None:
    """Fails soon where the downloaders of others would retry for minutes.

    Args:
      url: What they would fetch.
      missing: The file or folder that is wanted.

    Raises:
      UnavailableError: If the host does not answer.
    """
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
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(
            f"{path.name} is not there and {url} could not be fetched ({error})"
        ) from error


def _check_md5(values: np.ndarray, what: str, path: Path) -> None:
    """Compares uint8 values, written as an IDX file, with the official file."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    found = hashlib.md5(header + values.tobytes(), usedforsecurity=False).hexdigest()
    if found != _MNIST_MD5[what]:
        raise FileError(
            path, f"does not hold MNIST's {what}: MD5 {found}, not {_MNIST_MD5[what]}"
        )
