"""Checkpoints: where a run stands after each of its last rounds.

A file is a line of JSON, the tensors' bytes, and a SHA-256 of both, by which one that
is not whole shows. The line says the tensors' types and shapes; there is no pickle in
it. The file holds the run's secret, so nobody but its owner may read it, whatever the
umask.

It is written under another name first; then its round is put in the journal, and then
it gets its name. Where a kill comes in between, a whole file is taken up when the run
is resumed, so that its round counts once, and no round is lost that is in the journal.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import logging
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.errors import FileError
from tff_hdp.files import by_round, sync_names
from tff_hdp.simulation.journal import Journal

_LOG = logging.getLogger(__name__)
_DIGEST = hashlib.sha256
_KEPT = 3
_UNFINISHED = "unfinished"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run stands after a round.

    Attributes:
      round_number: The last completed round; 0 before the first.
      state: The learning process's state.
      entropy: The run's secret, from which its cohorts are drawn.
      carried: What the next round's `System.prepare` is given.
      metrics: The round's row of metrics.csv; empty before the first.
    """

    round_number: int
    state: Any
    entropy: int
    carried: dict[str, Any]
    metrics: dict[str, float]


class Checkpoints:
    """The last checkpoints of a run, in a folder.

    Args:
      path: The folder; made if missing.
      journal: Of the run. It holds a round before its checkpoint has its name.
    """

    def __init__(self, path: pathlib.Path, journal: Journal) -> None:
        self._path, self._journal = path, journal
        self._disk = concurrent.futures.ThreadPoolExecutor(1)
        self._flushed: concurrent.futures.Future[None] | None = None
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)

    def close(self) -> None:
        """Waits for the disk."""
        self._disk.shutdown()

    def save(self, checkpoint: Checkpoint, ran: dict[str, Any] | None = None) -> None:
        """Releases a round: puts it in the journal and writes its checkpoint.

        All checkpoints but the last three are forgotten.

        Args:
          checkpoint: Of the round.
          ran: The `state_dict()` of a ledger of that round alone; None before the
            first, of which the journal says nothing, and where it has the round.

        Raises:
          FileError: If the journal is not as it was left.
          OSError: If either cannot be written, as on a full disk.
        """
        number, journal = checkpoint.round_number, self._journal
        entry = None if ran is None else journal.entry(number, ran)
        record = {
            "round": number,
            "entropy": str(checkpoint.entropy),
            "carried": checkpoint.carried,
            "metrics": checkpoint.metrics,
            "entry": entry,
            "journal": [journal.releases, journal.head(journal.releases)],
        }
        if entry is not None:
            record["journal"] = [journal.releases + 1, journal.head_with(entry)]
        if self._flushed is not None:
            self._flushed.result()
        state = tf.nest.flatten(checkpoint.state)
        write_checkpoint(self._unfinished, record, state)
        self._finish(record)

    def take_up(self) -> None:
        """Finishes what a kill left unfinished; what is not whole is removed.

        Raises:
          FileError: If the journal is not the one that an unfinished checkpoint was
            written with.
          OSError: If a file cannot be read or written.
        """
        try:
            record, _ = read_checkpoint(self._unfinished)
        except FileNotFoundError:
            return
        except FileError:
            record = {}
        if not record.keys() >= {"entry", "journal", "round"}:
            self._unfinished.unlink()
            return
        self._finish(record)

    def _finish(self, record: dict[str, Any]) -> None:
        """Puts the unfinished checkpoint's round in the journal and names it.

        All but the last three are forgotten before: whoever is killed in between comes
        back here, also where no round is left to run.
        """
        entry, (releases, head) = record["entry"], record["journal"]
        if entry is not None and head == self._journal.head_with(entry):
            self._journal.announce(entry)
        self._check_known(self._unfinished, releases, head)
        oldest = self._file(max(0, record["round"] - _KEPT + 1))
        for path in self._path.glob("round_*"):
            if by_round(path) < by_round(oldest):
                path.unlink()
        path = self._file(record["round"])
        self._unfinished.replace(path)
        # For a machine that loses its power; a killed program's writes are kept.
        self._flushed = self._disk.submit(_flush, path)

    def _check_known(self, path: pathlib.Path, releases: int, head: str) -> None:
        journal = self._journal
        if releases > journal.releases or head != journal.head(releases):
            raise FileError(
                journal.path,
                f"is not the journal that {path.name} was written with, so what "
                "was released cannot be counted: start in a new folder",
            )

    def load_latest(self, like: Any) -> Checkpoint | None:
        """The newest checkpoint that can be read; None if there is none.

        What was released after it stays in the journal.

        Args:
          like: A state of the structure to restore.

        Raises:
          FileError: If the journal is not the one that a checkpoint knows of.
        """
        for path in sorted(self._path.glob("round_*"), key=by_round, reverse=True):
            try:
                (releases, head), found = _read(path, like)
            except (FileError, OSError) as error:
                _LOG.warning("going back to the checkpoint before: %s", error)
                continue
            self._check_known(path, releases, head)
            if lost := self._journal.releases - releases:
                _LOG.warning(
                    "%d rounds were released after %s; rounds that are run again are "
                    "counted again",
                    lost,
                    path.name,
                )
            return found
        return None

    @property
    def _unfinished(self) -> pathlib.Path:
        return self._path / _UNFINISHED

    def _file(self, round_number: int) -> pathlib.Path:
        return self._path / f"round_{round_number:06d}"


def write_checkpoint(
    path: pathlib.Path, record: dict[str, Any], tensors: Sequence[Any]
) -> None:
    """Writes a checkpoint that only its owner may read.

    Args:
      path: The file; what it held is gone.
      record: JSON types.
      tensors: Arrays or numbers: booleans, integers, floats.

    Raises:
      TypeError: If a tensor is of another type.
      OSError: If it cannot be written, as on a full disk.
    """
    arrays = [np.asarray(tensor) for tensor in tensors]
    for array in arrays:
        if array.dtype.kind not in "biufc":
            raise TypeError(f"a tensor of {array.dtype} cannot be kept")
    types = [(array.dtype.str, array.shape) for array in arrays]
    parts = [
        json.dumps({**record, "tensors": types}).encode() + b"\n",
        *(array.tobytes() for array in arrays),
    ]
    digest = _DIGEST()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        for part in parts:
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def read_checkpoint(path: pathlib.Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The record and the tensors of a checkpoint.

    Raises:
      FileError: If the file is not as it was written.
      OSError: If it cannot be read.
    """
    content = path.read_bytes()
    size = _DIGEST().digest_size
    content, digest = content[:-size], content[-size:]
    if _DIGEST(content).digest() != digest:
        raise FileError(path, "its content does not match its digest")
    start = content.find(b"\n") + 1
    tensors = []
    try:
        record = json.loads(content[:start])
        for name, shape in record.pop("tensors"):
            count = math.prod(shape)
            flat = np.frombuffer(content, name, count, start)
            tensors.append(flat.reshape(shape).copy())
            start += flat.nbytes
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(path, f"holds no checkpoint: {error}") from error
    return record, tensors


def _read(path: pathlib.Path, like: Any) -> tuple[tuple[int, str], Checkpoint]:
    """What the journal held by then, as releases and head, and the checkpoint."""
    record, tensors = read_checkpoint(path)
    try:
        releases, head = record["journal"]
        return (int(releases), head), Checkpoint(
            round_number=int(record["round"]),
            state=tf.nest.pack_sequence_as(like, tensors),
            entropy=int(record["entropy"]),
            carried=dict(record["carried"]),
            metrics=dict(record["metrics"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(path, f"holds no checkpoint of this run: {error!r}") from error


def _flush(path: pathlib.Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_names(path.parent)
