"""Files that readers find whole, whenever they look."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tff_hdp.errors import FileError


def write_text(path: pathlib.Path, text: str, *, durable: bool = False) -> None:
    """Writes a file so that readers see the old one or the new, never half.

    Several may write one at once: the last stays.

    Args:
      path: The file.
      text: Its content.
      durable: Whether to wait until the disk has it, under its name, so that a
        machine that loses its power keeps it.
    """
    write_bytes(path, text.encode(), durable=durable)


def write_json(path: pathlib.Path, value: Any, *, durable: bool = False) -> None:
    """`write_text` of JSON."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_text(path, text, durable=durable)


def write_arrays(
    path: pathlib.Path, *unnamed: np.ndarray, durable: bool = False, **named: Any
) -> None:
    """`write_text` of what `np.savez` makes of arrays."""
    content = io.BytesIO()
    np.savez(content, *unnamed, **named)
    write_bytes(path, content.getvalue(), durable=durable)


def write_figure(path: pathlib.Path, figure: Any) -> None:
    """`write_text` of a Matplotlib figure, in the format of the file's suffix."""
    content, kind = io.BytesIO(), path.suffix.removeprefix(".") or "png"
    figure.savefig(content, format=kind, dpi=120, bbox_inches="tight")
    write_bytes(path, content.getvalue())


def read_arrays(path: pathlib.Path, *names: str) -> list[np.ndarray]:
    """Arrays of an .npz file, those named in that order; all if none is.

    Raises:
      FileError: If the file is damaged, or has no such array.
      OSError: If it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in names or arrays.files]
    except (
        *(ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error),
        *(TypeError, RuntimeError, OSError),
    ) as error:
        # Reading what a damaged directory points to names no file.
        if isinstance(error, OSError) and error.filename is not None:
            raise
        wanted = ", ".join(names) or "arrays"
        raise FileError(path, f"is damaged, or no .npz of {wanted}") from error


def read_numbers(path: pathlib.Path, *names: str) -> list[np.ndarray]:
    """`read_arrays` of finite real numbers alone.

    Raises:
      FileError: As `read_arrays`, or if something else is among them.
      OSError: If the file cannot be read.
    """
    found = read_arrays(path, *names)
    for number, array in enumerate(found):
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            name = names[number] if names else f"array {number}"
            raise FileError(path, f"{name} has what is no finite real number")
    return found


def write_bytes(path: pathlib.Path, content: bytes, *, durable: bool = False) -> None:
    """`write_text` of what is no text.

    Behind a link its target is replaced. What is no file, as /dev/null, and whatever
    /dev/stdout leads to, is written to as it stands.

    Raises:
      OSError: If it cannot be written, as on a full disk; its `filename` says what.
    """
    try:
        _write_bytes(path, content, durable)
    except OSError as error:
        # Only to open a file names it.
        error.filename = error.filename or str(path)
        raise


def _write_bytes(path: pathlib.Path, content: bytes, durable: bool) -> None:
    is_link = path.is_symlink()
    of_system = is_link and path.absolute().parts[1] in ("dev", "proc")
    if of_system or (path.exists() and not path.is_file()):
        path.write_bytes(content)
        return
    path = path.resolve() if is_link else path
    # What a killed write leaves under this name, the next one writes over.
    temporary = path.with_name(f".{path.name}.unfinished")
    with _alone(temporary) as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
        temporary.replace(path)
    if durable:
        sync_names(path.parent)


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[io.BufferedWriter]:
    """An empty file of that name, which no other writer has."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                file.truncate(0)
                yield file
                return


def _is_at(path: pathlib.Path, file: io.BufferedWriter) -> bool:
    """Whether an open file has that name still; who had it before gave it another."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def alone_in(folder: pathlib.Path, *, wait: bool = True) -> Iterator[None]:
    """Waits until nobody else who asks for a folder has it, and keeps it meanwhile.

    Args:
      folder: It is there.
      wait: Otherwise who comes second is refused.

    Raises:
      FileError: If somebody has it and `wait` is false.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise FileError(folder, "another program is at work in it") from error
        yield
    finally:
        os.close(descriptor)


def by_round(path: pathlib.Path) -> tuple[int, str]:
    """A key by which files named after rounds come in the rounds' order.

    Numbers outgrow the zeros before them.
    """
    return len(path.name), path.name


def sync_names(folder: pathlib.Path) -> None:
    """Waits until the disk has the names of the files in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
