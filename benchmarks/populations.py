"""Clients' real examples as arrays in a folder, for programs of every environment.

NumPy alone, as `works`. Files are mapped, so that a program's processes share them.
"""

import dataclasses
import functools
import pathlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class Population:
    """The examples of all clients, one client's after the other's, and the test set.

    Attributes:
      features: [N, inputs] float32 in [0, 1].
      labels: [N] int32.
      offsets: [n + 1] int64; client i owns rows offsets[i]:offsets[i + 1].
      test_features: [M, inputs] float32 in [0, 1].
      test_labels: [M] int32.
    """

    features: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray

    def examples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """A client's own copy of its features and labels."""
        rows = slice(self.offsets[client], self.offsets[client + 1])
        return np.array(self.features[rows]), np.array(self.labels[rows])

    @property
    def largest(self) -> int:
        """How many examples the client with the most has."""
        return int(np.diff(self.offsets).max())

    def write(self, folder: pathlib.Path) -> None:
        """Writes the arrays into a folder that is not there yet."""
        folder.mkdir()
        for name, array in vars(self).items():
            np.save(folder / f"{name}.npy", array)


@functools.cache
def read(folder: str) -> Population:
    """What `Population.write` wrote."""
    names = [field.name for field in dataclasses.fields(Population)]
    files = {name: pathlib.Path(folder) / f"{name}.npy" for name in names}
    return Population(**{name: np.load(path, "r") for name, path in files.items()})
