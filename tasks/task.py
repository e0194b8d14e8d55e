"""What a training task is: clients' examples, a test set and a model."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_hdp.errors import ArgumentError

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class ClientData:
    """The examples of all clients, stored together and sliced per client.

    Attributes:
      client_ids: Distinct client ids.
      features: [N, ...] numbers as stored (the model normalises), grouped by
        client in the order of `client_ids`; may be a memory map.
      labels: [N] int32, the class of each row.
      offsets: [n + 1] int64; client i owns rows offsets[i]:offsets[i + 1].
    """

    client_ids: tuple[str, ...]
    features: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        if len(set(self.client_ids)) < len(self.client_ids):
            raise ArgumentError("client_ids", self.client_ids, "each id once")
        if len(self.offsets) != len(self.client_ids) + 1:
            raise ArgumentError(
                "offsets",
                f"of {len(self.offsets)} entries",
                f"{len(self.client_ids) + 1}, one more than client_ids has",
            )
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.features):
            raise ArgumentError(
                "offsets",
                f"from {self.offsets[0]} to {self.offsets[-1]}",
                f"from 0 to {len(self.features)}, the rows of features",
            )
        if len(self.labels) != len(self.features):
            raise ArgumentError(
                "labels",
                f"of {len(self.labels)} rows",
                f"{len(self.features)}, as features has",
            )
        if np.any(np.diff(self.offsets) < 1):
            empty = int(np.argmax(np.diff(self.offsets) < 1))
            raise ArgumentError(
                "offsets",
                f"without examples for client {self.client_ids[empty]!r}",
                "one or more examples for every client",
            )

    def examples(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Views of the features and labels of client number `index`."""
        rows = slice(self.offsets[index], self.offsets[index + 1])
        return self.features[rows], self.labels[rows]

    @property
    def feature_spec(self) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of the features of one example, as stored."""
        return self.features.shape[1:], self.features.dtype

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """[n] int64, how many examples each client has."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A data set split over clients, and a model for it.

    Attributes:
      name: The task's name, as `--task` takes it.
      train: The clients' examples.
      test_features: [M, ...], of the type of `train.features`.
      test_labels: [M] int32.
      num_classes: How many classes the labels range over.
      build_model: Returns a new, uncompiled Keras model from features as stored to
        logits [batch, num_classes].
      model_name: The model's name, as `--model` takes it.
      description: Source, split, partition, and the model layer by layer with
        its parameter count, in words, for the report.
      test_owners: [M] int32, the client that each test example is of, -1 for
        none of them; None where test examples are of no client.
      class_names: What the classes are called, in their order; empty where they have
        no names.
      encoding: How what a user has becomes features, where that takes more than
        its numbers: of text, the alphabet, the window and the rule in words.
      mirrored: Whether the second half of a client's examples is the first, seen in a
        mirror.
      tests_are_dealt: Whether those who wrote the test examples wrote clients' too,
        though these are dealt out and no client is one of them.
    """

    name: str
    train: ClientData
    test_features: np.ndarray
    test_labels: np.ndarray
    num_classes: int
    build_model: "Callable[[], tf.keras.Model]"
    model_name: str
    description: str
    test_owners: np.ndarray | None = None
    class_names: tuple[str, ...] = ()
    encoding: Mapping[str, Any] | None = None
    mirrored: bool = False
    tests_are_dealt: bool = False

    @property
    def tests_are_public(self) -> bool:
        """Whether what is measured on test examples tells of nobody who trains."""
        return self.test_owners is None and not self.tests_are_dealt

    @functools.cached_property
    def model(self) -> "tf.keras.Model":
        """A model for who asks of layers and shapes; it stays as it is.

        To build one takes longer than most of what is asked of it.
        """
        return self.build_model()
