"""Where results lie, and how a CSV of them is read."""

import io
import pathlib
from typing import Any, TextIO

import pandas as pd

from tff_hdp.errors import FileError

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def read(source: pathlib.Path | TextIO, dtype: Any = None) -> pd.DataFrame:
    """A study's CSV.

    Args:
      source: Where it is.
      dtype: See `pandas.read_csv`.

    Raises:
      FileError: If it is no CSV, or the last line is not whole.
    """
    try:
        text = source.read_text() if isinstance(source, pathlib.Path) else source.read()
        found = pd.read_csv(io.StringIO(text), dtype=dtype)
    except ValueError as error:  # pandas' own are such
        raise FileError(str(source), f"is no CSV: {error}") from error
    if not text.endswith("\n"):
        raise FileError(str(source), "ends within a line")
    return found
