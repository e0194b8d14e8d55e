"""Local packs: one .npz file per data set, read with NumPy (and Pillow).

A plain pack holds uint8 `x_train`, `y_train`, `x_test` and `y_test`, and
`writer_train` where writers are known. A strip pack holds RGB images as
lossless WebP strips: the images of a strip lie one below the other, all
strips of a split are joined in `webp_<split>`, and strip i spans the bytes
`off_<split>[i]:off_<split>[i + 1]`.
"""

import io
import itertools
import zipfile
import zlib
from pathlib import Path

import numpy as np

from tff_hdp.errors import FileError

# What NumPy makes of files that are none of its own, or cut short.
_BROKEN = (
    *(AttributeError, EOFError, KeyError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)


def read_plain(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Arrays of a pack, by name.

    Raises:
      FileError: If it is no pack, has not all of them, or its pixels are not uint8.
    """
    try:
        with np.load(path) as pack:
            arrays = {name: pack[name] for name in names}
    except _BROKEN as error:
        words = ", ".join(names)
        raise FileError(path, f"is no pack of {words}: {error}") from error
    for name, array in arrays.items():
        # Models divide by 255, whatever they are given.
        if name.startswith("x_") and array.dtype != np.uint8:
            raise FileError(path, f"{name} is {array.dtype}, not uint8")
    return arrays


def read_strips(path: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Decodes one split of a strip pack.

    Args:
      path: The pack.
      split: "train" or "test".

    Returns:
      [N, 32, 32, 3] uint8 images and [N] uint8 labels, in the pack's order.

    Raises:
      FileError: If the strips do not hold as many images as there are labels, or an
        array is no row of whole numbers.
    """
    from PIL import Image

    arrays = read_plain(path, *(f"{name}_{split}" for name in ("off", "webp", "y")))
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "iu":
            found = f"{array.dtype} of shape {array.shape}"
            raise FileError(path, f"{name} is {found}, not whole numbers in a row")
    offsets, joined, labels = arrays.values()
    try:
        strips = [
            np.asarray(Image.open(io.BytesIO(joined[begin:end])).convert("RGB"))
            for begin, end in itertools.pairwise(offsets)
        ]
        images = np.concatenate(strips).reshape(-1, 32, 32, 3)
    except (OSError, TypeError, ValueError) as error:
        # The first is Pillow's, of what is no picture.
        raise FileError(
            path, f"{split} holds other things than strips of images: {error}"
        ) from error
    if len(images) != len(labels):
        raise FileError(
            path, f"{split} holds {len(images)} images and {len(labels)} labels"
        )
    return images, labels
