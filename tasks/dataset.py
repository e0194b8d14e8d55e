"""What a data set declares about itself, and the examples it reads."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tasks import large, partition
from tasks.models import SOFTMAX, Architecture, TextArchitecture, Value
from tff_hdp.errors import (
    ArgumentError,
    check_bool,
    check_count,
    check_word,
    require,
)

# The split is part of the task, not of a run: every seed sees one test set.
SPLIT_SEED = 0
TEST_SHARE = 0.2


@dataclasses.dataclass(frozen=True)
class Examples:
    """A data set as read, before it is split over clients.

    Lists and columns of pandas become arrays.

    Attributes:
      features: [N, ...] numbers of any type and shape, for training: pixels,
        measurements, sequences of ids.
      labels: [N] int32, for training.
      test_features: [M, ...], of the same type and shape.
      test_labels: [M] int32.
      source: Where the examples came from, in words.
      split: How training and test examples were separated, in words.
      writers: [N] str or whole numbers, who wrote each training example; None if
        unknown.
      test_writers: [M] likewise, who wrote each test example, where the set was split
        within `writers`; None says that the test examples are nobody's who trains, and
        that what they measure may be published.

    Raises:
      ArgumentError: If a list's rows differ in shape, or an array is a masked one.
    """

    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    source: str
    split: str
    writers: np.ndarray | None = None
    test_writers: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in (field.name for field in dataclasses.fields(self)):
            value = getattr(self, name)
            is_array = name.endswith(("features", "labels", "writers"))
            if value is None or not is_array:
                continue
            try:
                # pandas would take numbers of rows for names of rows.
                array = np.asanyarray(value)
            except ValueError as error:
                found = f"a {type(value).__name__} of unlike rows"
                allowed = "an array, or rows of one shape"
                raise ArgumentError(name, found, allowed) from error
            if np.ma.isMaskedArray(array):
                # What is masked would pass every check, and be trained on.
                allowed = "an array of which nothing is masked out"
                raise ArgumentError(name, "a masked array", allowed)
            object.__setattr__(self, name, array)

    def check(
        self,
        name: str,
        shape: tuple[int, ...],
        num_classes: int,
        *,
        are_ids: bool = False,
    ) -> None:
        """Raises ArgumentError unless the examples are what their data set says.

        Args:
          name: The data set's.
          shape: Of an example.
          num_classes: How many classes.
          are_ids: Whether the features are ids, of which there are as many. Those of
            training are screened client by client, and not looked at here.
        """
        for part in ("", "test_"):
            x = getattr(self, f"{part}features")
            y = getattr(self, f"{part}labels")
            where = f"{name}.{part}"
            # TensorFlow has none of more bytes, as np.longdouble's.
            ok = x.dtype.kind in "biuf" and x.dtype.itemsize <= 8
            if not ok or x.shape[1:] != shape or not len(x):
                sizes = ", ".join(map(str, ("1 or more", *shape)))
                raise ArgumentError(
                    f"{where}features",
                    f"{x.dtype} of shape {x.shape}",
                    f"numbers of at most 64 bits, of shape [{sizes}]",
                )
            if x.dtype != self.features.dtype:
                raise ArgumentError(f"{where}features", x.dtype, self.features.dtype)
            if x.dtype.kind == "f" and not _are_float32(x):
                allowed = "finite numbers, as models take them: of float32"
                raise ArgumentError(f"{where}features", "nan, inf or beyond", allowed)
            if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
                raise ArgumentError(
                    f"{where}labels",
                    f"{y.dtype} of shape {y.shape}",
                    f"whole numbers of shape [{len(x)}]",
                )
            w = getattr(self, f"{part}writers")
            if w is not None and not (w.shape == y.shape and _are_names(w)):
                raise ArgumentError(
                    f"{where}writers",
                    f"{w.dtype} of shape {w.shape}",
                    f"text or whole numbers of shape [{len(y)}]",
                )
            if part and w is not None and self.writers is not None:
                others = set(map(str, w)).isdisjoint(map(str, self.writers))
                allowed = "None, or some of them writers"
                require(not others, f"{where}writers", "of others than train", allowed)
            if not 0 <= y.min() <= y.max() < num_classes:
                raise ArgumentError(
                    f"{where}labels", f"{y.min()}..{y.max()}", f"0..{num_classes - 1}"
                )
        if are_ids:
            x = self.test_features
            allowed = "whole numbers, as ids are"
            ok = x.dtype.kind in "iu"
            require(ok, f"{name}.features", x.dtype, allowed)
            low = min(x[rows].min() for rows in large.blocks(x))
            high = max(x[rows].max() for rows in large.blocks(x))
            require(
                0 <= low <= high < num_classes,
                f"{name}.test_features",
                f"{low}..{high}",
                f"ids in 0..{num_classes - 1}",
            )


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set, the ways to split it over clients, and its models.

    Attributes:
      name: As `--task` takes it.
      num_classes: How many classes, 2 or more.
      input_shape: Of an example: height, width and channels of an image, columns of
        a table, length of a sequence, or what else a dense model flattens.
      max_value: The largest value a feature can take, or each column, for which an
        array or a list becomes a tuple; None for ids. Models map it to 1. It is taken
        as public, so examples beyond it are taken too, and not told of.
      models: Architectures by name; the first is the default. Where features are
        quantities, `softmax` is one of them without being named.
      partitions: Allowed partitions, the first the default; one or more of "iid",
        "dirichlet", "classes" and "writer".
      num_clients: The default for partitions other than "writer".
      read: Reads the set from a folder (None for a bundled set).
      files: What must be in the folder, where to get it and what to use
        instead; None if the set is bundled with a dependency.
      min_value: The smallest value a feature can take, or each column.
      class_names: See `tasks.task.Task`.
      encoding: Likewise.
      mirrored: Whether a client has each of its images mirrored left to right too;
        the test images stay as they are.

    Raises:
      ArgumentError: If a field is not as described, a model takes no such examples, or
        features have no range.
    """

    name: str
    num_classes: int
    input_shape: tuple[int, ...]
    max_value: Value | None
    models: Mapping[str, Architecture | TextArchitecture]
    partitions: tuple[str, ...]
    num_clients: int
    read: Callable[[Path | None], Examples]
    files: str | None = None
    min_value: Value = 0.0
    class_names: tuple[str, ...] = ()
    encoding: Mapping[str, Any] | None = None
    mirrored: bool = False

    def __post_init__(self) -> None:
        is_line = isinstance(self.name, str) and self.name.isprintable()
        require(is_line and bool(self.name), "name", self.name, "a line of text")
        check_bool(f"{self.name}.mirrored", self.mirrored)
        ok = callable(self.read)
        require(ok, f"{self.name}.read", self.read, "a function of the data's folder")
        self._check_classes()
        self._check_partitions()
        self._check_sizes()
        self._check_encoding()
        self._take_ranges()
        if self.mirrored and len(self.input_shape) != 3:
            allowed = "height, width and channels where images are mirrored"
            raise ArgumentError(f"{self.name}.input_shape", self.input_shape, allowed)
        self._check_models()
        for model in self.models.values():
            model.check(
                self.name,
                input_shape=self.input_shape,
                max_value=self.max_value,
                min_value=self.min_value,
            )

    def _check_classes(self) -> None:
        """Takes NumPy's numbers and arrays of names for Python's, as JSON does not."""
        count = check_count(f"{self.name}.num_classes", self.num_classes, 2)
        names = self.class_names
        names = names.tolist() if isinstance(names, np.ndarray) else names
        ok = isinstance(names, list | tuple) and len(names) in (0, count)
        ok = ok and all(isinstance(each, str) for each in names)
        allowed = f"a tuple of {count} texts, or none"
        require(ok, f"{self.name}.class_names", names, allowed)
        object.__setattr__(self, "num_classes", count)
        object.__setattr__(self, "class_names", tuple(names))

    def _check_partitions(self) -> None:
        argument, words = f"{self.name}.partitions", self.partitions
        # Text would be its letters, as where ("writer") lacks its comma.
        ok = isinstance(words, list | tuple) and len(words) > 0
        allowed = f"a tuple of one or more of {', '.join(partition.KINDS)}"
        require(ok, argument, words, allowed)
        for i, word in enumerate(words):
            check_word(f"{argument}[{i}]", word, partition.KINDS)
        object.__setattr__(self, "partitions", tuple(words))

    def _check_sizes(self) -> None:
        argument, shape = f"{self.name}.input_shape", self.input_shape
        is_list = isinstance(shape, list | tuple)
        require(is_list, argument, shape, "a tuple of whole numbers, as (20,)")
        sizes = (check_count(f"{argument}[{i}]", n, 1) for i, n in enumerate(shape))
        object.__setattr__(self, "input_shape", tuple(sizes))
        if any(kind != "writer" for kind in self.partitions):
            count = check_count(f"{self.name}.num_clients", self.num_clients, 1)
            object.__setattr__(self, "num_clients", count)

    def _check_models(self) -> None:
        """Refuses what is no model by name; quantities have `softmax` besides."""
        argument, models = f"{self.name}.models", self.models
        allowed = "a dict of one or more of tasks.models by their names"
        require(isinstance(models, Mapping), argument, models, allowed)
        if self.max_value is not None:
            models = {**models, "softmax": SOFTMAX}
            object.__setattr__(self, "models", models)
        require(bool(models), argument, models, allowed)
        for name, model in models.items():
            ok = isinstance(model, Architecture | TextArchitecture)
            allowed = "an Architecture or TextArchitecture of tasks.models"
            require(ok, f"{argument}[{name!r}]", model, allowed)

    def _check_encoding(self) -> None:
        """Refuses what a model's card, written when rounds have run, could not hold."""
        argument, encoding = f"{self.name}.encoding", self.encoding
        try:
            same = json.loads(json.dumps(encoding, allow_nan=False)) == encoding
        except (TypeError, ValueError):
            same = False
        ok = encoding is None or (isinstance(encoding, Mapping) and same)
        require(ok, argument, encoding, "a dict that JSON gives back as it is, or None")

    def _take_ranges(self) -> None:
        """Takes arrays and lists of columns' ends for tuples, as models do not."""
        for name in ("max_value", "min_value"):
            value = getattr(self, name)
            value = np.asarray(value).tolist() if getattr(value, "ndim", 0) else value
            value = tuple(value) if isinstance(value, list) else value
            object.__setattr__(self, name, value)

    @property
    def model_shape(self) -> dict[str, Any]:
        """What an architecture must know of the data."""
        return {"input_shape": self.input_shape, "num_classes": self.num_classes}


def _are_float32(x: np.ndarray) -> bool:
    """Whether all are finite where they are float32, as models compute."""
    most = np.finfo(np.float32).max
    # Of NaN neither is true.
    parts = (x[rows] for rows in large.blocks(x))
    return all(-most <= part.min() and part.max() <= most for part in parts)


def _are_names(values: np.ndarray) -> bool:
    """Whether each is text or a whole number, of which `str` makes a client's id."""
    is_text = values.dtype.kind == "O" and all(isinstance(v, str) for v in values.flat)
    return is_text or values.dtype.kind in "iuU"


def canonical_order(
    features: np.ndarray, labels: np.ndarray, writers: np.ndarray | None = None
) -> np.ndarray:
    """An order of the examples that depends on their content alone.

    Sorting by a digest of the features makes every later random choice the same
    whichever copy of a data set was read, and mixes the classes.

    Args:
      features: [N, ...].
      labels: [N] integers; break ties between identical features.
      writers: [N] str or whole numbers; break ties between identical features and
        labels.

    Returns:
      [N] int64, a permutation of the rows.
    """
    digests = np.fromiter(
        (
            int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big")
            for row in np.ascontiguousarray(features)
        ),
        np.uint64,
        len(features),
    )
    keys = (labels, digests) if writers is None else (writers, labels, digests)
    return np.lexsort(keys)


def pooled_split(features: np.ndarray, labels: np.ndarray, source: str) -> Examples:
    """Splits a whole data set 80:20, the same way every time.

    Args:
      features: [N, ...].
      labels: [N] integers.
      source: Where the examples came from, in words.

    Returns:
      The examples, 80 % of them for training.

    Raises:
      ArgumentError: If there is not one label an example.
    """
    require(
        labels.shape == features.shape[:1],
        "labels",
        f"{labels.dtype} of shape {labels.shape}",
        f"whole numbers of shape {list(features.shape[:1])}",
    )
    order = canonical_order(features, labels)
    order = order[np.random.default_rng(SPLIT_SEED).permutation(len(order))]
    num_test = round(TEST_SHARE * len(order))
    test, train = order[:num_test], order[num_test:]
    return Examples(
        features=large.taken(features, train),
        labels=labels[train],
        test_features=large.taken(features, test),
        test_labels=labels[test],
        source=source,
        split=(
            f"all {len(order):,} examples pooled and split 80:20 at random, "
            "the same way for every seed"
        ),
    )
