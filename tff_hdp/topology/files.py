"""Zonings written down by hand: an explicit mapping in a CSV or JSON file.

CSV: a header, then one row per client: its id, its zone, and for deeper trees
one further column per level, innermost first:

    client,zone,region
    phone-17,paris,europe

JSON: nested objects from the outermost level in, ending in lists of clients:

    {"europe": {"paris": ["phone-17"], "rome": ["phone-4"]}}
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tff_hdp.errors import ArgumentError, FileError, as_tuple, require
from tff_hdp.reading import read_json, read_rows
from tff_hdp.topology.zoning import Zoning

# Far more than any tree of super-nodes has.
MAX_LEVELS = 32


def load_zones(path: str | Path, *, client_ids: Sequence[str] | None = None) -> Zoning:
    """Reads a zoning of any depth from a `.csv` or `.json` file.

    Args:
      path: The file, laid out as this module's docstring says.
      client_ids: The clients that must be mapped, in this order; None takes
        the file's own clients and order.

    Returns:
      A `Zoning`; every level's nodes stand in the order of first mention in the file.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If the file cannot be read as described, has more than `MAX_LEVELS`,
        puts a client in two zones, a zone in two regions, leaves a zone or a name
        empty, or its clients are not `client_ids`. The message names the file and the
        offender.
      ArgumentError: If the file's name ends otherwise, or an argument is of another
        kind.
    """
    is_path = isinstance(path, str | os.PathLike)
    require(is_path, "path", path, "a .csv or .json file")
    if client_ids is not None:
        client_ids = as_tuple("client_ids", client_ids)
    path = Path(path)
    readers = {".csv": _rows_of_csv, ".json": _rows_of_json}
    if path.suffix not in readers:
        raise ArgumentError("path", path, "a .csv or .json file")
    try:
        return _zoning(list(readers[path.suffix](path)), client_ids)
    except FileError:
        raise
    except ValueError as error:
        raise FileError(path, str(error)) from error


def _rows_of_csv(path: Path) -> Iterator[tuple[str, ...]]:
    rows = read_rows(path)
    _, header = next(rows, (0, []))
    if header[:2] != ["client", "zone"]:
        raise ValueError(f"header is {header}; it must begin client,zone")
    width = len(header)
    for line, row in rows:
        if len(row) != width or not all(row):
            raise ValueError(f"line {line} is {row}; it needs {width} non-empty cells")
        yield tuple(row)


def _rows_of_json(path: Path) -> Iterator[tuple[str, ...]]:
    tree = read_json(path, make_object=_unique_names)
    if not isinstance(tree, dict) or not tree:
        raise ValueError("the outermost value must be a non-empty object")
    yield from _leaves(tree, ())


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"group {name!r} is given twice")
        if not name.strip():
            raise ValueError("a group's name is empty")
        found[name] = value
    return found


def _leaves(node: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not isinstance(node, dict | list):
        raise ValueError(f"group {above[0]!r} holds {node!r}; give an object or a list")
    if not node:
        raise ValueError(f"group {above[0]!r} is empty")
    if len(above) > MAX_LEVELS:
        raise ValueError(f"group {above[0]!r} lies more than {MAX_LEVELS} levels deep")
    if isinstance(node, dict):
        for name, child in node.items():
            yield from _leaves(child, (name, *above))
        return
    for client in node:
        if not isinstance(client, str):
            raise ValueError(f"zone {above[0]!r} holds {client!r}; give client ids")
        if not client.strip():
            raise ValueError(f"zone {above[0]!r} holds a client whose id is empty")
        yield (client, *above)


def _zoning(rows: list[tuple[str, ...]], client_ids: Sequence[str] | None) -> Zoning:
    if not rows:
        raise ValueError("no client is mapped")
    depth = len(rows[0])
    if depth - 1 > MAX_LEVELS:
        raise ValueError(f"{depth - 1} levels; allowed are {MAX_LEVELS}")
    groups_of: dict[str, tuple[str, ...]] = {}
    for client, *groups in rows:
        if len(groups) != depth - 1:
            raise ValueError(
                f"client {client!r} lies {len(groups)} levels deep, "
                f"{rows[0][0]!r} {depth - 1}"
            )
        if client in groups_of:
            raise ValueError(
                f"client {client!r} is in zone {groups_of[client][0]!r} "
                f"and again in zone {groups[0]!r}"
            )
        groups_of[client] = tuple(groups)
    order = tuple(groups_of) if client_ids is None else tuple(client_ids)
    for client in order:
        if client not in groups_of:
            raise ValueError(f"client {client!r} is in no zone")
    known = set(order)
    unknown = next((client for client in groups_of if client not in known), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is mapped to a zone but is not a client")

    # A plan for the file's zones has them in the file's order, whatever the clients'.
    levels = [[g[level] for g in groups_of.values()] for level in range(depth - 1)]
    zone_names, zones = _number(levels[0])
    zone = dict(zip(groups_of, zones, strict=True))
    below, parents = zones, []
    for level in range(1, depth - 1):
        names, nodes = _number(levels[level])
        parents.append(_links(below, nodes, levels[level - 1], names))
        below = nodes
    return Zoning(order, tuple(zone[c] for c in order), tuple(parents), zone_names)


def _number(names: list[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Numbers names by first mention: the distinct names, and each one's number."""
    index: dict[str, int] = {}
    numbers = tuple(index.setdefault(name, len(index)) for name in names)
    return tuple(index), numbers


def _links(
    below: tuple[int, ...],
    above: tuple[int, ...],
    names_below: list[str],
    names_above: tuple[str, ...],
) -> tuple[int, ...]:
    parent: dict[int, int] = {}
    for child, node, name in zip(below, above, names_below, strict=True):
        if parent.setdefault(child, node) != node:
            raise ValueError(
                f"{name!r} lies in {names_above[parent[child]]!r} "
                f"and again in {names_above[node]!r}"
            )
    return tuple(parent[child] for child in range(len(parent)))
