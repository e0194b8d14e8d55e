"""Which client belongs to which zone, and how zones nest under the server."""

import dataclasses
from collections.abc import Sequence

import numpy as np


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
      ValueError: If an id repeats, a zone is empty or an index is out of range.
    """

    client_ids: tuple[str, ...]
    zone_of: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] = ()
    zone_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "client_ids", tuple(self.client_ids))
        object.__setattr__(self, "zone_of", tuple(int(z) for z in self.zone_of))
        object.__setattr__(
            self, "parents", tuple(tuple(int(p) for p in ps) for ps in self.parents)
        )
        if len(self.client_ids) != len(self.zone_of):
            raise ValueError(
                f"zone_of has {len(self.zone_of)} entries for "
                f"{len(self.client_ids)} client_ids"
            )
        if not self.client_ids:
            raise ValueError("client_ids is empty")
        seen: set[str] = set()
        for client in self.client_ids:
            if client in seen:
                raise ValueError(f"client_ids holds {client!r} twice")
            seen.add(client)
        _check_covers("zone_of", self.zone_of)
        below = self.num_zones
        for level, parent in enumerate(self.parents):
            if len(parent) != below:
                raise ValueError(
                    f"parents[{level}] has {len(parent)} entries for {below} nodes"
                )
            below = _check_covers(f"parents[{level}]", parent)
        object.__setattr__(self, "zone_names", tuple(map(str, self.zone_names)))
        if self.zone_names and len(self.zone_names) != self.num_zones:
            raise ValueError(
                f"zone_names has {len(self.zone_names)} entries for "
                f"{self.num_zones} zones"
            )

    @property
    def num_clients(self) -> int:
        """n, the number of clients."""
        return len(self.client_ids)

    @property
    def num_zones(self) -> int:
        """s, the number of zones."""
        return max(self.zone_of) + 1

    @property
    def zone_sizes(self) -> tuple[int, ...]:
        """n_i, the number of clients of each zone."""
        return tuple(np.bincount(self.zone_of, minlength=self.num_zones).tolist())

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

    def fan_ins(self, level: int) -> tuple[int, ...]:
        """How many nodes of the level beneath report to each node of `level`.

        Level 1 gives the zone sizes n_i; level `num_levels + 1` is the server.

        Raises:
          ValueError: If `level` is not in 1..num_levels + 1.
        """
        self._check_level(level, self.num_levels + 1)
        if level == self.num_levels + 1:
            return (self.level_sizes[-1],)
        links = (self.zone_of, *self.parents)[level - 1]
        return tuple(np.bincount(links).tolist())

    def ancestors(self, level: int) -> tuple[int, ...]:
        """For each client (order of `client_ids`) its node at `level`.

        Raises:
          ValueError: If `level` is not in 1..num_levels.
        """
        self._check_level(level, self.num_levels)
        nodes = np.asarray(self.zone_of)
        for parent in self.parents[: level - 1]:
            nodes = np.asarray(parent)[nodes]
        return tuple(nodes.tolist())

    def _check_level(self, level: int, highest: int) -> None:
        if not 1 <= level <= highest:
            raise ValueError(f"level is {level}; allowed is 1..{highest}")

    def clients_in(self, zone: int) -> tuple[str, ...]:
        """The ids of one zone's clients, in the order of `client_ids`."""
        if not 0 <= zone < self.num_zones:
            raise ValueError(f"zone is {zone}; there are {self.num_zones} zones")
        return tuple(
            c for c, z in zip(self.client_ids, self.zone_of, strict=True) if z == zone
        )


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
      ValueError: If `num_zones` is out of range or an id repeats.
    """
    n = len(client_ids)
    if not 1 <= num_zones <= n:
        raise ValueError(f"num_zones is {num_zones}; allowed is 1..{n} (the clients)")
    zone_of = rng.permutation(np.arange(n) % num_zones)
    return Zoning(tuple(client_ids), tuple(zone_of.tolist()))


def _check_covers(name: str, indices: tuple[int, ...]) -> int:
    """Returns the number of groups; refuses gaps and negative indices."""
    if min(indices) < 0:
        raise ValueError(f"{name} holds {min(indices)}; indices start at 0")
    count = max(indices) + 1
    missing = sorted(set(range(count)) - set(indices))
    if missing:
        raise ValueError(f"{name} leaves group {missing[0]} of {count} empty")
    return count
