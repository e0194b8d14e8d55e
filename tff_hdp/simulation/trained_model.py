"""The trained model in a run folder: the last round's, and the best round's.

    <out>/model/last/   after the last round
    <out>/model/best/   after the evaluated round with the best headline metric

Each holds what the system saves, for a classifier `model.keras` and `saved_model/`, and
a `card.json`. Best is a choice made on test data. Where the best round's weights are
gone, as those of one before a better one that was undone, the card says so.
"""

import dataclasses
import functools
import math
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.errors import FileError
from tff_hdp.files import read_arrays, write_arrays, write_json
from tff_hdp.simulation.system import System

ROUNDS = ("last", "best")


@dataclasses.dataclass(frozen=True)
class _Best:
    round_number: int
    value: float


class ModelKeeper:
    """Follows a run, keeps its best round's weights, and writes models at its end.

    While the run goes on a better round costs one file of its weights. The file
    outlives the process, so a resumed run knows the rounds before.

    Raises:
      FileError: If the file is damaged; without it the best round is one from here on.
    """

    def __init__(self, system: System, path: pathlib.Path) -> None:
        self._system, self._folder = system, path / "model"
        self._file = self._folder / ".best.npz"
        self._best = None
        if self._file.exists():
            read_arrays(self._file)  # All of it, as its end is rounds away.
            number, value = read_arrays(self._file, "round", "value")
            self._best = _Best(int(number), float(value))

    def __call__(self, number: int, metrics: Mapping[str, float], state: Any) -> None:
        """Keeps a released round's weights if it is the best so far.

        Args:
          number: The round's.
          metrics: Its row of metrics.csv; without the headline it was not evaluated.
          state: After it.
        """
        value = metrics.get(self._system.headline, math.nan)
        if math.isnan(value):
            return
        kept = self._best
        # A round that is run again undoes itself and those after it.
        if kept is not None and kept.round_number < number:
            falls = self._system.headline_falls
            if value >= kept.value if falls else value <= kept.value:
                return
        self._best = _Best(number, value)
        self._folder.mkdir(exist_ok=True)
        leaves = map(np.asarray, tf.nest.flatten(self._system.released(state)))
        write_arrays(self._file, *leaves, round=number, value=value)

    def write(self, scores: Mapping[int, float], state: Any) -> None:
        """Writes `model/best`, if a round was evaluated, and then `model/last`.

        Args:
          scores: The headline metric by round, as in metrics.csv; NaN if the round was
            not evaluated.
          state: After the last of them.
        """
        released = self._system.released(state)
        number = max(scores)
        last = _Best(number, scores[number])
        save = functools.partial(self._system.save_model, released)
        if self._best == last:
            self._write("best", save, last, self._gone(scores))
            save = functools.partial(_copy, self._folder / "best")
        elif self._best is not None:
            count = len(tf.nest.flatten(released))
            leaves = read_arrays(self._file, *(f"arr_{i}" for i in range(count)))
            best = tf.nest.pack_sequence_as(released, leaves)
            save_best = functools.partial(self._system.save_model, best)
            self._write("best", save_best, self._best, self._gone(scores))
        self._write("last", save, last)

    def _gone(self, scores: Mapping[int, float]) -> str:
        """Which round was better than the best one kept, in words; else nothing."""
        kept = self._best
        tested = {n: score for n, score in scores.items() if not math.isnan(score)}
        tested.setdefault(kept.round_number, kept.value)
        choose = min if self._system.headline_falls else max
        best = choose(tested, key=tested.get)
        if tested[best] == tested[kept.round_number]:
            return ""
        return f" of those whose weights are left (round {best} had {tested[best]:g})"

    def _write(
        self,
        name: str,
        save: Callable[[pathlib.Path], Any],
        of: _Best,
        gone: str = "",
    ) -> None:
        task, metric = self._system.task, self._system.headline
        # The folder is this process's alone: what lies there was killed half-way.
        partial = self._folder / f".{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save(partial)
        chosen = "the last round"
        privacy = "see privacy.json: epsilon is that of all rounds of the run"
        if name == "best":
            data = "test data"
            if metric not in self._system.published:
                data = "clients' own data, without noise"
                privacy += ", and does not hold for the choice of this one"
            chosen = f"the evaluated round with the best test {metric}{gone}: a choice "
            chosen += f"made on {data}"
        card = {
            "round": of.round_number,
            "metric": metric,
            "value": None if math.isnan(of.value) else of.value,
            "chosen": chosen,
            "task": task.name,
            "model": task.model_name,
            "description": task.description,
            "features": {
                "shape": list(task.test_features.shape[1:]),
                "dtype": str(task.test_features.dtype),
            },
            "classes": task.num_classes,
            "class_names": list(task.class_names) or None,
            "encoding": task.encoding,
            "privacy": privacy,
        }
        write_json(partial / "card.json", card)
        shutil.rmtree(self._folder / name, ignore_errors=True)
        partial.rename(self._folder / name)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a folder, of whose files `shutil` tells those that failed all at once."""
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except shutil.Error as error:
        *_, reason = error.args[0][0]
        raise FileError(target, f"cannot be written: {reason}") from error
