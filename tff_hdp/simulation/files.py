"""Files that readers find whole, whenever they look."""

import json
import os
import pathlib
from typing import Any


def write_text(path: pathlib.Path, text: str, *, durable: bool = False) -> None:
    """Writes a file so that readers see the old one or the new, never half.

    Args:
      path: The file.
      text: Its content.
      durable: Whether to wait until the disk has it, under its name, so that a
        machine that loses its power keeps it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        sync_names(path.parent)


def write_json(path: pathlib.Path, value: Any, *, durable: bool = False) -> None:
    """`write_text` of JSON."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_text(path, text, durable=durable)


def sync_names(folder: pathlib.Path) -> None:
    """Waits until the disk has the names of the files in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
