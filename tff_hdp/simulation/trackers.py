"""Where a run's metrics go: a CSV file, TensorBoard, any `tff.program.ReleaseManager`.

TFF's own release managers read all rows again every round, or start an operation for
every number: 10 ms a round and more. Those here take a tenth of a millisecond.
"""

import asyncio
import concurrent.futures
import csv
import io
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.core.framework import summary_pb2

from tff_hdp.errors import FileError, require
from tff_hdp.files import write_text

Tracker = tff.program.ReleaseManager[Any, int]

_PRIVACY = ("epsilon", "epsilon_rdp")
_TIME = ("round_seconds",)
_KEY = "round"


def grouped(
    metrics: Mapping[str, float], tests: Collection[str]
) -> dict[str, dict[str, float]]:
    """A row of metrics.csv by group: `test`, `privacy`, `time`, else `operator`.

    Those of `operator` carry no noise and are for whoever runs the simulation.

    Args:
      metrics: The row, by column.
      tests: Which columns are `test` (`System.published`).
    """
    groups = {"test": tests, "privacy": _PRIVACY, "time": _TIME}
    found: dict[str, dict[str, float]] = {group: {} for group in (*groups, "operator")}
    for name, value in metrics.items():
        group = next((g for g, names in groups.items() if name in names), "operator")
        found[group][name] = value
    return found


def check_tracker(name: str, tracker: Any) -> Tracker:
    """Returns `tracker`; raises ArgumentError unless its `release` can be awaited.

    Anything else would fail only when a round is released.
    """
    release = getattr(tracker, "release", None)
    allowed = "a tff.program.ReleaseManager, whose release is async"
    require(asyncio.iscoroutinefunction(release), name, tracker, allowed)
    return tracker


class Tracking:
    """Hands every released round to a tracker.

    Args:
      tracker: Gets a round's metrics by group, with the round's number as key.
      tests: As in `grouped`.
    """

    def __init__(self, tracker: Tracker, tests: Collection[str]) -> None:
        self._tracker, self._tests = tracker, tests

    def __call__(self, number: int, metrics: Mapping[str, float], state: Any) -> None:
        """Releases a round and waits until the tracker has taken it."""
        del state
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            release = self._tracker.release(grouped(metrics, self._tests), number)
            thread.submit(asyncio.run, release).result()


class CsvRows(tff.program.ReleaseManager):
    """A CSV file with a row a round, whose columns are those seen so far.

    Args:
      path: The file; if there is one, its rows are kept.

    Attributes:
      last_round: The latest round that has a row; 0 if none has.

    Raises:
      FileError: If the file holds no such rows.
      OSError: If it cannot be read.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._columns, self._rows = [_KEY], []
        # What was there before may end in half a row.
        self._is_whole = False
        if path.exists():
            self._columns, self._rows = _read(path)
        self.last_round = max((int(row[_KEY]) for row in self._rows), default=0)

    async def release(self, value: Mapping[str, float], key: int) -> None:
        """Writes a round's row; rows of later rounds, now undone, are dropped."""
        row = {_KEY: key, **value}
        columns = list(dict.fromkeys([*self._columns, *row]))
        same = self.last_round < key and columns == self._columns
        if self.last_round >= key:
            self._rows = [old for old in self._rows if int(old[_KEY]) < key]
        self._rows.append(row)
        self._columns, self.last_round = columns, key
        if same and self._is_whole:
            with self._path.open("a", newline="") as file:
                file.write(self._text([row]))
        else:
            header = dict(zip(columns, columns, strict=True))
            write_text(self._path, self._text([header, *self._rows]))
        self._is_whole = True

    def _text(self, rows: Iterable[Mapping[str, object]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(rows)
        return text.getvalue()


class Board(tff.program.ReleaseManager):
    """Scalars for TensorBoard, tagged by group, all of a round in one event.

    Args:
      path: The folder of event files.

    Attributes:
      tests: As in `grouped`; at first none.

    Raises:
      FileError: If none can be written there.
      OSError: If the folder cannot be made.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.tests: Collection[str] = ()
        self._path = path
        path.mkdir(exist_ok=True)
        try:
            self._writer = tf.summary.create_file_writer(str(path))
        except tf.errors.OpError as error:
            raise FileError(path, f"takes no event files: {_words(error)}") from error

    async def release(self, value: Mapping[str, float], key: int) -> None:
        """Writes a round's numbers."""
        numbers = [
            summary_pb2.Summary.Value(tag=f"{group}/{name}", simple_value=number)
            for group, named in grouped(value, self.tests).items()
            for name, number in named.items()
        ]
        event = summary_pb2.Summary(value=numbers).SerializeToString()
        try:
            with self._writer.as_default():
                tf.summary.experimental.write_raw_pb(event, step=key)
        except tf.errors.OpError as error:
            raise FileError(self._path, f"takes no event: {_words(error)}") from error


def _words(error: tf.errors.OpError) -> str:
    """What TensorFlow says, without the operation that it begins with."""
    return error.message.rpartition("}} ")[2]


def _read(path: pathlib.Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows; a last row without its end was never released whole."""
    try:
        text = path.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        reader = csv.DictReader(lines, strict=True)
        rows = list(reader)
        columns = list(reader.fieldnames or [_KEY])
        ok = columns[0] == _KEY and all(
            int(row[_KEY]) > 0 and None not in row and None not in row.values()
            for row in rows
        )
        if ok:
            # One cell that is no number would make its whole column one of text.
            for cell in (cell for row in rows for cell in row.values() if cell):
                float(cell)
    except (ValueError, csv.Error):
        ok = False
    if not ok:
        raise FileError(
            path,
            "is not as the run wrote it: move it away to go on without its rows, which "
            "no epsilon depends on",
        )
    return columns, rows
