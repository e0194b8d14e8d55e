"""Files that others wrote: read within bounds, or refused in one short line."""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from tff_hdp.errors import FileError

Path = str | os.PathLike[str]
MAX_MEBIBYTES = 256


def read_text(path: Path) -> str:
    """The text of a file, without the mark before it that spreadsheets write.

    Raises:
      OSError: If it cannot be read.
      FileError: If it is larger than `MAX_MEBIBYTES`, or not UTF-8.
    """
    with open(path, "rb") as file:
        data = file.read(MAX_MEBIBYTES * 2**20 + 1)
    if len(data) > MAX_MEBIBYTES * 2**20:
        raise FileError(path, f"has more than {MAX_MEBIBYTES} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(path, f"not UTF-8: {error}") from error


def read_json(
    path: Path, *, make_object: Callable[[list[tuple[str, Any]]], Any] = dict
) -> Any:
    """What a JSON file holds.

    Args:
      path: The file.
      make_object: From an object's names and values; may raise ValueError.

    Raises:
      OSError: If it cannot be read.
      FileError: If it is no JSON, holds NaN, an infinity or half of a character, or is
        nested too deep.
    """
    text = read_text(path)
    try:
        found = json.loads(
            text, object_pairs_hook=make_object, parse_constant=_refuse_constant
        )
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError as error:
        raise FileError(path, "holds half of a character, as \\ud800 is") from error
    except json.JSONDecodeError as error:
        raise FileError(path, f"not JSON: {error}") from error
    except RecursionError as error:
        raise FileError(path, "not JSON that is nested so deep") from error
    except ValueError as error:
        raise FileError(path, str(error)) from error


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The line and the cells, without blanks around them, of every row of a CSV file.

    Rows without a cell are left out.

    Raises:
      OSError: If it cannot be read.
      FileError: If it is no text, or no CSV, or a cell goes over several lines: two
        quotes too many would make one of all rows between them.
    """
    text = io.StringIO(read_text(path), newline="")
    # Unless strict, it takes all after a quote that is not closed for one cell.
    rows = csv.reader(text, skipinitialspace=True, strict=True)
    try:
        for row in rows:
            if any("\n" in cell or "\r" in cell for cell in row):
                broken = f"line {rows.line_num}: a cell in quotes has a line break"
                raise FileError(path, broken)
            if row:
                yield rows.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise FileError(path, f"line {rows.line_num}: {error}") from error


def number_of(cell: str) -> float:
    """The number that a cell says; NaN where it says none that is finite."""
    # Python reads 1_5 for 15, and the digits of all scripts.
    if "_" in cell or not cell.isascii():
        return math.nan
    try:
        number = float(cell)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _refuse_constant(name: str) -> None:
    raise ValueError(f"holds {name}, which is no number")
