"""TFF's own federated data sets: one SQLite file each, with the clients' names."""

import contextlib
import dataclasses
import os
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks import large
from tasks.originals import UnavailableError, check_reachable, readable
from tff_hdp.errors import FileError

if TYPE_CHECKING:
    import tensorflow as tf

Arrays = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedFile:
    """A file of examples by client and how to read it.

    Attributes:
      name: The file's name in the data folder, decompressed.
      origin: Where TFF fetches it.
      load: From a folder to TFF's client data of training and test; fetches the
        file if it is not there.
      splits: Names of the training and the test split within the file.
      spec: What to parse of an example's proto, in TensorFlow's terms.
      arrays: From a parsed batch to features and labels.
    """

    name: str
    origin: str
    load: Callable[[str], tuple[Any, Any]]
    splits: tuple[str, str]
    spec: Callable[[], Mapping[str, "tf.io.FixedLenFeature"]]
    arrays: Callable[[Mapping[str, "tf.Tensor"]], tuple[np.ndarray, np.ndarray]]

    def read(self, data_dir: Path) -> Arrays:
        """Reads the file, fetching it first if need be.

        Args:
          data_dir: Its folder.

        Returns:
          For "train" and "test": features [N, ...], labels [N], and [N] str, the
          client of each example.

        Raises:
          UnavailableError: If the file is missing and cannot be downloaded.
          FileError: If the file's examples are not those of its clients.
        """
        path = data_dir / self.name
        if path.exists():
            with readable(path, "is no file of TFF's"):
                return self._read(data_dir)
        check_reachable(self.origin, missing=self.name)
        # TFF would take a half-written file for a whole one the next time, so it
        # downloads beside, and what it got moves in once it has been read whole.
        try:
            with tempfile.TemporaryDirectory(dir=data_dir) as partial:
                arrays = self._read(Path(partial))
                os.replace(Path(partial, self.name), data_dir / self.name)
        except (OSError, sqlite3.Error, ValueError) as error:
            raise UnavailableError(f"fetching {self.name} failed: {error}") from error
        return arrays

    def _read(self, folder: Path) -> Arrays:
        clients = self.load(str(folder))
        path = folder / self.name
        arrays = {}
        for split, name, of_split in zip(
            ("train", "test"), self.splits, clients, strict=True
        ):
            arrays[split] = self._read_split(path, name)
            if sorted(set(arrays[split][2])) != of_split.client_ids:
                raise FileError(path, "lists other clients than its examples have")
        return arrays

    def _read_split(
        self, path: Path, split: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One pass; TFF's queries scan the file once per client."""
        import tensorflow as tf

        spec = self.spec()
        features, labels, clients = None, [], []
        done, chosen = 0, "FROM examples WHERE split_name = ?"
        with contextlib.closing(sqlite3.connect(path)) as database:
            (count,) = database.execute(
                f"SELECT COUNT(*) {chosen}", (split,)
            ).fetchone()
            rows = database.execute(
                f"SELECT client_id, serialized_example_proto {chosen}", (split,)
            )
            while batch := rows.fetchmany(10_000):
                owners, protos = zip(*batch, strict=True)
                x, y = self.arrays(tf.io.parse_example(list(protos), spec))
                if features is None:
                    features = large.empty((count, *x.shape[1:]), x.dtype)
                features[done : done + len(x)] = x
                done += len(x)
                labels.append(y)
                clients.append(np.array(owners))
        if features is None:
            raise FileError(path, f"has no examples of the split {split}")
        return features, np.concatenate(labels), np.concatenate(clients)
