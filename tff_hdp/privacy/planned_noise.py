"""Who adds how much noise in a plan: what draws it and what accounts it both read."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from tff_hdp.errors import (
    TooLittleNoiseError,
    check_count,
    check_nonnegative,
    entries,
    require,
)
from tff_hdp.privacy.parts import Clipping, check_zone_sizes

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# As the bounds of `parts`, so that accounts are of floats.
_LEAST_IN_PLAN, _GREATEST_IN_PLAN = 1e-15, 1e9
# Of noise multipliers that somebody may give; the largest is the most that is searched.
_LEAST_GIVEN, LARGEST_MULTIPLIER = 1e-6, 1e6
# The least that is searched: with less there is no noise to speak of.
SMALLEST_MULTIPLIER = 2.0**-10


def check_multiplier(z: float) -> None:
    """Raises ArgumentError unless `z` is a noise multiplier that somebody may give."""
    ok = _LEAST_GIVEN <= z <= LARGEST_MULTIPLIER
    require(ok, "noise_multiplier", z, "1e-6..1e6")


def _check_in_plan(name: str, z: Any) -> float:
    """Returns a noise multiplier of a plan: 0, or one whose square divides others.

    Raises:
      ArgumentError: If `z` is no such number.
    """
    number = check_nonnegative(name, z)
    ok = number == 0.0 or _LEAST_IN_PLAN <= number <= _GREATEST_IN_PLAN
    allowed = f"0, or {_LEAST_IN_PLAN:g}..{_GREATEST_IN_PLAN:g}"
    require(ok, name, number, allowed)
    return number


@dataclasses.dataclass(frozen=True)
class PartyNoise:
    """Gaussian noise that one party adds to a value; false where it adds none.

    Attributes:
      noise_multiplier: z, its standard deviation in units of the sensitivity.
      sensitivity: S, the L2 distance by which one client can move the value; that of
        the first round where clipping is adaptive.
    """

    noise_multiplier: float
    sensitivity: float

    def __bool__(self) -> bool:
        return self.noise_multiplier > 0.0

    @property
    def stddev(self) -> float:
        """Its standard deviation, in the value's units."""
        return self.noise_multiplier * self.sensitivity

    @property
    def event(self) -> "DpEvent":
        """What it is accounted as where somebody reports it."""
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    def variance(self, factor: float = 1.0) -> float:
        """In units of S^2, of the value times a `factor`."""
        return (self.noise_multiplier * factor) ** 2

    def in_steps(self, step: float) -> float:
        """Its standard deviation in steps of a grid, of the value's units."""
        return self.stddev / step

    def check_at_least(self, name: str, least: float, allowed: str) -> None:
        """Refuses noise, if there is any, of a multiplier below `least`.

        Raises:
          TooLittleNoiseError: If it is.
        """
        if 0.0 < self.noise_multiplier < least:
            raise TooLittleNoiseError(name, self.noise_multiplier, allowed)


@dataclasses.dataclass(frozen=True)
class Level:
    """An aggregation level between the zones and the server.

    Attributes:
      parents: For every node of the level beneath, the node of this level it
        reports to; covers 0..m-1.
      noise_multipliers: Of each of the m nodes.

    Raises:
      ArgumentError: If a number is out of range, or the parents are not 0..m-1.
    """

    parents: tuple[int, ...]
    noise_multipliers: tuple[float, ...]

    def __post_init__(self) -> None:
        parents = entries("parents", self.parents, check_count)
        object.__setattr__(self, "parents", parents)
        found = entries("noise_multipliers", self.noise_multipliers, _check_in_plan)
        object.__setattr__(self, "noise_multipliers", found)
        m = len(found)
        allowed = f"every node of 0..{m - 1}, which noise_multipliers are given for"
        require(set(self.parents) == set(range(m)), "parents", self.parents, allowed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedNoise:
    """The zones of a plan, and the noise of every party: see `NoisePlan`.

    Raises:
      ArgumentError: If a field is out of range.
    """

    zone_sizes: tuple[int, ...]
    client_noise_multiplier: float = 0.0
    noising_clients: tuple[int, ...] | None = None
    zone_noise_multipliers: tuple[float, ...] | None = None
    server_noise_multiplier: float = 0.0
    upper_levels: tuple[Level, ...] = ()
    clipping: Clipping = Clipping()

    def __post_init__(self) -> None:
        sizes = check_zone_sizes(self.zone_sizes)
        require(bool(sizes), "zone_sizes", sizes, "a zone or more")
        put(self, "zone_sizes", sizes)
        ok = isinstance(self.clipping, Clipping)
        require(ok, "clipping", self.clipping, "a Clipping")
        for name in ("client_noise_multiplier", "server_noise_multiplier"):
            put(self, name, _check_in_plan(name, getattr(self, name)))
        for name, checked in (
            ("noising_clients", check_count),
            ("zone_noise_multipliers", _check_in_plan),
        ):
            given = getattr(self, name)
            none = (0,) * self.num_zones
            put_per_zone(self, name, none if given is None else given, checked)
        for i, (count, n) in enumerate(zip(self.noising_clients, sizes, strict=True)):
            require(count <= n, f"noising_clients[{i}]", count, f"0..{n}")
        self._check_levels()

    def _check_levels(self) -> None:
        below = self.num_zones
        is_several = isinstance(self.upper_levels, list | tuple)
        require(is_several, "upper_levels", self.upper_levels, "Levels")
        put(self, "upper_levels", tuple(self.upper_levels))
        for j, level in enumerate(self.upper_levels):
            ok = isinstance(level, Level)
            require(ok, f"upper_levels[{j}]", level, "a Level")
            require(
                len(level.parents) == below,
                f"upper_levels[{j}].parents",
                level.parents,
                f"{below} entries, one for each node beneath",
            )
            below = len(level.noise_multipliers)

    # Zones, and the nodes above them ------------------------------------------

    @property
    def num_zones(self) -> int:
        """Number of zones, s."""
        return len(self.zone_sizes)

    @property
    def num_clients(self) -> int:
        """Number of clients, n."""
        return sum(self.zone_sizes)

    @property
    def server_level(self) -> int:
        """The server's level: clients are at 0, zones' super-nodes at 1."""
        return len(self.upper_levels) + 2

    def nodes_at(self, level: int) -> list[int]:
        """For every zone the node of `level` that it is beneath, its own at level 1.

        Raises:
          ArgumentError: If there are no nodes at such a level.
        """
        self._check_level(level)
        if level == self.server_level:
            return [0] * self.num_zones
        nodes = list(range(self.num_zones))
        for upper in self.upper_levels[: level - 1]:
            nodes = [upper.parents[node] for node in nodes]
        return nodes

    def zones_beside(self, zone: int, level: int) -> list[int]:
        """Zones beneath the node of `level` that a zone is beneath, itself among them.

        Raises:
          ArgumentError: If there are no nodes at such a level.
        """
        nodes = self.nodes_at(level)
        return [j for j, node in enumerate(nodes) if node == nodes[zone]]

    def _check_level(self, level: int) -> None:
        server = self.server_level
        require(1 <= level <= server, "level", level, f"1..{server}, which have nodes")

    # Every party's noise --------------------------------------------------------

    @functools.cached_property
    def client_noise(self) -> PartyNoise:
        """What each noise carrier adds to its own update."""
        return self._noise(self.client_noise_multiplier)

    @functools.cached_property
    def node_noise(self) -> tuple[tuple[PartyNoise, ...], ...]:
        """What nodes add to a value of sensitivity S: zones' first, the server last."""
        upper = (level.noise_multipliers for level in self.upper_levels)
        server = (self.server_noise_multiplier,)
        levels = (self.zone_noise_multipliers, *upper, server)
        return tuple(tuple(map(self._noise, level)) for level in levels)

    @property
    def zone_noise(self) -> tuple[PartyNoise, ...]:
        """What each zone's super-node adds to a value of sensitivity S."""
        return self.node_noise[0]

    @property
    def server_noise(self) -> PartyNoise:
        """What the server adds to a value of sensitivity S."""
        return self.node_noise[-1][0]

    def _noise(self, z: float) -> PartyNoise:
        return PartyNoise(z, self.clipping.clip_norm)

    @property
    def noise_by_field(self) -> dict[str, PartyNoise]:
        """Clients' noise first, then that of every zone, then the server's."""
        zones = enumerate(self.zone_noise)
        return {
            "client_noise_multiplier": self.client_noise,
            **{f"zone_noise_multipliers[{i}]": noise for i, noise in zones},
            "server_noise_multiplier": self.server_noise,
        }

    @property
    def noise_carriers(self) -> tuple[int, ...]:
        """How many of each zone's clients have noise of their own to add."""
        return self.noising_clients if self.client_noise else (0,) * self.num_zones

    @property
    def clients_carry_noise(self) -> bool:
        """Whether clients noise their own updates."""
        return any(self.noise_carriers)

    def noised_above(self, zone: int, level: int) -> bool:
        """Whether a node that a zone is beneath adds noise, its own up to `level`."""
        levels = enumerate(self.node_noise[:level], 1)
        return any(nodes[self.nodes_at(own)[zone]] for own, nodes in levels)

    @property
    def super_nodes_add_noise(self) -> bool:
        """Whether zones' super-nodes add noise, be it one of them."""
        return any(self.zone_noise)

    @property
    def is_noisy_below_server(self) -> bool:
        """Whether anybody adds noise to what reaches the server."""
        return self.clients_carry_noise or any(map(any, self.node_noise[:-1]))

    @property
    def is_noisy(self) -> bool:
        """Whether anybody adds noise."""
        return self.is_noisy_below_server or bool(self.server_noise)

    @property
    def most_noise(self) -> PartyNoise:
        """The most that any party adds."""
        nodes = [noise for level in self.node_noise for noise in level]
        return max(self.client_noise, *nodes, key=lambda noise: noise.noise_multiplier)

    # The same plan with other noise -----------------------------------------------

    def with_client_noise(self, z: float) -> Self:
        """The same where each noise carrier's multiplier is `z`."""
        return dataclasses.replace(self, client_noise_multiplier=z)

    def with_zone_noise(self, z: float) -> Self:
        """The same where every super-node of a zone has the multiplier `z`."""
        return dataclasses.replace(self, zone_noise_multipliers=(z,) * self.num_zones)

    def with_node_noise(self, multipliers: Sequence[Sequence[float]]) -> Self:
        """The same with other multipliers of nodes, in the order of `node_noise`."""
        zones, *upper, (server,) = multipliers
        levels = zip(self.upper_levels, upper, strict=True)
        return dataclasses.replace(
            self,
            zone_noise_multipliers=zones,
            upper_levels=[Level(level.parents, own) for level, own in levels],
            server_noise_multiplier=server,
        )

    def with_noise_at(self, level: int, node: int, z: float) -> Self:
        """The same where one node's multiplier is `z`; super-nodes' level is 1.

        Raises:
          ArgumentError: If there are no nodes at such a level, or `z` is no multiplier.
        """
        self._check_level(level)
        noise = [[own.noise_multiplier for own in nodes] for nodes in self.node_noise]
        noise[level - 1][node] = z
        return self.with_node_noise(noise)

    def without_noise(self) -> Self:
        """The same zones and sums, where nobody adds noise."""
        none = [(0.0,) * len(level) for level in self.node_noise]
        return self.with_node_noise(none).with_client_noise(0.0)

    def without_server_noise(self) -> Self:
        """The plan of what reaches the server."""
        return dataclasses.replace(self, server_noise_multiplier=0.0)


def put(plan: PlannedNoise, name: str, value: Any) -> None:
    """Puts a checked value into a field of a plan that is being made."""
    object.__setattr__(plan, name, value)


def put_per_zone(
    plan: PlannedNoise, name: str, values: Any, checked: Callable[[str, Any], Any]
) -> tuple[Any, ...]:
    """Puts an entry for each zone, checked, into a field of a plan that is being made.

    Raises:
      ArgumentError: If there are not as many, or `checked` raises.
    """
    s, found = plan.num_zones, entries(name, values, checked)
    require(len(found) == s, name, values, f"{s} entries, one for each zone")
    put(plan, name, found)
    return found
