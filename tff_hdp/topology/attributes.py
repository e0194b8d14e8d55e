"""What is known of clients before they are put into zones, read from files.

A table of attributes is a CSV file with a header, one row per client and one
column per attribute; an overlay is a CSV file with one row per link:

    client,region,capability          a,b,weight
    phone-17,paris,2.5                phone-17,phone-4,1
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import numpy as np

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.topology.builders import check_same_clients

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
      FileError: If the header lacks `client` or the column, a client is missing,
        unknown or stands there twice, or its cell is empty. The message names
        the file and the offender.
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
    """Reads one column of numbers; otherwise as `load_attribute`."""
    numbers = {}
    for client, cell in load_attribute(path, column, client_ids=client_ids).items():
        try:
            numbers[client] = float(cell)
        except ValueError as error:
            raise FileError(
                path, f"{column} of {client!r} is {cell!r}, which is no number"
            ) from error
    return numbers


def load_overlay(path: str | Path, *, client_ids: Sequence[str]) -> nx.Graph:
    """Reads who is linked to whom.

    Args:
      path: The CSV file; header `a,b,weight`.
      client_ids: All clients; those without a link are nodes too.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If the header lacks a column, a link names an unknown client or
        joins a client to itself, or a weight is no number above 0.
    """
    graph = nx.Graph()
    graph.add_nodes_from(client_ids)
    for a, b, cell in _rows(path, ("a", "b", "weight")):
        stranger = next((c for c in (a, b) if c not in graph), None)
        if stranger is not None:
            raise FileError(path, f"{stranger!r} is linked but is not a client")
        if a == b:
            raise FileError(path, f"{a!r} is linked to itself")
        try:
            weight = float(cell)
        except ValueError:
            weight = float("nan")
        if not 0.0 < weight < float("inf"):
            raise FileError(
                path, f"weight of {a!r}-{b!r} is {cell!r}, which is no number > 0"
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
    with Path(path).open(newline="") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        header = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = header
        missing = next((name for name in columns if name not in header), None)
        if missing is not None:
            raise FileError(path, f"header is {header}; it lacks {missing!r}")
        rows = []
        for row in reader:
            cells = tuple((row[name] or "").strip() for name in columns)
            if not all(cells):
                raise FileError(
                    path,
                    f"line {reader.line_num} leaves one of {', '.join(columns)} empty",
                )
            rows.append(cells)
    return rows
