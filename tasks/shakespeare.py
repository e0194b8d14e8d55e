"""TFF's federated Shakespeare: next characters, one client per part in a play."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.dataset import Examples
from tasks.federated import FederatedFile
from tasks.text import joined, text_dataset, windows

if TYPE_CHECKING:
    import tensorflow as tf


def _load(cache_dir: str) -> tuple[Any, Any]:
    import tensorflow_federated as tff

    return tff.simulation.datasets.shakespeare.load_data(cache_dir)


def _spec() -> Mapping[str, "tf.io.FixedLenFeature"]:
    import tensorflow as tf

    return {"snippets": tf.io.FixedLenFeature((), tf.string)}


def _arrays(parsed: Mapping[str, "tf.Tensor"]) -> tuple[np.ndarray, np.ndarray]:
    """Snippets of text, [N] bytes, and no labels yet."""
    snippets = parsed["snippets"].numpy()
    return snippets, np.zeros(len(snippets), np.int32)


FILE = FederatedFile(
    name="shakespeare.sqlite",
    origin="https://storage.googleapis.com/tff-datasets-public/shakespeare.sqlite.lzma",
    load=_load,
    splits=("train", "test"),
    spec=_spec,
    arrays=_arrays,
)


def _read(data_dir: Path) -> Examples:
    parts = {}
    for split, (snippets, _, roles) in FILE.read(data_dir).items():
        texts = (snippet.decode("utf-8", "replace") for snippet in snippets)
        parts[split] = joined(zip(roles, map(windows, texts), strict=True))
    features, labels, writers = parts["train"]
    test_features, test_labels, test_writers = parts["test"]
    return Examples(
        features=features,
        labels=labels,
        test_features=test_features,
        test_labels=test_labels,
        source=(
            "TFF's federated Shakespeare (LEAF), letters without case, from "
            f"{FILE.name}"
        ),
        split="TFF's own, within each part (16,068 : 2,356 snippets of 715 parts)",
        writers=writers,
        test_writers=test_writers,
    )


SHAKESPEARE = text_dataset(
    name="shakespeare",
    num_clients=715,
    read=_read,
    files=(
        f"Download {FILE.origin} (with a network this is done for you), decompress it "
        f"(unlzma) and put the result there as {FILE.name}. Instead, task=pages "
        "predicts characters of bundled pages; task=digits needs no files either."
    ),
)
