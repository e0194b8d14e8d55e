"""Zonings by chance or by what is known of clients: keys, capability, an overlay."""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence

import networkx as nx
import numpy as np

from tff_hdp.errors import (
    ArgumentError,
    as_tuple,
    check_count,
    check_number,
    entries,
    require,
)
from tff_hdp.topology.zoning import Zoning

# Of a link: sums of products of such weights neither overflow nor vanish.
WEIGHTS = (1e-9, 1e9)
_BY_CLIENT = "a mapping by client"


def equal_zones(
    client_ids: Sequence[str], num_zones: int, *, rng: np.random.Generator
) -> Zoning:
    """Deals clients to zones at random; zone sizes differ by at most one.

    Args:
      client_ids: Distinct client ids.
      num_zones: s, between 1 and the number of clients.
      rng: Decides who goes where.

    Returns:
      A `Zoning` with one intermediate level.

    Raises:
      ArgumentError: If `num_zones` is out of range, an id repeats or an argument is
        of another kind.
    """
    client_ids = as_tuple("client_ids", client_ids)
    num_zones = _check_num_zones(num_zones, client_ids)
    zone_of = _shuffled(np.arange(len(client_ids)) % num_zones, rng)
    return Zoning(client_ids, zone_of)


def zones_of_sizes(
    client_ids: Sequence[str], zone_sizes: Sequence[int], *, rng: np.random.Generator
) -> Zoning:
    """Deals clients at random to zones of given, possibly unequal, sizes.

    Args:
      client_ids: Distinct client ids.
      zone_sizes: n_i >= 1, summing to the number of clients.
      rng: Decides who goes where.

    Raises:
      ArgumentError: If a size is no whole number >= 1, they do not sum to the
        clients, or an argument is of another kind.
    """
    client_ids = as_tuple("client_ids", client_ids)
    zone_sizes = entries(
        "zone_sizes", zone_sizes, lambda name, size: check_count(name, size, 1)
    )
    if sum(zone_sizes) != len(client_ids):
        raise ArgumentError(
            "zone_sizes",
            zone_sizes,
            f"sizes that sum to {len(client_ids)} (the clients)",
        )
    zones = np.repeat(np.arange(len(zone_sizes)), zone_sizes)
    return Zoning(client_ids, _shuffled(zones, rng))


def zones_by_key(client_ids: Sequence[str], *, keys: Mapping[str, Hashable]) -> Zoning:
    """One zone per distinct key, such as a region or a dominant label.

    Args:
      client_ids: Distinct client ids.
      keys: The key of every client; those of one text are one.

    Returns:
      A `Zoning` whose zones stand in the sorted order of their keys' names.

    Raises:
      ArgumentError: If `keys` lacks a client or names an unknown one, or a key is
        missing: None, or NaN or NA as in tables.
    """
    client_ids = as_tuple("client_ids", client_ids)
    check_same_clients("keys", keys, client_ids)
    for client, key in keys.items():
        require(_is_key(key), f"keys[{client!r}]", key, "a key")
    names = sorted({str(keys[client]) for client in client_ids})
    index = {name: i for i, name in enumerate(names)}
    zone_of = tuple(index[str(keys[client])] for client in client_ids)
    return Zoning(client_ids, zone_of, zone_names=tuple(names))


def _is_key(key: object) -> bool:
    try:
        return key is not None and bool(key == key)  # NaN is no equal of its own
    except (TypeError, ValueError):  # pandas' NA, and arrays
        return False


def dominant_labels(labels: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Each client's most frequent label (the smallest on a tie): a zone key.

    Args:
      labels: For each client the labels of its examples, non-negative integers.

    Raises:
      ArgumentError: If a client has no examples, or its labels are something else.
    """
    require(isinstance(labels, Mapping), "labels", labels, _BY_CLIENT)
    return {
        client: _dominant(f"labels[{client!r}]", values)
        for client, values in labels.items()
    }


def _dominant(name: str, values: Sequence[int]) -> int:
    allowed = "one or more integers >= 0, in one flat sequence"
    try:
        array = np.asarray(values)
    except ValueError as error:  # sequences of unequal lengths
        raise ArgumentError(name, values, allowed) from error
    ok = array.ndim == 1 and array.size > 0 and array.dtype.kind in "biu"
    require(ok, name, values, allowed)
    require(array.min() >= 0, name, array.min(), "labels >= 0")
    found, counts = np.unique(array, return_counts=True)
    return int(found[counts.argmax()])


def zones_by_capability(
    client_ids: Sequence[str], *, capability: Mapping[str, float], num_zones: int
) -> Zoning:
    """Bands of like compute capability; zone 0 holds the least capable.

    Args:
      client_ids: Distinct client ids.
      capability: A finite score for every client, larger is more capable.
      num_zones: s; zone sizes differ by at most one.

    Raises:
      ArgumentError: If `num_zones` is out of range, a score is missing, not
        finite, or given for an unknown client.
    """
    client_ids = as_tuple("client_ids", client_ids)
    check_same_clients("capability", capability, client_ids)
    num_zones = _check_num_zones(num_zones, client_ids)
    scores = [
        check_number(
            f"capability[{client!r}]",
            capability[client],
            "a finite number",
            math.isfinite,
        )
        for client in client_ids
    ]
    order = np.argsort(scores, kind="stable")
    zone_of = np.empty(len(client_ids), np.int64)
    for zone, band in enumerate(np.array_split(order, num_zones)):
        zone_of[band] = zone
    return Zoning(client_ids, tuple(zone_of.tolist()))


def zones_by_overlay(
    client_ids: Sequence[str], *, overlay: nx.Graph, num_zones: int | None = None
) -> Zoning:
    """Communities of a peer-to-peer overlay (greedy modularity, Clauset 2004).

    Args:
      client_ids: Distinct client ids; these are the overlay's nodes.
      overlay: Undirected graph of who is linked to whom; an edge attribute
        `weight`, within `WEIGHTS`, counts if present.
      num_zones: s; None takes the partition of largest modularity.

    Returns:
      A `Zoning`, largest community first.

    Raises:
      ArgumentError: If the overlay is no such graph, its nodes are not the clients,
        `num_zones` is out of range, or it falls into more components than `num_zones`.
    """
    ok = isinstance(overlay, nx.Graph) and not overlay.is_directed()
    require(ok, "overlay", type(overlay).__name__, "an undirected networkx.Graph")
    client_ids = as_tuple("client_ids", client_ids)
    check_same_clients("overlay", overlay, client_ids)
    least, most = WEIGHTS
    allowed = f"a number in [{least:g}, {most:g}]"
    for a, b, weight in overlay.edges(data="weight", default=1.0):
        name = f"overlay[{a!r}][{b!r}]['weight']"
        check_number(name, weight, allowed, lambda x: least <= x <= most)
    limits = {}
    if num_zones is not None:
        num_zones = _check_num_zones(num_zones, client_ids)
        components = nx.number_connected_components(overlay)
        if components > num_zones:
            raise ArgumentError(
                "num_zones",
                num_zones,
                f"at least {components}, the overlay's components that share no link",
            )
        limits = {"cutoff": num_zones, "best_n": num_zones}
    if overlay.number_of_edges():
        communities = nx.community.greedy_modularity_communities(
            overlay, weight="weight", **limits
        )
    else:
        communities = [{client} for client in client_ids]
    zone = {client: i for i, members in enumerate(communities) for client in members}
    return Zoning(client_ids, tuple(zone[client] for client in client_ids))


def with_levels(
    zoning: Zoning, levels: Sequence[int], *, rng: np.random.Generator
) -> Zoning:
    """The same zones under further levels, each dealt evenly at random.

    Args:
      zoning: Zones with or without levels above them.
      levels: Number of nodes of each level to add, innermost first; each
        between 1 and the number of nodes beneath.
      rng: Decides who reports to whom.

    Raises:
      ArgumentError: If a level is out of range, or an argument is of another kind.
    """
    require(isinstance(zoning, Zoning), "zoning", zoning, "a Zoning")
    parents = list(zoning.parents)
    below = zoning.level_sizes[-1]
    for i, count in enumerate(entries("levels", levels, check_count)):
        if not 1 <= count <= below:
            raise ArgumentError(
                f"levels[{i}]", count, f"1..{below} (the nodes beneath)"
            )
        parents.append(_shuffled(np.arange(below) % count, rng))
        below = count
    return dataclasses.replace(zoning, parents=tuple(parents))


def check_same_clients(
    name: str, found: Mapping[str, object] | nx.Graph, client_ids: Sequence[str]
) -> None:
    """Raises ArgumentError unless `found` has exactly the clients `client_ids`."""
    require(isinstance(found, Mapping | nx.Graph), name, found, _BY_CLIENT)
    known = set(client_ids)
    missing = next((client for client in client_ids if client not in found), None)
    if missing is not None:
        raise ArgumentError(name, f"without {missing!r}", "a value for every client")
    unknown = next((client for client in found if client not in known), None)
    if unknown is not None:
        raise ArgumentError(name, f"given for {unknown!r}", "clients only")


def _shuffled(values: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
    """Whole numbers in a random order; raises ArgumentError unless `rng` draws."""
    require(isinstance(rng, np.random.Generator), "rng", rng, "a NumPy generator")
    return tuple(rng.permutation(values).tolist())


def _check_num_zones(num_zones: int, client_ids: Sequence[str]) -> int:
    """Returns it as an int; raises ArgumentError unless 1..n clients and whole."""
    require(bool(client_ids), "client_ids", client_ids, "at least one")
    num_zones, n = check_count("num_zones", num_zones), len(client_ids)
    require(1 <= num_zones <= n, "num_zones", num_zones, f"1..{n} (the clients)")
    return num_zones
