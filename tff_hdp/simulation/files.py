"""Files that readers find whole, whenever they look."""

import json
import os
import pathlib
from typing import Any


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON so that readers see the old file or the new, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
    temporary.replace(path)
