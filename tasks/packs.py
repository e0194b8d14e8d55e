"""Local packs: one .npz file per data set, read with NumPy (and Pillow).

A plain pack holds uint8 `x_train`, `y_train`, `x_test` and `y_test`, and
`writer_train` where writers are known. A strip pack holds RGB images as
lossless WebP strips: the images of a strip lie one below the other, all
strips of a split are joined in `webp_<split>`, and strip i spans the bytes
`off_<split>[i]:off_<split>[i + 1]`.
"""

import io
import itertools
from pathlib import Path

import numpy as np

from tff_hdp.errors import FileError


def read_plain(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a plain pack, by name."""
    with np.load(path) as pack:
        return {name: pack[name] for name in pack.files}


def read_strips(path: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Decodes one split of a strip pack.

    Args:
      path: The pack.
      split: "train" or "test".

    Returns:
      [N, 32, 32, 3] uint8 images and [N] uint8 labels, in the pack's order.

    Raises:
      FileError: If the strips do not hold as many images as there are labels.
    """
    from PIL import Image

    with np.load(path) as pack:
        offsets, joined = pack[f"off_{split}"], pack[f"webp_{split}"]
        labels = pack[f"y_{split}"]
    strips = [
        np.asarray(Image.open(io.BytesIO(joined[begin:end])).convert("RGB"))
        for begin, end in itertools.pairwise(offsets)
    ]
    images = np.concatenate(strips).reshape(-1, 32, 32, 3)
    if len(images) != len(labels):
        raise FileError(
            path, f"{split} holds {len(images)} images and {len(labels)} labels"
        )
    return images, labels
