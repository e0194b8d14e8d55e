"""A promise, and the least noise that keeps it.

A promise is an epsilon against an observer. Noise that an observer meets protects from
every observer above it too, so promises are kept from the clients up: client noise as
that to the own super-node needs, zone noise to fill the gap to the next observer's, and
so on to the server's. Whatever an observer needs, the noise added right beneath it is
the least that gives it: what is added earlier counts no more there, and further up all
of it stays.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tff_hdp.errors import ArgumentError, check_count, check_positive, require
from tff_hdp.privacy.accountant import AccountRow, client_row, like_zones
from tff_hdp.privacy.calibration import (
    LARGEST_MULTIPLIER,
    SMALLEST_MULTIPLIER,
    Sound,
    epsilon_of,
    least_multiplier,
)
from tff_hdp.privacy.noise import noise_in_output
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import AccountedRound, ThreatModel
from tff_hdp.privacy.views import RECEIVERS, observers

PROMISED = ("super_node", "aggregator", *RECEIVERS)


@dataclasses.dataclass(frozen=True)
class Promise:
    """An epsilon that clients are promised against an observer.

    That to `super_node` is made to clients that trust nobody, that to `aggregator` and
    to upper super-nodes to those that do not trust the server, others to all.

    Attributes:
      observer: As in `AccountRow`.
      epsilon: At most this, > 0.
      level: Of a `super_node`: 1 for the client's own, 2.. for those above.

    Raises:
      ArgumentError: If a field is out of range.
    """

    observer: str
    epsilon: float
    level: int = 1

    def __post_init__(self) -> None:
        known = self.observer in PROMISED
        require(known, "promises", self.observer, ", ".join(PROMISED))
        check_positive("promises", self.epsilon)
        check_count("promises", self.level, 1)

    def __str__(self) -> str:
        level = f":{self.level}" if self.level > 1 else ""
        return f"{self.observer}{level}<={self.epsilon:g}"


def from_clients_up(promise: Promise) -> tuple[int, int]:
    """Sorts promises in the order in which they are kept."""
    return PROMISED.index(promise.observer), promise.level


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """How a promise is kept.

    Attributes:
      promise: The promise.
      epsilon: What it came to, at most that.
      noise: Standard deviation that it alone added to the released model, in units of
        the clip norm; 0 where others' noise keeps it, and it does not bind.
      saved: Share of the released model's noise that 10 % more epsilon would save;
        None if not asked for.
    """

    promise: Promise
    epsilon: float
    noise: float
    saved: float | None = None


class Keeper:
    """Keeps promises in one federation, with the least noise.

    Args:
      federation: A plan without noise.
      trusting: How many clients of each zone trust the server; None means none.
      rounds: T.
      delta: Of every promise.
      threat: What is assumed of the parties.
      method: The account that must keep the promises.

    Raises:
      ArgumentError: If more clients of a zone trust than there are.
    """

    def __init__(
        self,
        federation: NoisePlan,
        trusting: Sequence[int] | None,
        rounds: int,
        delta: float,
        threat: ThreatModel,
        method: Sound,
    ) -> None:
        sizes, noising = federation.zone_sizes, federation.noising_clients
        trusting = (0,) * len(sizes) if trusting is None else tuple(trusting)
        ok = len(trusting) == len(sizes)
        require(ok, "trusting", trusting, f"{len(sizes)} entries, one for each zone")
        for i, (n, a, c) in enumerate(zip(sizes, noising, trusting, strict=True)):
            name, allowed = f"trusting[{i}]", f"0..{n - a}, the clients that trust"
            require(0 <= c <= n - a, name, c, allowed)
        self._base, self._threat, self._method = federation, threat, method
        self._rounds, self._delta = rounds, delta
        self._trusting = trusting
        self._like = like_zones(federation)

    def least(self, promises: Sequence[Promise]) -> tuple[NoisePlan, tuple[Kept, ...]]:
        """The plan with the least noise in the released model, and how it keeps each.

        Args:
          promises: In the order of `from_clients_up`.

        Raises:
          ArgumentError: If no noise keeps one.
        """
        plan, noise, added = self._base, 0.0, []
        for promise in promises:
            plan = self._keep(plan, promise)
            total = noise_in_model(plan)
            added.append(math.sqrt(max(total**2 - noise**2, 0.0)))
            noise = total
        kept = []
        for promise, own in zip(promises, added, strict=True):
            epsilon = self._epsilon(plan, promise, self._zones(promise))
            kept.append(Kept(promise=promise, epsilon=epsilon, noise=own))
        return plan, tuple(kept)

    def _keep(self, plan: NoisePlan, promise: Promise) -> NoisePlan:
        """`plan` with what noise it lacks right beneath the promise's observer."""
        level, zones = self._level(promise), self._zones(promise)
        summed = promise.observer == "aggregator" and self._base.secure_server
        if level == 1 or promise.observer in RECEIVERS or summed:
            nodes = {0: zones}
        else:
            nodes = self._nodes_beneath(level, zones)
        done: dict[Any, float] = {}
        for node, zones in nodes.items():
            kind = tuple(sorted(self._like[j] for j in zones))
            if kind not in done:
                done[kind] = self._least_at(plan, promise, level, node, zones)
            plan = self._with(plan, promise, level, node, zones, done[kind])
        return plan

    def _least_at(
        self,
        plan: NoisePlan,
        promise: Promise,
        level: int,
        node: int,
        zones: Sequence[int],
    ) -> float:
        """The least multiplier with which a node protects the clients of `zones`."""
        if not zones or self._epsilon(plan, promise, zones) <= promise.epsilon:
            return 0.0

        def epsilon(z: float, by: Sound) -> float:
            candidate = self._with(plan, promise, level, node, zones, z)
            return self._epsilon(candidate, promise, zones, by)

        z = least_multiplier(epsilon, promise.epsilon, self._method)
        z = max(z, SMALLEST_MULTIPLIER)
        if z == math.inf:
            most = self._with(plan, promise, level, node, zones, LARGEST_MULTIPLIER)
            rows = self._rows(most, promise, zones, "rdp")
            worst = max(rows, key=lambda row: epsilon_of(row, "rdp"))
            reason = worst.assumptions or "too strict"
            raise ArgumentError(
                "promises",
                promise,
                f"what noise can keep: {worst.client_kind} clients have, even at a "
                f"multiplier of {LARGEST_MULTIPLIER:g}, {reason}",
            )
        return z

    def _with(
        self,
        plan: NoisePlan,
        promise: Promise,
        level: int,
        node: int,
        zones: Sequence[int],
        z: float,
    ) -> NoisePlan:
        """`plan` with noise right beneath an observer."""
        if level == 1:
            return dataclasses.replace(plan, client_noise_multiplier=z)
        if promise.observer in RECEIVERS:
            z = max(z, plan.server_noise_multiplier)
            return dataclasses.replace(plan, server_noise_multiplier=z)
        if level == 2:
            noise = list(plan.zone_noise_multipliers)
            for j in zones:
                noise[j] = z
            return dataclasses.replace(plan, zone_noise_multipliers=tuple(noise))
        levels = list(plan.upper_levels)
        upper = levels[level - 3]
        noise = list(upper.noise_multipliers)
        noise[node] = z
        levels[level - 3] = dataclasses.replace(upper, noise_multipliers=tuple(noise))
        return dataclasses.replace(plan, upper_levels=tuple(levels))

    def _level(self, promise: Promise) -> int:
        """The level at which the promise's observer stands."""
        for observer, level in observers(self._probe()):
            own = observer != "super_node" or level == promise.level
            if observer == promise.observer and own:
                return level
        allowed = "observers there are in this federation"
        raise ArgumentError("promises", promise, allowed)

    def _probe(self) -> NoisePlan:
        """The federation with noise wherever there may be some."""
        base = self._base
        zones = (1.0,) * base.num_zones
        return dataclasses.replace(
            base, client_noise_multiplier=1.0, zone_noise_multipliers=zones
        )

    def _zones(self, promise: Promise) -> list[int]:
        """Zones with clients to whom the promise is made."""
        zones = range(self._base.num_zones)
        found = [j for j in zones if any(True for _ in self._indices(promise, j))]
        if not found:
            allowed = "one made to somebody: nobody here trusts so few"
            raise ArgumentError("promises", promise, allowed)
        return found

    def _indices(self, promise: Promise, zone: int) -> Iterator[int]:
        """One client of each kind of a zone to whom the promise is made."""
        n, noising = self._base.zone_sizes[zone], self._base.noising_clients[zone]
        own = promise.observer == "super_node" and promise.level == 1
        if noising:
            yield 0
        least = 0 if promise.observer in RECEIVERS else self._trusting[zone]
        if not own and n - noising > least:
            yield noising

    def _nodes_beneath(self, level: int, zones: Sequence[int]) -> dict[int, list[int]]:
        """Nodes of the level beneath an observer's, with their zones among these."""
        nodes: dict[int, list[int]] = {}
        for j in zones:
            node = j
            for upper in self._base.upper_levels[: level - 2]:
                node = upper.parents[node]
            nodes.setdefault(node, []).append(j)
        return nodes

    def _rows(
        self, plan: NoisePlan, promise: Promise, zones: Sequence[int], by: Sound
    ) -> list[AccountRow]:
        level = self._level(promise)
        history = [(AccountedRound(plan, self._threat), self._rounds)]
        noise = plan.zone_noise_multipliers
        alike = {(self._like[j], noise[j]): j for j in zones}
        return [
            client_row(history, promise.observer, level, j, i, self._delta, (by,))
            for j in alike.values()
            for i in self._indices(promise, j)
        ]

    def _epsilon(
        self,
        plan: NoisePlan,
        promise: Promise,
        zones: Sequence[int],
        by: Sound | None = None,
    ) -> float:
        by = by or self._method
        return max(epsilon_of(r, by) for r in self._rows(plan, promise, zones, by))


def noise_in_model(plan: NoisePlan) -> float:
    """Standard deviation in the released model, in units of the clip norm."""
    unit = plan.released_units
    zone = max(range(plan.num_zones), key=lambda j: unit[j])
    run = AccountedRound(plan, ThreatModel())
    level = len(plan.upper_levels) + 2
    noise = noise_in_output(run, level, zone, False, "released_model", [])
    if noise is None:
        return 0.0
    return math.sqrt(noise.nominal) * unit[zone]
