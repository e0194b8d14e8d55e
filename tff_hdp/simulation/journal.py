"""The journal of a run: what it began with, then a line for every release.

It is only ever appended to. A line is a digest of the line before and of its own JSON,
a space, and the JSON: one that was changed, or taken out, breaks the chain.
No TensorFlow.
"""

import collections
import hashlib
import json
import os
import pathlib
from typing import Any

from tff_hdp.errors import FileError
from tff_hdp.files import sync_names
from tff_hdp.privacy import RoundLedger

# The thread of a run that puts rounds here, and then writes what is made of them.
RELEASING_THREAD = "release"


class Journal:
    """Reads a journal and appends to it.

    A last line without its end was being written when the program or the machine
    stopped, so nothing that it speaks of was released: it is cut off before the next.

    Args:
      path: The file; none is an empty journal.

    Raises:
      FileError: If a line is not as it was written.
      OSError: If the file cannot be read.

    Attributes:
      path: The file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._entries: list[dict[str, Any]] = []
        self._digests: list[str] = []
        self._ran: dict[str, Any] | None = None
        content = path.read_bytes() if path.exists() else b""
        self._size = content.rfind(b"\n") + 1
        for line in content[: self._size].splitlines():
            digest, _, text = line.partition(b" ")
            is_chained = digest.decode(errors="replace") == self._digest(text)
            if not (is_chained and self._is_entry(text)):
                raise FileError(
                    path,
                    f"line {len(self._entries) + 1} is not as the run wrote it, so "
                    "what was released cannot be counted: start in a new folder",
                )
            self._keep(text)

    @property
    def began(self) -> dict[str, Any] | None:
        """What the run began with; None before it did."""
        return self._entries[0] if self._entries else None

    @property
    def releases(self) -> int:
        """How many rounds were released, one that was run again each time."""
        return max(len(self._entries) - 1, 0)

    @property
    def last_round(self) -> int:
        """The latest round that was ever released; 0 before the first."""
        return max((entry["round"] for entry in self._entries[1:]), default=0)

    @property
    def releases_by_round(self) -> collections.Counter[int]:
        """How often each round was released."""
        return collections.Counter(entry["round"] for entry in self._entries[1:])

    def head(self, releases: int) -> str | None:
        """The digest of the line of that release; None if there are fewer."""
        return self._digests[releases] if releases < len(self._digests) else None

    def begin(self, began: dict[str, Any]) -> None:
        """Writes the first line, unless it is there; the disk then has the file.

        Raises:
          OSError: If it cannot be written, as on a full disk.
        """
        if not self._entries:
            self.announce(began)
        # A file whose name the disk does not have is lost with the power, and so is a
        # folder's. A begin that was killed here is done again.
        sync_names(self.path.parent)
        sync_names(self.path.parent.parent)

    def entry(self, round_number: int, ran: dict[str, Any]) -> dict[str, Any]:
        """What the next line is to say of a round.

        Args:
          round_number: The round's.
          ran: The `state_dict()` of a ledger of that round alone.
        """
        # A line without is of a round like the one before.
        like_before = ran == self._ran
        return {"round": round_number} | ({} if like_before else {"ran": ran})

    def head_with(self, entry: dict[str, Any]) -> str:
        """The digest of the next line, if it is of that entry."""
        return self._digest(_text(entry))

    def announce(self, entry: dict[str, Any]) -> None:
        """Puts in a round, as `entry` has it; the disk has it when this returns.

        Raises:
          FileError: If the file is not as it was left.
          OSError: If it cannot be written, as on a full disk.
        """
        text = _text(entry)
        line = f"{self._digest(text)} ".encode() + text + b"\n"
        with self.path.open("a+b") as file:
            is_cut = file.seek(0, os.SEEK_END) < self._size
            file.seek(self._size)
            if is_cut or b"\n" in file.read():
                raise FileError(
                    self.path, "is not as this run left it: somebody else wrote to it"
                )
            file.truncate(self._size)
            file.write(line)
            file.flush()
            os.fdatasync(file.fileno())
        self._size += len(line)
        self._keep(text)

    def recall(self, ledger: RoundLedger[Any]) -> None:
        """Puts every round that was ever released into an empty ledger."""
        runs: list[tuple[dict[str, Any], list[int]]] = []
        for entry in self._entries[1:]:
            if "ran" in entry:
                runs.append((entry["ran"], []))
            runs[-1][1].append(entry["round"])
        history = [
            {**each, "rounds": each["rounds"] * len(rounds)}
            for ran, rounds in runs
            for each in ran["history"]
        ]
        if runs:
            ledger.load_state_dict({**runs[0][0], "history": history})

    def _is_entry(self, text: bytes) -> bool:
        """Whether a line can be one of the run's: anybody can forge a digest."""
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(entry, dict):
            return False
        if not self._entries:
            return True
        ran = entry.get("ran", self._ran)
        has_run = isinstance(ran, dict) and isinstance(ran.get("history"), list)
        return has_run and isinstance(entry.get("round"), int)

    def _digest(self, text: bytes) -> str:
        before = self._digests[-1] if self._digests else ""
        return hashlib.sha256(before.encode() + text).hexdigest()[:32]

    def _keep(self, text: bytes) -> None:
        entry = json.loads(text)
        self._digests.append(self._digest(text))
        self._entries.append(entry)
        self._ran = entry.get("ran", self._ran)


def _text(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()
