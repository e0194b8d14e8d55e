"""What is known of clients before they are put into zones: read, or drawn by chance.

A table of attributes is a CSV file with a header, one row per client and one
column per attribute; an overlay is a CSV file with one row per link:

    client,region,capability          a,b,weight
    phone-17,paris,2.5                phone-17,phone-4,1
"""

import math
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import numpy as np

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.reading import number_of, read_rows
from tff_hdp.topology.builders import WEIGHTS, check_same_clients

# Of the small world: the links of a client, and the share of them that is rewired.
NEIGHBOURS = 6
REWIRED = 0.1


def load_attribute(
    path: str | Path, column: str, *, client_ids: Sequence[str]
) -> dict[str, str]:
    """Reads one column of a table of clients.

    Args:
      path: The CSV file.
      column: The attribute's name in the header.
      client_ids: The clients that must have a row, each exactly one.

    Returns:
      The attribute of every client, as written.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If the header lacks `client` or the column or has one twice, a client
        is missing, unknown or stands there twice, its cell is empty, or a row has more
        cells than the header. The message names the file and the offender.
    """
    rows = _rows(path, ("client", column))
    values: dict[str, str] = {}
    for client, value in rows:
        if client in values:
            raise FileError(path, f"client {client!r} stands there twice")
        values[client] = value
    try:
        check_same_clients(column, values, client_ids)
    except ArgumentError as error:
        raise FileError(path, str(error)) from error
    return values


def load_numbers(
    path: str | Path, column: str, *, client_ids: Sequence[str]
) -> dict[str, float]:
    """Reads one column of finite numbers; otherwise as `load_attribute`."""
    cells = load_attribute(path, column, client_ids=client_ids)
    numbers = {client: number_of(cell) for client, cell in cells.items()}
    for client, number in numbers.items():
        if math.isnan(number):
            raise FileError(
                path, f"{column} of {client!r} is {cells[client]!r}; give a number"
            )
    return numbers


def load_overlay(path: str | Path, *, client_ids: Sequence[str]) -> nx.Graph:
    """Reads who is linked to whom.

    Args:
      path: The CSV file; header `a,b,weight`.
      client_ids: All clients; those without a link are nodes too.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If the header lacks a column or has one twice, a link names an unknown
        client, joins a client to itself or stands there twice, in either direction,
        a weight is not within `WEIGHTS`, or a row has more cells than the header.
    """
    graph = nx.Graph()
    graph.add_nodes_from(client_ids)
    for a, b, cell in _rows(path, ("a", "b", "weight")):
        stranger = next((c for c in (a, b) if c not in graph), None)
        if stranger is not None:
            raise FileError(path, f"{stranger!r} is linked but is not a client")
        if a == b:
            raise FileError(path, f"{a!r} is linked to itself")
        if graph.has_edge(a, b):
            raise FileError(path, f"link {a!r}-{b!r} stands there twice")
        weight, (least, most) = number_of(cell), WEIGHTS
        if not least <= weight <= most:
            raise FileError(
                path,
                f"weight of {a!r}-{b!r} is {cell!r}; give a number in "
                f"[{least:g}, {most:g}]",
            )
        graph.add_edge(a, b, weight=weight)
    return graph


def small_world(client_ids: Sequence[str], *, rng: np.random.Generator) -> nx.Graph:
    """A connected small world of the clients (Watts and Strogatz 1998).

    Stands in for an overlay where none is known: `NEIGHBOURS` links a client on a
    ring of random order, of which a share `REWIRED` leads anywhere.
    """
    n = len(client_ids)
    order = [client_ids[i] for i in rng.permutation(n)]
    if n <= NEIGHBOURS:
        graph = nx.complete_graph(n)
    else:
        graph = nx.connected_watts_strogatz_graph(
            n, NEIGHBOURS, REWIRED, tries=1000, seed=int(rng.integers(2**32))
        )
    return nx.relabel_nodes(graph, dict(enumerate(order)))


def _rows(path: str | Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    lines = read_rows(path)
    _, header = next(lines, (0, []))
    missing = next((name for name in columns if name not in header), None)
    if missing is not None:
        raise FileError(path, f"header is {header}; it lacks {missing!r}")
    twice = next((name for name in columns if header.count(name) > 1), None)
    if twice is not None:
        raise FileError(path, f"header has {twice!r} twice")
    places = [header.index(name) for name in columns]
    rows = []
    for line, row in lines:
        if len(row) > len(header):
            # A comma that is none between cells shifts those after it.
            found = f"line {line} has {len(row)} cells, the header {len(header)}"
            raise FileError(path, found)
        cells = tuple(row[i] for i in places if i < len(row) and row[i])
        if len(cells) < len(columns):
            names = ", ".join(columns)
            raise FileError(path, f"line {line} leaves one of {names} empty")
        rows.append(cells)
    return rows
