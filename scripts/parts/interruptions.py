"""What stops a run at a chosen write to its folder, and what is seen of it outside.

Nothing here relies on how a run folder is written: CPython's audit events tell when a
file is opened for writing, renamed or removed, and released models are found as bytes
in any file but the journal and the account.
"""

import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from tff_hdp.simulation.journal import RELEASING_THREAD

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {"open": 1, "os.rename": 2, "os.remove": 1, "os.truncate": 1, "os.mkdir": 1}


class Interruption:
    """Acts at one event among all that change files under a folder.

    Events are what CPython's main thread, or the one that releases rounds, does to a
    file, just before it does it, and the flushing of one to the disk, before and after.

    Args:
      folder: Whose files are watched.
      at: The event's number, from 0; None only counts.
      act: What happens then; it may raise, or end the process.
    """

    _hooked = False
    _active: "Interruption | None" = None

    def __init__(
        self, folder: pathlib.Path, at: int | None, act: Callable[[], None]
    ) -> None:
        self.events = 0
        self._folder, self._at, self._act = str(folder.resolve()), at, act

    def __enter__(self) -> "Interruption":
        if not Interruption._hooked:
            sys.addaudithook(Interruption._audit)
            for name in ("fsync", "fdatasync"):
                setattr(os, name, _around(getattr(os, name)))
            Interruption._hooked = True
        Interruption._active = self
        return self

    def __exit__(self, *error: object) -> None:
        Interruption._active = None

    @classmethod
    def _audit(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls._active is None or event not in _PATHS:
            return
        if event == "open" and not (arguments[2] or 0) & _WRITES:
            return
        for path in arguments[: _PATHS[event]]:
            if isinstance(path, str | bytes | os.PathLike):
                cls._active.happens(os.path.realpath(os.fsdecode(path)))
                return

    def happens(self, path: str) -> None:
        """Counts an event of a file."""
        if not (path.startswith(self._folder) and _is_of_the_loop()):
            return
        number, self.events = self.events, self.events + 1
        if number == self._at:
            Interruption._active = None
            self._act()


def _is_of_the_loop() -> bool:
    thread = threading.current_thread()
    main = threading.main_thread()
    return thread is main or thread.name.startswith(RELEASING_THREAD)


def _around(function: Callable[[int], None]) -> Callable[[int], None]:
    def flush(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        for last in (False, True):
            if Interruption._active is not None:
                Interruption._active.happens(path)
            if not last:
                function(descriptor)

    return flush


class Observer:
    """Counts releases of a folder from outside: models whose bytes are in a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.released: set[bytes] = set()

    def look(self, models: list[bytes]) -> int:
        """How many of the models were ever seen, now or before.

        Args:
          models: `sample` of every round that was completed, in any attempt.
        """
        for file in self._folder.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                self.released.update(model for model in models if model in content)
        return len(self.released)


def sample(weights: Any) -> bytes:
    """Bytes that tell a model's weights from all others', which have other noise."""
    return max(weights, key=lambda w: w.size).tobytes()
