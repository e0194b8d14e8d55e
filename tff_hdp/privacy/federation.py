"""Whom in a federation there is something to promise, and where noise goes for it."""

import dataclasses

from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.accountant import History
from tff_hdp.privacy.noise import noise_in_output
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.promises import Promise
from tff_hdp.privacy.threat import AccountedRound, Observer, ThreatModel
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

    def with_client_noise(self, multiplier: float) -> NoisePlan:
        """The federation's plan where clients add noise, and nobody else."""
        return dataclasses.replace(self.base, client_noise_multiplier=multiplier)

    def history(self, plan: NoisePlan) -> History:
        """All rounds, of one plan."""
        return [(AccountedRound(plan, self.threat), self.rounds)]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where noise goes that is for one observer.

    Attributes:
      base: The federation's plan; its noise does not matter.
      threat: What is assumed of the parties.
      observer: As in `AccountRow`.
      level: At which it stands, 2 or more: above a zone's super-node.
    """

    base: NoisePlan
    threat: ThreatModel
    observer: Observer
    level: int

    @property
    def is_summed(self) -> bool:
        """Whether the observer sees a sum over zones and nothing else."""
        return self.observer == "aggregator" and self.base.secure_server

    def seen(self, plan: NoisePlan, zone: int) -> float:
        """Variance of nodes' noise that the observer sees and does not know.

        In units of what a client of the zone can move the output by, squared.
        """
        plan = dataclasses.replace(plan, client_noise_multiplier=0.0)
        level = self.level - 1
        if self.is_summed:
            plan, level = plan.without_server_noise(), self.level
        run = AccountedRound(plan, self.threat)
        noise = noise_in_output(run, level, zone, False, self.observer, [])
        return 0.0 if noise is None else noise.spectrum.variances[0]

    def node(self, zone: int) -> tuple[int, float]:
        """The node between a zone and the observer.

        Returns:
          Its number, and what a client of the zone can move, as a share of the most
          that one beneath the node can.
        """
        if self.is_summed:
            return zone, 1.0
        nodes = self.base.nodes_at(self.level - 1)
        unit = self.base.released_units
        most = max(unit[j] for j, own in enumerate(nodes) if own == nodes[zone])
        return nodes[zone], unit[zone] / most if most > 0 else 1.0

    def noise_at(self, plan: NoisePlan, node: int) -> float:
        """The node's multiplier in a plan."""
        return plan.node_noise_multipliers[self._depth][node]

    def with_noise(self, plan: NoisePlan, node: int, z: float) -> NoisePlan:
        """`plan` with another multiplier at the node."""
        noise = [list(level) for level in plan.node_noise_multipliers]
        noise[self._depth][node] = z
        return plan.with_node_noise(noise)

    @property
    def _depth(self) -> int:
        """The node's level in `NoisePlan.node_noise_multipliers`."""
        return 0 if self.is_summed else self.level - 2


def _noisy(base: NoisePlan) -> NoisePlan:
    """The federation with noise wherever there may be some."""
    zones = {"zone_noise_multipliers": (1.0,) * base.num_zones}
    return dataclasses.replace(base, client_noise_multiplier=1.0, **zones)
