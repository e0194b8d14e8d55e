"""What a program of work F notes of its loop, and hands to whoever started it."""

import dataclasses
import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_REPORT, _WEIGHTS = "report.json", "weights.npz"
_KINDS = ("current", "saved")
Weights = Sequence[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a loop left behind.

    Attributes:
      ends: When each round ended, in seconds of a clock that only goes forward.
      accuracies: On the test set, after each round; None where it was not tested.
      checkpoints: What tells each round's from any other's.
      parts: Seconds of each round that went into a part of it; may be empty.
      held: By round, the model's weights after it and those in its checkpoint, of
        the rounds that were read back.
    """

    ends: list[float]
    accuracies: list[float | None]
    checkpoints: list[str]
    parts: Mapping[str, list[float]]
    held: Mapping[int, tuple[Weights, Weights]]

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Findings":
        """What `Recorder.write` wrote into a folder."""
        held: dict[int, tuple[list, list]] = {}
        with np.load(folder / _WEIGHTS) as arrays:
            for name in arrays.files:
                number, kind, _ = name.split()
                pair = held.setdefault(int(number), ([], []))
                pair[_KINDS.index(kind)].append(arrays[name])
        return cls(**json.loads((folder / _REPORT).read_text()), held=held)


class Recorder:
    """Notes when rounds end, what they were tested at and the files they left.

    Args:
      spec: The program's: `rounds`; `reads_all`, whether every round's checkpoint is
        to be read back and not the last one's alone; `out`, the folder to report in.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._rounds, self._reads_all = spec["rounds"], spec["reads_all"]
        self._out = pathlib.Path(spec["out"])
        self._ends: list[float] = []
        self._accuracies: list[float | None] = []
        self._checkpoints: list[str] = []
        self._weights: dict[str, np.ndarray] = {}

    def end(self, *, accuracy: float | None, checkpoint: pathlib.Path) -> None:
        """Notes the end of a round.

        Where a loop calls its user before its round is quite over, the rest is in
        the next round's time: every round has one.

        Args:
          accuracy: On the test set, of the model after the round; None if it was
            not tested, as before the rounds that are measured it may not be.
          checkpoint: The file or folder that the round wrote.

        Raises:
          FileNotFoundError: If it is not there.
        """
        self._ends.append(time.monotonic())
        self._accuracies.append(accuracy)
        written = checkpoint.stat().st_mtime_ns
        self._checkpoints.append(f"{checkpoint.name} at {written}")

    @property
    def reads(self) -> bool:
        """Whether the checkpoint of the round that ended last is to be read back."""
        return self._reads_all or len(self._ends) == self._rounds

    def keep(self, current: Sequence[Any], saved: Sequence[Any]) -> None:
        """Keeps the weights after the round that ended last.

        Args:
          current: The model's, in the order and layout of `Work.weight_shapes`.
          saved: Those read back from the checkpoint.
        """
        for kind, weights in zip(_KINDS, (current, saved), strict=True):
            for i, array in enumerate(weights):
                self._weights[f"{len(self._ends)} {kind} {i}"] = np.array(array)

    def write(self, **parts: Sequence[float]) -> None:
        """Writes the report.

        Args:
          **parts: Seconds of each round that went into a part of it.
        """
        np.savez(self._out / _WEIGHTS, **self._weights)
        report = {
            "ends": self._ends,
            "accuracies": self._accuracies,
            "checkpoints": self._checkpoints,
            "parts": parts,
        }
        (self._out / _REPORT).write_text(json.dumps(report))
