"""Zonings from what is known of the clients: keys, capability, an overlay."""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence

import networkx as nx
import numpy as np

from tff_hdp.topology.zoning import Zoning, equal_zones


def zones_of_sizes(
    client_ids: Sequence[str], sizes: Sequence[int], *, rng: np.random.Generator
) -> Zoning:
    """Deals clients at random to zones of given, possibly unequal, sizes.

    Args:
      client_ids: Distinct client ids.
      sizes: n_i >= 1, summing to the number of clients.
      rng: Decides who goes where.

    Raises:
      ValueError: If a size is below 1 or they do not sum to the clients.
    """
    for i, size in enumerate(sizes):
        if size < 1:
            raise ValueError(f"sizes[{i}] is {size}; a zone needs a client")
    if sum(sizes) != len(client_ids):
        raise ValueError(
            f"sizes sum to {sum(sizes)}, but there are {len(client_ids)} clients"
        )
    zone_of = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return Zoning(tuple(client_ids), tuple(zone_of.tolist()))


def zones_by_key(client_ids: Sequence[str], *, keys: Mapping[str, Hashable]) -> Zoning:
    """One zone per distinct key, such as a region or a dominant label.

    Args:
      client_ids: Distinct client ids.
      keys: The key of every client.

    Returns:
      A `Zoning` whose zones stand in the sorted order of their keys' names.

    Raises:
      ValueError: If `keys` lacks a client or names an unknown one.
    """
    check_same_clients("keys", keys, client_ids)
    names = sorted({str(keys[client]) for client in client_ids})
    index = {name: i for i, name in enumerate(names)}
    zone_of = tuple(index[str(keys[client])] for client in client_ids)
    return Zoning(tuple(client_ids), zone_of, zone_names=tuple(names))


def dominant_labels(labels: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Each client's most frequent label (the smallest on a tie): a zone key.

    Args:
      labels: For each client the labels of its examples, non-negative integers.

    Raises:
      ValueError: If a client has no examples or a label is negative.
    """
    keys = {}
    for client, values in labels.items():
        values = np.asarray(values)
        if values.size == 0:
            raise ValueError(f"labels[{client!r}] is empty")
        if values.min() < 0:
            raise ValueError(
                f"labels[{client!r}] holds {values.min()}; allowed is >= 0"
            )
        keys[client] = int(np.bincount(values).argmax())
    return keys


def zones_by_capability(
    client_ids: Sequence[str], *, capability: Mapping[str, float], num_zones: int
) -> Zoning:
    """Bands of like compute capability; zone 0 holds the least capable.

    Args:
      client_ids: Distinct client ids.
      capability: A finite score for every client, larger is more capable.
      num_zones: s; zone sizes differ by at most one.

    Raises:
      ValueError: If `num_zones` is out of range, a score is missing, not
        finite, or given for an unknown client.
    """
    check_same_clients("capability", capability, client_ids)
    _check_num_zones(num_zones, len(client_ids))
    for client in client_ids:
        if not math.isfinite(capability[client]):
            raise ValueError(
                f"capability[{client!r}] is {capability[client]}; "
                "allowed is a finite number"
            )
    scores = np.array([capability[client] for client in client_ids], np.float64)
    order = np.argsort(scores, kind="stable")
    zone_of = np.empty(len(client_ids), np.int64)
    for zone, band in enumerate(np.array_split(order, num_zones)):
        zone_of[band] = zone
    return Zoning(tuple(client_ids), tuple(zone_of.tolist()))


def zones_by_overlay(
    client_ids: Sequence[str], *, overlay: nx.Graph, num_zones: int | None = None
) -> Zoning:
    """Communities of a peer-to-peer overlay (greedy modularity, Clauset 2004).

    Args:
      client_ids: Distinct client ids; these are the overlay's nodes.
      overlay: Undirected graph of who is linked to whom; an edge attribute
        `weight` counts if present.
      num_zones: s; None takes the partition of largest modularity.

    Returns:
      A `Zoning`, largest community first.

    Raises:
      ValueError: If the nodes are not the clients, `num_zones` is out of range,
        or the overlay falls into more components than `num_zones`.
    """
    check_same_clients("overlay", overlay, client_ids)
    limits = {}
    if num_zones is not None:
        _check_num_zones(num_zones, len(client_ids))
        components = nx.number_connected_components(overlay)
        if components > num_zones:
            raise ValueError(
                f"num_zones is {num_zones}, but the overlay has {components} "
                "components that share no link"
            )
        limits = {"cutoff": num_zones, "best_n": num_zones}
    if overlay.number_of_edges():
        communities = nx.community.greedy_modularity_communities(
            overlay, weight="weight", **limits
        )
    else:
        communities = [{client} for client in client_ids]
    zone = {client: i for i, members in enumerate(communities) for client in members}
    return Zoning(tuple(client_ids), tuple(zone[client] for client in client_ids))


def tree_zones(
    client_ids: Sequence[str],
    *,
    nodes_per_level: Sequence[int],
    rng: np.random.Generator,
) -> Zoning:
    """A tree of any depth, each level dealt evenly at random to the one above.

    Args:
      client_ids: Distinct client ids.
      nodes_per_level: Number of zones, then of regions above them, and so on;
        each between 1 and the number of nodes beneath.
      rng: Decides who goes where.

    Raises:
      ValueError: If `nodes_per_level` is empty or a level is out of range.
    """
    if not nodes_per_level:
        raise ValueError("nodes_per_level is empty; give at least the zones")
    zoning = equal_zones(client_ids, nodes_per_level[0], rng=rng)
    return with_levels(zoning, nodes_per_level[1:], rng=rng)


def with_levels(
    zoning: Zoning, nodes_per_level: Sequence[int], *, rng: np.random.Generator
) -> Zoning:
    """The same zones under further levels, each dealt evenly at random.

    Args:
      zoning: Zones with or without levels above them.
      nodes_per_level: Number of nodes of each level to add, innermost first; each
        between 1 and the number of nodes beneath.
      rng: Decides who reports to whom.

    Raises:
      ValueError: If a level is out of range.
    """
    parents = list(zoning.parents)
    below = zoning.level_sizes[-1]
    for level, count in enumerate(nodes_per_level, start=zoning.num_levels):
        if not 1 <= count <= below:
            raise ValueError(
                f"nodes_per_level[{level}] is {count}; allowed is 1..{below} "
                "(the nodes beneath)"
            )
        parents.append(tuple(rng.permutation(np.arange(below) % count).tolist()))
        below = count
    return dataclasses.replace(zoning, parents=tuple(parents))


def check_same_clients(
    name: str, found: Mapping[str, object] | nx.Graph, client_ids: Sequence[str]
) -> None:
    """Raises ValueError unless `found` has exactly the clients `client_ids`."""
    known = set(client_ids)
    missing = next((client for client in client_ids if client not in found), None)
    if missing is not None:
        raise ValueError(f"{name} lacks client {missing!r}")
    unknown = next((client for client in found if client not in known), None)
    if unknown is not None:
        raise ValueError(f"{name} names {unknown!r}, which is not a client")


def _check_num_zones(num_zones: int, num_clients: int) -> None:
    if not 1 <= num_zones <= num_clients:
        raise ValueError(
            f"num_zones is {num_zones}; allowed is 1..{num_clients} (the clients)"
        )
