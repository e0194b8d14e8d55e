"""Where an attacker stands in a plan, and what theory says of what it sees there.

Levels are those of the account: 1 for zones' super-nodes, then any upper levels, then
the server. Below them is 0, another client, and above them `outside`, whoever gets the
released model. No TensorFlow.
"""

import dataclasses
import functools
import itertools
from typing import Literal

from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.parts import FullParticipation, PoissonSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import AccountedRound, Observer, ThreatModel
from tff_hdp.privacy.tradeoff import Tradeoff, tradeoff
from tff_hdp.privacy.views import View, view

Level = int | Literal["outside"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vantage:
    """An observer of a plan, and the client it is after.

    Attributes:
      plan: Who adds noise to what, and how clients come to take part.
      level: The observer's.
      elected: Whether the observer, of level 1, is a client of its own zone that was
        elected super-node, and so subtracts its own part.
      fellow_leaders: How many other clients of the zone, each elected in some other
        round, tell an elected observer what they saw and sent.
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
        if self.fellow_leaders:
            most = n - 2 if self.elected else 0
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
            allies = self.colluding_super_nodes
            return "whoever gets the model" + f" and {allies} super-nodes" * bool(
                allies
            )
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
    def own(self) -> tuple[int, int] | None:
        """The observer's own zone and place as a client; None if it is none.

        Another client is the last of the federation, an elected super-node the last of
        the victim's zone; the victim, if it is that one, changes places with the first.
        """
        if self.level == 0:
            zone = self.plan.num_zones - 1
        elif self.elected:
            zone = self.zone
        else:
            return None
        last = (zone, self.plan.zone_sizes[zone] - 1)
        return last if last != self.victim else (0 if self.level == 0 else zone, 0)

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
        nodes = plan.nodes_at(max(self.level - 1, 1))
        return [j for j in everywhere if nodes[j] == nodes[self.zone]]

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
    def clip_norm(self) -> float | None:
        """S, to which the victim's update is clipped; None where it is not."""
        return self.plan.clipping.clip_norm if self.plan.is_noisy else None

    def bound(self, rounds: int = 1) -> Tradeoff:
        """What no attack from here can beat after so many rounds."""
        return tradeoff(self.view.mechanism, rounds)

    def epsilon(self, rounds: int, delta: float) -> float | None:
        """Epsilon of so many rounds; None where nothing is guaranteed.

        By PLD, or where there is none, as with very little noise, by RDP.
        """
        if self.view.mechanism is None:
            return None
        rounds_of = frozenset({(self.view.mechanism, rounds)})
        epsilon = epsilon_by_pld(rounds_of, delta)[0]
        return epsilon_by_rdp(rounds_of, delta)[0] if epsilon is None else epsilon


@functools.lru_cache(maxsize=256)
def _view(vantage: Vantage) -> View:
    plan = vantage.plan
    # An elected super-node's own noise is counted by `elected_super_nodes`.
    told = vantage.known[int(vantage.elected) :]
    carries = plan.client_noise_multiplier > 0
    colludes = sum(carries and i < plan.noising_clients[zone] for zone, i in told)
    threat = ThreatModel(
        colluding_clients=colludes,
        elected_super_nodes=vantage.elected,
        colluding_super_nodes=vantage.colluding_super_nodes,
    )
    level = vantage.level
    if vantage.observer == "released_model":
        level = vantage.plan.server_level + 1
    noising = vantage.index < plan.noising_clients[vantage.zone]
    run = AccountedRound(plan, threat)
    return view(run, vantage.observer, level, vantage.zone, noising)


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
