"""Next-character prediction: texts as windows of character ids, by who wrote them."""

from collections.abc import Iterable

import numpy as np

from tasks.dataset import Dataset
from tasks.models import TextArchitecture

# Letters without case, one figure for all; whatever else is one character more.
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz0.,:;!?'\"()-"
NUM_CLASSES = len(ALPHABET) + 1
# Characters read before the one to tell, and from one to be told to the next.
WINDOW, STEP = 16, 4
MODELS = {
    "dnn": TextArchitecture(units=64, recurrent=False),
    "gru": TextArchitecture(units=64, recurrent=True),
}
# For whoever has the model alone.
ENCODING = {
    "alphabet": ALPHABET,
    "window": WINDOW,
    "rule": (
        "A character's id is its place in the alphabet, from 0; letters are taken as "
        "small and figures as 0; any other character has the alphabet's length. "
        f"Features are the ids of the {WINDOW} characters before the one to tell, with "
        "line breaks before a text's beginning. Class i is the character of id i."
    ),
}
_TABLE = np.full(128, len(ALPHABET), np.uint8)
_TABLE[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(len(ALPHABET))
_TABLE[ord("0") : ord("9") + 1] = ALPHABET.index("0")

Windows = tuple[np.ndarray, np.ndarray]


def encode(text: str) -> np.ndarray:
    """The ids of a text's characters, uint8 [len(text)] of 0..NUM_CLASSES - 1."""
    # Lower case one by one, as some characters would become two.
    lower = "".join(c.lower() if c.isascii() else "~" for c in text)
    return _TABLE[np.frombuffer(lower.encode(), np.uint8)]


def windows(text: str, begin: int = 0, end: int | None = None) -> Windows:
    """Every `STEP`-th character of a text with those before it.

    Args:
      text: Before which stand `WINDOW` line breaks.
      begin: The first character to tell.
      end: The first not to tell any more; None goes to the end.

    Returns:
      Features uint8 [n, WINDOW], and labels int32 [n].
    """
    before, after = np.zeros(WINDOW, np.uint8), np.zeros(1, np.uint8)
    ids = np.concatenate([before, encode(text), after])
    seen = np.lib.stride_tricks.sliding_window_view(ids, WINDOW + 1)[: len(text)]
    seen = seen[begin:end:STEP]
    return seen[:, :-1].copy(), seen[:, -1].astype(np.int32)


def joined(parts: Iterable[tuple[str, Windows]]) -> tuple[np.ndarray, ...]:
    """Features, labels and writers of windows by writer."""
    writers, made = zip(*parts, strict=True)
    features, labels = zip(*made, strict=True)
    sizes = [len(each) for each in labels]
    return np.concatenate(features), np.concatenate(labels), np.repeat(writers, sizes)


def text_dataset(**fields: object) -> Dataset:
    """A `Dataset` of windows; `fields` are those in which such data sets differ."""
    return Dataset(
        num_classes=NUM_CLASSES,
        class_names=(*ALPHABET, "any other character"),
        encoding=ENCODING,
        input_shape=(WINDOW,),
        max_value=None,
        models=MODELS,
        partitions=("writer", "iid", "dirichlet"),
        **fields,
    )
