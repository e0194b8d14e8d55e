"""Files that readers find whole, whenever they look."""

import json
import os
import pathlib
from typing import Any

from tff_hdp.errors import FileError


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a file so that readers see the old one or the new, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def write_json(path: pathlib.Path, value: Any) -> None:
    """`write_text` of JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: pathlib.Path) -> Any:
    """What `write_json` wrote.

    Raises:
      FileError: If it is no JSON.
      OSError: If there is no such file, or it cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise FileError(path, f"holds no JSON: {error}") from error
