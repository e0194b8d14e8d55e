"""Files that readers find whole, whenever they look."""

import json
import os
import pathlib
from typing import Any


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a file so that readers see the old one or the new, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def write_json(path: pathlib.Path, value: Any) -> None:
    """`write_text` of JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
