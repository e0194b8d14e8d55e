"""Which client belongs to which zone, and how zones nest under the server."""

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from tff_hdp.errors import ArgumentError, as_tuple, require


@dataclasses.dataclass(frozen=True)
class Zoning:
    """A partition of clients into zones, and optionally of zones into regions.

    Level 0 holds the clients, level 1 the zones (super-nodes); `parents` adds
    further levels below the server, innermost first.

    Attributes:
      client_ids: Distinct client ids, in a fixed order.
      zone_of: For each client (same order) the index of its zone, covering
        0..s-1 without gaps.
      parents: For each further level, the parent index of every node of the
        level beneath; `parents[0][i]` is the region of zone i. Empty for the
        paper's single intermediate level.
      zone_names: One name per zone, for reports; empty if zones are unnamed.

    Raises:
      ArgumentError: If an id repeats, a zone is empty or an index is out of range.
    """

    client_ids: tuple[str, ...]
    zone_of: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] = ()
    zone_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("client_ids", "parents", "zone_names"):
            object.__setattr__(self, name, as_tuple(name, getattr(self, name)))
        object.__setattr__(self, "zone_of", _indices("zone_of", self.zone_of))
        parents = (_indices(f"parents[{i}]", p) for i, p in enumerate(self.parents))
        object.__setattr__(self, "parents", tuple(parents))
        if len(self.client_ids) != len(self.zone_of):
            raise ArgumentError(
                "zone_of",
                f"of {len(self.zone_of)} entries",
                f"one for each of {len(self.client_ids)} client_ids",
            )
        if not self.client_ids:
            raise ArgumentError("client_ids", self.client_ids, "at least one")
        seen: set[str] = set()
        for client in self.client_ids:
            require(isinstance(client, Hashable), "client_ids", client, "hashable ids")
            if client in seen or client != client:  # as NaN, which is in no set
                raise ArgumentError("client_ids", client, "each id once")
            seen.add(client)
        _check_covers("zone_of", self.zone_of)
        below = self.num_zones
        for level, parent in enumerate(self.parents):
            if len(parent) != below:
                raise ArgumentError(
                    f"parents[{level}]",
                    f"of {len(parent)} entries",
                    f"one for each of {below} nodes",
                )
            below = _check_covers(f"parents[{level}]", parent)
        object.__setattr__(self, "zone_names", tuple(map(str, self.zone_names)))
        if self.zone_names and len(self.zone_names) != self.num_zones:
            raise ArgumentError(
                "zone_names", self.zone_names, f"one for each of {self.num_zones} zones"
            )
        # Reports would take those of one name for one zone.
        unlike = len(set(self.zone_names)) == len(self.zone_names)
        require(unlike, "zone_names", self.zone_names, "each name once")

    @property
    def num_clients(self) -> int:
        """n, the number of clients."""
        return len(self.client_ids)

    @functools.cached_property
    def num_zones(self) -> int:
        """s, the number of zones."""
        return max(self.zone_of) + 1

    @functools.cached_property
    def zone_sizes(self) -> tuple[int, ...]:
        """n_i, the number of clients of each zone."""
        return tuple(np.bincount(self.zone_of, minlength=self.num_zones).tolist())

    @functools.cached_property
    def members(self) -> tuple[np.ndarray, ...]:
        """Per zone the indices of its clients into `client_ids`, rising, int64."""
        zone_by_zone = np.argsort(self.zone_of, kind="stable")
        return tuple(np.split(zone_by_zone, np.cumsum(self.zone_sizes)[:-1]))

    @property
    def num_levels(self) -> int:
        """l, the number of levels between clients and server; the paper's is 1."""
        return 1 + len(self.parents)

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Nodes per level, innermost first: n clients, s zones, regions, ..."""
        return (
            self.num_clients,
            self.num_zones,
            *(max(parent) + 1 for parent in self.parents),
        )

    def clients_in(self, zone: int) -> tuple[str, ...]:
        """The ids of one zone's clients, in the order of `client_ids`.

        Raises:
          ArgumentError: If there is no such zone.
        """
        is_whole = isinstance(zone, int | np.integer) and not isinstance(zone, bool)
        is_one = is_whole and 0 <= zone < self.num_zones
        require(is_one, "zone", zone, f"0..{self.num_zones - 1}")
        return tuple(self.client_ids[i] for i in self.members[zone])


def one_zone(client_ids: Sequence[str]) -> Zoning:
    """All clients in one zone: a server without super-nodes."""
    client_ids = as_tuple("client_ids", client_ids)
    return Zoning(client_ids, (0,) * len(client_ids))


def _indices(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    try:
        indices = np.asarray(as_tuple(name, values))
    except (TypeError, ValueError) as error:  # no sequence, or a ragged one
        raise ArgumentError(name, values, "a sequence of whole numbers") from error
    is_whole = not indices.size or indices.dtype.kind in "iu"
    if indices.ndim != 1 or not is_whole:
        raise ArgumentError(name, f"of {indices.dtype}", "whole numbers")
    if indices.size and indices.min() < 0:
        raise ArgumentError(name, indices.min(), "indices from 0 on")
    return tuple(indices.tolist())


def _check_covers(name: str, indices: tuple[int, ...]) -> int:
    """Returns the number of groups; refuses gaps."""
    count, found = max(indices) + 1, set(indices)
    if len(found) < count:
        missing = next(i for i in range(count) if i not in found)
        raise ArgumentError(
            name, f"without {missing}", f"every index of 0..{count - 1}"
        )
    return count
