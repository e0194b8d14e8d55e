"""Where an attacker stands in a plan, and what theory says of what it sees there.

Levels are those of the account: 1 for zones' super-nodes, then any upper levels, then
the server. Below them is 0, another client, and above them `outside`, whoever gets the
released model. No TensorFlow.
"""

import collections
import dataclasses
import functools
import itertools
import math
from typing import Any, Literal

from tff_hdp.errors import ArgumentError, check_count, require
from tff_hdp.privacy.accountant import like_zones
from tff_hdp.privacy.composition import Rounds, epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.mechanisms import Mechanism
from tff_hdp.privacy.parts import FullParticipation, PoissonSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import AccountedRound, ClientKind, Observer, ThreatModel
from tff_hdp.privacy.tradeoff import Tradeoff, composed_tradeoff
from tff_hdp.privacy.views import View, client_kind, common_neighbours, view

Level = int | Literal["outside"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vantage:
    """An observer of a plan, and the client it is after.

    Attributes:
      plan: Who adds noise to what, and how clients come to take part.
      level: The observer's.
      elected: Whether the observer, of level 1, is a client of its own zone that was
        elected super-node, and so subtracts its own part.
      same_zone: Whether the observer, of level 0, is a client of the victim's zone, as
        an elected super-node is in rounds that others lead.
      fellow_leaders: How many other clients of the zone, each elected in some other
        round, tell an observer who is one of them what they saw and sent.
      colluding_super_nodes: How many other zones' super-nodes, in a tree without upper
        levels, tell their zones' outputs to whoever gets the model.
      zone: The victim's zone.
      index: The victim's place in it.

    Raises:
      ArgumentError: If the plan has no such observer or victim, nothing of the victim
        comes to that observer, or the plan draws cohorts of a fixed size or divides by
        what clients weigh.
    """

    plan: NoisePlan
    level: Level
    elected: bool = False
    same_zone: bool = False
    fellow_leaders: int = 0
    colluding_super_nodes: int = 0
    zone: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        plan, levels = self.plan, range(self.plan.num_zones)
        known = isinstance(plan.sampling, FullParticipation | PoissonSampling)
        require(known, "plan.sampling", plan.sampling, "Poisson, or full participation")
        fixed = plan.estimator != "bounded"
        require(fixed, "plan.estimator", plan.estimator, "fixed, or realised")
        require(self.zone in levels, "zone", self.zone, f"0..{plan.num_zones - 1}")
        n = plan.zone_sizes[self.zone]
        require(0 <= self.index < n, "index", self.index, f"0..{n - 1}")
        known = (*range(plan.server_level + 1), "outside")
        require(self.level in known, "level", self.level, ", ".join(map(str, known)))
        if self.elected:
            allowed = "False but at level 1, in a zone of 2 clients or more"
            require(self.level == 1 and n > 1, "elected", True, allowed)
        if self.same_zone:
            allowed = "False but at level 0, in a zone of 2 clients or more"
            require(self.level == 0 and n > 1, "same_zone", True, allowed)
        if self.fellow_leaders:
            most = n - 2 if self.elected or self.same_zone else 0
            ok = 0 < self.fellow_leaders <= most
            require(ok, "fellow_leaders", self.fellow_leaders, f"0..{most}")
        if self.colluding_super_nodes:
            most = plan.num_zones - 1
            some = 0 < self.colluding_super_nodes <= most
            ok = some and self.level == "outside" and not plan.upper_levels
            allowed = f"0..{most} with level outside, and 0 elsewhere"
            given = self.colluding_super_nodes
            require(ok, "colluding_super_nodes", given, allowed)
        if self.level == 0:
            many = plan.num_clients > 1
            require(many, "level", 0, "1 or more in a federation of one client")
        weight = plan.mixing_weights[self.zone]
        allowed = f"more than 0, as level {self.level} sees nothing of the zone else"
        blind = weight == 0 and self.view.sees_nothing
        require(not blind, f"plan.mixing_weights[{self.zone}]", weight, allowed)

    @property
    def observer(self) -> Observer:
        """As the account calls the observer."""
        if self.level in (0, "outside"):
            return "released_model"
        return "aggregator" if self.level == self.plan.server_level else "super_node"

    @property
    def name(self) -> str:
        """The observer in words."""
        if self.level == 0:
            return "another client"
        if self.level == "outside":
            name, allies = "whoever gets the model", self.colluding_super_nodes
            return f"{name} and {allies} super-nodes" if allies else name
        if self.level == self.plan.server_level:
            secure = self.plan.secure_server
            return "server with secure sums" if secure else "server that sees zones"
        words = "elected super-node" if self.elected else "super-node"
        if self.level > 1:
            return f"super-node of level {self.level}"
        return words + (" with secure sums" if self.plan.secure_aggregation else "")

    @property
    def victim(self) -> tuple[int, int]:
        """The victim's zone, and its place there."""
        return self.zone, self.index

    @property
    def noising(self) -> bool:
        """Whether the victim is one of its zone's noising clients."""
        return self.index < self.plan.noising_clients[self.zone]

    @property
    def client_kind(self) -> ClientKind:
        """Whom the victim relies on, as the account calls it."""
        return client_kind(self.plan, self.zone, self.noising)

    def place(self, client: tuple[int, int]) -> int:
        """Where a client, by its zone and its place there, comes among all clients."""
        zone, index = client
        return sum(self.plan.zone_sizes[:zone]) + index

    @property
    def own(self) -> tuple[int, int] | None:
        """The observer's own zone and place as a client; None if it is not one.

        Another client is the last of the federation, one of the victim's zone, elected
        or not, the last of that; the victim, if it is that one, changes places with the
        first.
        """
        if self.elected or self.same_zone:
            zone = first = self.zone
        elif self.level == 0:
            zone, first = self.plan.num_zones - 1, 0
        else:
            return None
        last = (zone, self.plan.zone_sizes[zone] - 1)
        return last if last != self.victim else (first, 0)

    @property
    def away(self) -> "Vantage":
        """Where an elected super-node stands in rounds that others lead.

        Raises:
          ArgumentError: If the observer is not one.
        """
        require(self.elected, "elected", False, "True for one who may lead")
        return dataclasses.replace(self, level=0, elected=False, same_zone=True)

    @property
    def known(self) -> list[tuple[int, int]]:
        """Zones and places of all clients whose parts are subtracted."""
        if self.own is None:
            return []
        zone, place = self.own
        others = (
            (zone, i)
            for i in range(self.plan.zone_sizes[zone])
            if i != place and (zone, i) != self.victim
        )
        return [self.own, *itertools.islice(others, self.fellow_leaders)]

    @property
    def told_zones(self) -> list[int]:
        """Zones whose outputs the colluding super-nodes tell, the last but for own."""
        others = [j for j in range(self.plan.num_zones) if j != self.zone]
        return others[len(others) - self.colluding_super_nodes :]

    @property
    def seen_zones(self) -> list[int]:
        """Zones whose clients are in the sum that the observer holds."""
        plan, everywhere = self.plan, list(range(self.plan.num_zones))
        if self.observer == "released_model":
            return [j for j in everywhere if j not in self.told_zones]
        if self.observer == "aggregator" and plan.secure_server:
            return everywhere
        return plan.zones_beside(self.zone, max(self.level - 1, 1))

    @property
    def sees_clients(self) -> bool:
        """Whether the observer holds every client's contribution apart."""
        return self.level == 1 and not self.plan.secure_aggregation

    @property
    def unknown_clients(self) -> int:
        """m, clients in the observer's sum that it cannot subtract."""
        if self.sees_clients:
            return 1
        total = sum(self.plan.zone_sizes[j] for j in self.seen_zones)
        return total - len(self.known)

    @property
    def view(self) -> View:
        """What a round is to this observer by the account."""
        return _view(self)

    @property
    def noise_multiplier(self) -> float:
        """nu, noise the observer cannot subtract over the clip norm; 0 for none."""
        return self.view.effective_noise or 0.0

    @property
    def stddev(self) -> float:
        """Of that noise, in every number of what the observer holds."""
        return self.noise_multiplier * self.plan.clipping.clip_norm

    @property
    def clip_norm(self) -> float | None:
        """S, to which the victim's update is clipped; None where it is not."""
        return self.plan.clipping.clip_norm if self.plan.is_noisy else None

    def bound(self, rounds: int = 1) -> Tradeoff:
        """What no attack from here can beat after so many rounds."""
        return Held.of(self, rounds).bound


@dataclasses.dataclass(frozen=True)
class Held:
    """The rounds of a run that one party holds, from places that may change.

    Attributes:
      parts: Vantages of one victim, each with how many rounds were seen from there.
    """

    parts: tuple[tuple[Vantage, int], ...]

    @classmethod
    def of(cls, vantage: Vantage, rounds: int) -> "Held":
        """So many rounds from one place."""
        return cls(((vantage, check_count("rounds", rounds)),))

    @classmethod
    def by_leading(cls, vantage: Vantage, led: int, rounds: int) -> "Held":
        """A run of which an elected super-node, with its fellows, led some rounds.

        Of these it holds the zone's sum. The model that comes of it says no more of the
        victim, whoever adds noise: what is in it besides that sum, other zones' records
        and the noise of others, is there without the victim too. Of rounds that others
        lead it gets the model, as every client does.

        Args:
          vantage: Of an elected super-node.
          led: How many rounds.
          rounds: T, of the run.
        """
        require(0 <= led <= rounds, "led", led, f"0..{rounds}, the rounds")
        parts = (vantage, led), (vantage.away, rounds - led)
        return cls(tuple(part for part in parts if part[1]))

    @property
    def rounds(self) -> int:
        """T."""
        return sum(count for _, count in self.parts)

    @property
    def noise_multiplier(self) -> float:
        """Noise of one round that says as much to whoever knows all others; 0: none."""
        nus = [(vantage.noise_multiplier, count) for vantage, count in self.parts]
        if not all(nu for nu, _ in nus):
            return 0.0
        return sum(count / nu**2 for nu, count in nus) ** -0.5

    @property
    def neighbours(self) -> str:
        """The relation under which the account of all rounds holds."""
        views = [(vantage.view, count) for vantage, count in self.parts]
        return common_neighbours(views, [vantage.plan for vantage, _ in self.parts])

    @property
    def bound(self) -> Tradeoff:
        """What no attack can beat."""
        rounds = self._mechanisms
        return Tradeoff(math.inf) if rounds is None else composed_tradeoff(rounds)

    def epsilon(self, delta: float) -> float | None:
        """Epsilon; None where nothing is guaranteed.

        By PLD, or where there is none, as with very little noise, by RDP.
        """
        if (rounds := self._mechanisms) is None:
            return None
        epsilon = epsilon_by_pld(rounds, delta)[0]
        return epsilon_by_rdp(rounds, delta)[0] if epsilon is None else epsilon

    @property
    def _mechanisms(self) -> Rounds | None:
        """How often each was run, as the account composes; None: no guarantee."""
        relation = self.neighbours
        counts: collections.Counter[Mechanism | None] = collections.Counter()
        for vantage, count in self.parts:
            if count:
                counts[_view(vantage, relation == "zero_out").mechanism] += count
        if None in counts or relation == "mixed":
            return None
        return frozenset(counts.items())


@functools.lru_cache(maxsize=256)
def _view(vantage: Vantage, zeroing: bool = False) -> View:
    """By the account; `zeroing` where rounds compose under zero-out neighbours."""
    plan = vantage.plan
    # An elected super-node's own noise is counted by `elected_super_nodes`.
    told = vantage.known[int(vantage.elected) :]
    colludes = sum(i < plan.noise_carriers[zone] for zone, i in told)
    threat = ThreatModel(
        colluding_clients=colludes,
        elected_super_nodes=vantage.elected,
        colluding_super_nodes=vantage.colluding_super_nodes,
    )
    level = vantage.level
    if vantage.observer == "released_model":
        level = vantage.plan.server_level + 1
    run = AccountedRound(plan, threat)
    run = run.zeroing if zeroing else run
    return view(run, vantage.observer, level, vantage.zone, vantage.noising)


def most_exposed(plan: NoisePlan, level: Level, **standing: Any) -> Vantage:
    """The vantage of an observer on the client whom least noise hides from it.

    None at all is least; of clients with as little it is the first.

    Args:
      plan: Who adds noise to what.
      level: The observer's.
      **standing: What else `Vantage` has of the observer.

    Raises:
      ArgumentError: If the plan has no such observer of any client.
    """
    alike, found, refused = like_zones(plan), [], []
    for zone in sorted(alike.index(kind) for kind in set(alike)):
        # The first of a zone that noises its update, and the first that does not.
        for index in sorted({0, plan.noising_clients[zone]} - {plan.zone_sizes[zone]}):
            try:
                seen = Vantage(
                    plan=plan, level=level, zone=zone, index=index, **standing
                )
            except ArgumentError as error:
                refused.append(error)
            else:
                found.append(seen)
    if not found:
        raise refused[0]
    return min(found, key=lambda each: each.noise_multiplier)


def parse_level(text: str | int) -> Level:
    """A level as a flag gives it.

    Raises:
      ArgumentError: If it is neither a whole number nor `outside`.
    """
    if text == "outside":
        return "outside"
    # No more digits than Python reads.
    if str(text).isascii() and str(text).isdigit() and len(str(text)) < 10:
        return int(text)
    raise ArgumentError("level", text, "0, 1, 2, or outside")
