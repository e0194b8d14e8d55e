"""A run's log, and what the handlers of its program get meanwhile."""

import contextlib
import logging
import pathlib
import threading
from collections.abc import Iterator

_LIBRARY = logging.getLogger("tff_hdp")


@contextlib.contextmanager
def logging_to(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Sends the library's log to a file as well, while the disk has room.

    In a program that sets no level for it the file has what a run says of itself too,
    and the program's handlers have what they would have without.
    """
    handler = logging.FileHandler(path)
    handler.handleError = lambda record: None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with _OTHERS.spared():
        _LIBRARY.addHandler(handler)
        try:
            yield path
        finally:
            _LIBRARY.removeHandler(handler)
            handler.close()


class _Others(logging.Handler):
    """Passes to the root's handlers what the library would log outside runs."""

    def __init__(self) -> None:
        super().__init__()
        self._lock_of_runs, self._runs, self._propagate = threading.Lock(), 0, True

    def emit(self, record: logging.LogRecord) -> None:
        root, logger = logging.getLogger(), logging.getLogger(record.name)
        while logger is not _LIBRARY and logger.level == logging.NOTSET:
            logger = logger.parent or _LIBRARY
        # Who set a level for a part of the library has asked for what comes of it.
        is_asked_for = logger is not _LIBRARY or record.levelno >= root.level
        if self._propagate and is_asked_for:
            root.callHandlers(record)

    @contextlib.contextmanager
    def spared(self) -> Iterator[None]:
        """Has the library say more, to its own handlers only, while any run goes on."""
        with self._lock_of_runs:
            is_silent = _LIBRARY.getEffectiveLevel() > logging.INFO
            begins = _LIBRARY.level == logging.NOTSET and is_silent
            counts = begins or self._runs > 0
            if begins:
                self._propagate = _LIBRARY.propagate
                _LIBRARY.setLevel(logging.INFO)
                _LIBRARY.propagate = False
                _LIBRARY.addHandler(self)
            self._runs += counts
        try:
            yield
        finally:
            with self._lock_of_runs:
                self._runs -= counts
                if counts and not self._runs:
                    _LIBRARY.removeHandler(self)
                    _LIBRARY.propagate = self._propagate
                    _LIBRARY.setLevel(logging.NOTSET)


_OTHERS = _Others()
