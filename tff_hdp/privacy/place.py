"""The node right beneath an observer, whose noise is what the observer meets last."""

import dataclasses

from tff_hdp.privacy.noise import noise_in_output
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import RECEIVERS, AccountedRound, Observer, ThreatModel


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
        level = 0 if self.is_summed else self.level - 2
        return plan.node_noise_multipliers[level][node]

    def with_noise(self, plan: NoisePlan, node: int, z: float) -> NoisePlan:
        """`plan` with another multiplier at the node."""
        if self.observer in RECEIVERS:
            return dataclasses.replace(plan, server_noise_multiplier=z)
        if self.level == 2 or self.is_summed:
            noise = list(plan.zone_noise_multipliers)
            noise[node] = z
            return dataclasses.replace(plan, zone_noise_multipliers=tuple(noise))
        levels = list(plan.upper_levels)
        upper = levels[self.level - 3]
        noise = list(upper.noise_multipliers)
        noise[node] = z
        levels[self.level - 3] = dataclasses.replace(
            upper, noise_multipliers=tuple(noise)
        )
        return dataclasses.replace(plan, upper_levels=tuple(levels))
