"""A federation, and to whom in it there is something to promise."""

import dataclasses
from collections.abc import Iterator, Sequence

from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.accountant import (
    AccountRow,
    History,
    Sound,
    client_row,
    like_zones,
)
from tff_hdp.privacy.demands import Demand
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.promises import Promise
from tff_hdp.privacy.threat import RECEIVERS, AccountedRound, ThreatModel
from tff_hdp.privacy.views import observers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federation:
    """Whom there is something to promise, and what is assumed of the others.

    Attributes:
      base: The federation's plan, without noise.
      trusting: How many clients of each zone trust the server.
      rounds: T.
      delta: Of every promise.
      threat: What is assumed of the parties.

    Raises:
      ArgumentError: If more clients of a zone trust than there are.
    """

    base: NoisePlan
    trusting: tuple[int, ...]
    rounds: int
    delta: float
    threat: ThreatModel

    def __post_init__(self) -> None:
        sizes, noising = self.base.zone_sizes, self.base.noising_clients
        trusting, s = self.trusting, self.base.num_zones
        ok = len(trusting) == s
        require(ok, "trusting", trusting, f"{s} entries, one for each zone")
        for i, (n, a, c) in enumerate(zip(sizes, noising, trusting, strict=True)):
            name, allowed = f"trusting[{i}]", f"0..{n - a}, the clients that trust"
            require(0 <= c <= n - a, name, c, allowed)

    @property
    def may_carry(self) -> bool:
        """Whether clients' own noise goes with what is assumed of the parties."""
        try:
            self.threat.check_fits(_noisy(self.base))
        except ArgumentError:
            return False
        return True

    def level(self, promise: Promise) -> int:
        """The level at which the promise's observer stands.

        Raises:
          ArgumentError: If there is no such observer.
        """
        known = self.threat.peers_known
        there = list(observers(_noisy(self.base), peers_known=known))
        for observer, level in there:
            own = observer != "super_node" or level == promise.level
            if observer == promise.observer and own:
                return level
        names = [
            f"{observer}:{level}"
            if observer == "super_node" and level > 1
            else observer
            for observer, level in there
        ]
        allowed = f"one to an observer of this federation: {', '.join(names)}"
        raise ArgumentError("promises", promise, allowed)

    def demands(self, promise: Promise) -> list[Demand]:
        """One for every kind of client to whom the promise is made.

        Raises:
          ArgumentError: If it is made to nobody, or there is no such observer.
        """
        level, found = self.level(promise), []
        # Zones are alike where as many trust, too: noise stands in for that here.
        told_apart = dataclasses.replace(
            self.base, zone_noise_multipliers=self.trusting
        )
        groups: dict[int, list[int]] = {}
        for zone, like in enumerate(like_zones(told_apart)):
            groups.setdefault(like, []).append(zone)
        for zones in groups.values():
            for index in self._indices(promise, zones[0]):
                found.append(Demand(self, promise, level, tuple(zones), index))
        if not found:
            nobody = "all clients here trust the server"
            if promise.is_own:
                nobody = "no client noises its own update here (--trust_nobody, "
                nobody += "noising_clients)"
            allowed = f"one made to somebody: {nobody}"
            raise ArgumentError("promises", promise, allowed)
        return found

    def rows(
        self, demand: Demand, history: History, by: Sound, zones: Sequence[int]
    ) -> list[AccountRow]:
        """What rounds are worth to the demand's clients of some zones."""
        observer, level, index = demand.promise.observer, demand.level, demand.index
        return [
            client_row(history, observer, level, j, index, self.delta, (by,))
            for j in zones
        ]

    def planned(self, plan: NoisePlan) -> History:
        """All rounds, of one plan."""
        return [(AccountedRound(plan, self.threat), self.rounds)]

    def reached(self, demands: Sequence[Demand], history: History, by: Sound) -> float:
        """The largest epsilon of all to whom a promise is made."""
        like = like_zones(history[-1][0].plan)
        found = [0.0]
        for demand in demands:
            zones = list({like[j]: j for j in demand.zones}.values())
            found += [r.epsilon(by) for r in self.rows(demand, history, by, zones)]
        return max(found)

    def _indices(self, promise: Promise, zone: int) -> Iterator[int]:
        """One client of each kind of a zone to whom the promise is made."""
        n, noising = self.base.zone_sizes[zone], self.base.noising_clients[zone]
        least = 0 if promise.observer in RECEIVERS else self.trusting[zone]
        if noising:
            yield 0
        if not promise.is_own and n - noising > least:
            yield noising


def _noisy(base: NoisePlan) -> NoisePlan:
    """The federation with noise wherever there may be some."""
    zones = {"zone_noise_multipliers": (1.0,) * base.num_zones}
    return dataclasses.replace(base, client_noise_multiplier=1.0, **zones)
