"""What an observer really holds after a round, cut out of the code that aggregates.

A round is run by the `ZonedMean` of the plan: clients' contributions, zones' sums and
every node's output are those of a real run, noise included. Nothing is noised here.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators import mixing
from tff_hdp.aggregators.secure_mean import build_mean
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import require
from tff_hdp.privacy.plan import NoisePlan


@dataclasses.dataclass(frozen=True)
class Round:
    """All that exists anywhere in one round.

    Attributes:
      contributions: By zone, every client's record as it leaves it, [d] float64.
      zone_sums: By zone, what its super-node would sum, [d].
      outputs: By level from the zones up, each node's output, [d]; the server's last.
      units: By zone, what a record of its clients counts in outputs.
    """

    contributions: list[list[np.ndarray]]
    zone_sums: list[np.ndarray]
    outputs: list[list[np.ndarray]]
    units: list[float]

    def seen_by(self, vantage: Vantage) -> np.ndarray:
        """What an observer holds of its victim, with its own part subtracted.

        Args:
          vantage: Of the plan that this was a round of.

        Returns:
          [d], in which the victim's record counts once.

        Raises:
          ArgumentError: If it counts nothing: how a super-node's output looks before
            the server leaves it out is in no round.
        """
        zone, plan = vantage.zone, vantage.plan
        ok = self.units[zone] > 0 or vantage.level == 1
        allowed = "more than 0 for an observer of outputs"
        weight = plan.mixing_weights[zone]
        require(ok, f"plan.mixing_weights[{zone}]", weight, allowed)
        if vantage.sees_clients:
            return self.contributions[zone][vantage.index]
        if vantage.level == 1:
            own = sum(self.contributions[i][place] for i, place in vantage.known)
            return self.zone_sums[zone] - own
        own = sum(
            self.contributions[i][place] * (self.units[i] / self.units[zone])
            for i, place in vantage.known
        )
        if vantage.observer == "released_model":
            told = sum(self.outputs[0][j] for j in vantage.told_zones)
            return (self.outputs[-1][0] - told) / self.units[zone] - own
        nodes = self.outputs[vantage.level - 2]
        if vantage.observer == "aggregator" and plan.secure_server:
            return np.sum(nodes, 0) / self.units[zone]
        node = plan.nodes_at(vantage.level - 1)[zone]
        return nodes[node] / self.units[zone]


class Federation:
    """Runs rounds of a plan on given updates.

    Args:
      plan: Who adds which noise; everybody takes part in every round.
      shapes: Of an update's tensors.
    """

    def __init__(self, plan: NoisePlan, shapes: Sequence[Sequence[int]]) -> None:
        self._plan, self._shapes = plan, [tuple(shape) for shape in shapes]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]
        specs = [tf.TensorSpec(shape, tf.float32) for shape in self._shapes]
        self._mean = build_mean(plan, specs)
        self._state = self._mean.initial_state()

    def round(self, updates: Sequence[Sequence[np.ndarray]]) -> Round:
        """Aggregates one round.

        Args:
          updates: By zone, each client's update, [d].

        Raises:
          ArgumentError: If these are not as many clients as the plan's zones have.
        """
        plan, mean = self._plan, self._mean
        sizes = tuple(map(len, updates))
        require(sizes == plan.zone_sizes, "updates", sizes, f"{plan.zone_sizes}")
        sent = mean.client_state(self._state)
        contributions = [
            [
                mean.contribution(sent, self._tensors(update), self._profile(zone, i))
                for i, update in enumerate(clients)
            ]
            for zone, clients in enumerate(updates)
        ]
        collect = self._fixed_point if mean.in_fixed_point else self._real
        records, sums, total, weight = collect(contributions)
        outputs, self._state, _ = mean.outputs(self._state, total)
        factors, units = mixing.zone_factors(plan, weight)
        return Round(
            contributions=[[_flat(r) for r in zone] for zone in records],
            zone_sums=[_flat(s) for s in sums],
            outputs=[[_flat(node) for node in level] for level in outputs],
            units=[float(f * u) for f, u in zip(factors, units, strict=True)],
        )

    def _real(self, contributions: Any) -> tuple[Any, Any, Any, Any]:
        """Records, zones' sums, the total, and zones' weights."""
        total = self._total(contributions)
        records = [[c["record"] for c in clients] for clients in contributions]
        return records, _by_zone(total["record"]), total, total["weight"]

    def _fixed_point(self, contributions: Any) -> tuple[Any, Any, Any, Any]:
        """As `_real`, of sums modulo 2^b."""
        mean = self._mean
        bare = [
            [
                collections.OrderedDict((k, v) for k, v in c.items() if k != "vector")
                for c in clients
            ]
            for clients in contributions
        ]
        operator = self._total(bare)
        vectors = tf.stack(
            [tf.add_n([c["vector"] for c in clients]) for clients in contributions]
        )
        vectors = tf.math.floormod(vectors, mean.modulus)
        sums, weight = mean.decoded(vectors)
        records = [
            [mean.decoded(c["vector"])[0] for c in clients] for clients in contributions
        ]
        return records, _by_zone(sums), mean.total(vectors, operator), weight

    def _total(self, contributions: Any) -> Any:
        mean = self._mean
        sent = [
            mean.sent_by_one(contribution, zone)
            for zone, clients in enumerate(contributions)
            for contribution in clients
        ]
        total = mean.zero(tf.nest.map_structure(tf.TensorSpec.from_tensor, sent[0][0]))
        for each in sent:
            total = mean.add(total, *each)
        return total

    def _tensors(self, update: np.ndarray) -> list[tf.Tensor]:
        parts = np.split(np.asarray(update, np.float32), np.cumsum(self._sizes)[:-1])
        return [
            tf.constant(part.reshape(shape))
            for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def _profile(self, zone: int, index: int) -> Any:
        return collections.OrderedDict(
            weight=tf.constant(1.0),
            zone=tf.constant(zone),
            carries_noise=tf.constant(index < self._plan.noise_carriers[zone]),
        )


def _by_zone(record: Any) -> list[Any]:
    zones = tf.nest.flatten(record)[0].shape[0]
    return [tf.nest.map_structure(lambda t, i=i: t[i], record) for i in range(zones)]


def _flat(record: Any) -> np.ndarray:
    parts = [np.ravel(t.numpy()) for t in tf.nest.flatten(record)]
    return np.concatenate(parts).astype(np.float64)
