"""A round's sums by the secure aggregation protocol itself, among simulated parties.

Everybody adds its own discrete noise, exactly sampled, before it masks: clients in
their zones, super-nodes where the server sees only the sum over zones.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tff_hdp.errors import ArgumentError, check_count, entries, require
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned_noise import PartyNoise
from tff_hdp.protocols.secagg import (
    BelowThresholdError,
    Meter,
    Round,
    masking_graph,
    noise,
    run_round,
)
from tff_hdp.protocols.secagg.fixed_point import from_ring, to_ring
from tff_hdp.protocols.secagg.rounds import SUPER_NODE, Protocol


@dataclasses.dataclass(frozen=True)
class Share:
    """What one client puts into its zone's sum.

    Attributes:
      vector: [d + 1] integers, a record and its weight.
      carries_noise: Whether it adds the plan's noise of a client to the record.
      counted: Whether it counts as one of its zone. Who is in it only because its own
        is not one of the plan's does not, and makes no zone large enough to be shown.
    """

    vector: np.ndarray
    carries_noise: bool = False
    counted: bool = True


# A party's vector, and the noise that it adds to the record.
_Input = tuple[np.ndarray, PartyNoise | None]


@dataclasses.dataclass(frozen=True)
class ProtocolSums:
    """What came out of a round.

    Attributes:
      vectors: int64 [s, d + 1], every zone's sum; with `plan.secure_server` the sum
        over zones, [d + 1].
      left_out: bool [s], zones with clients that were too few for a sum.
      costs: Columns for a table of rounds: `secagg_seconds` on the critical path
        (zones work side by side, the server after them), `secagg_total_seconds`
        of all parties, `secagg_bytes_up` that clients and super-nodes sent towards
        the server and `secagg_bytes_down` that came back, and
        `secagg_client_bytes`, what the busiest client sent and received.
    """

    vectors: np.ndarray
    left_out: np.ndarray
    costs: dict[str, float]


def protocol_sums(
    plan: NoisePlan,
    zones: Sequence[Sequence[Share]],
    *,
    protocol: Protocol,
    round_number: int,
    size: int,
    dropped: Sequence[int] | None = None,
    signed: bool = False,
) -> ProtocolSums:
    """Sums every zone, and the zones, as `plan` says who may see what.

    A zone with fewer survivors that count than `plan.min_zone_clients` is refused
    before it unmasks: nothing of it is revealed. Its super-node still adds its noise,
    as `SecureZonedMean.total` explains.

    A sum that lost more clients than its protocol bears is refused likewise, and
    started anew among those who are left. So whether a zone is left out depends
    on the number of survivors alone, as the plan's account has it.

    Args:
      plan: With an encoding.
      zones: For every zone what its surviving clients put in.
      protocol: `bonawitz` or `graph`.
      round_number: Binds keys and messages to this round.
      size: d + 1.
      dropped: Per zone how many more clients took part at first and fell silent
        once they had shared their keys; None for nobody.
      signed: Whether parties sign and agree on the survivors (`run_round`).

    Raises:
      ArgumentError: If a zone may be too small for the protocol but the plan's
        account does not know it, there are not as many entries as zones, a vector does
        not hold ring elements, or a sum would wrap around.
    """
    if plan.secure_aggregation and plan.min_zone_clients < 2:
        raise ArgumentError(
            "plan.min_zone_clients",
            plan.min_zone_clients,
            "at least 2 with secure sums of a zone",
        )
    run = _Runner(plan, protocol, round_number, size, signed)
    s, fewest = plan.num_zones, plan.min_zone_clients
    _check_shares(plan, zones, size)
    dropped = [0] * s if dropped is None else dropped
    require(len(dropped) == s, "dropped", dropped, f"{s} entries, one for each zone")
    dropped = entries("dropped", dropped, check_count)
    vectors, left_out = np.zeros([s, size], np.int64), np.zeros(s, bool)
    meters = []
    for i, shares in enumerate(zones):
        came = sum(share.counted for share in shares)
        left_out[i] = 0 < came < fewest
        if came < fewest:
            continue
        named = {
            f"zone {i} client {j}": (
                share.vector,
                plan.client_noise if share.carries_noise else None,
            )
            for j, share in enumerate(shares)
        }
        if plan.secure_aggregation:
            vectors[i], meter = run.secure(f"zone {i}", named, fewest, dropped[i])
            meters.append(meter)
        else:
            vectors[i] = run.plain(named)
    upper = None
    if plan.secure_server:
        pairs = zip(vectors, plan.zone_noise, strict=True)
        outputs = {f"super-node {i}": pair for i, pair in enumerate(pairs)}
        # Nobody may drop out of a sum over zones.
        vectors, upper = run.secure("server", outputs, len(outputs))
    return ProtocolSums(vectors, left_out, _costs(meters, upper))


def _check_shares(plan: NoisePlan, zones: Sequence[Sequence[Share]], size: int) -> None:
    """Raises ArgumentError if a sum would not be what the integers add up to."""
    s = plan.num_zones
    require(len(zones) == s, "zones", f"of {len(zones)}", f"{s}, as in the plan")
    half = 2 ** (plan.encoding.bits - 1)
    allowed = f"{size} integers from {-half} to {half - 1}"

    def check(name: str, vector: np.ndarray) -> None:
        ok = vector.shape == (size,) and np.issubdtype(vector.dtype, np.integer)
        ok = ok and bool(-half <= vector.min() and vector.max() < half)
        require(ok, name, f"{vector.dtype} of shape {vector.shape}", allowed)

    total = np.zeros(size, np.int64)
    for i, shares in enumerate(zones):
        within = np.zeros(size, np.int64)
        for j, share in enumerate(shares):
            check(f"zones[{i}][{j}].vector", np.asarray(share.vector))
            within += share.vector
        check(f"sum of zones[{i}]", within)
        total += within
    if plan.secure_server:
        check("sum of zones", total)


@dataclasses.dataclass(frozen=True)
class _Runner:
    plan: NoisePlan
    protocol: Protocol
    round_number: int
    size: int
    signed: bool

    def secure(
        self, whose: str, inputs: Mapping[str, _Input], fewest: int, dropped: int = 0
    ) -> tuple[np.ndarray, Meter]:
        """The sum of all inputs, `fewest` and more, int64 [size], by the protocol."""
        meter, unmasked = Meter(SUPER_NODE), collections.defaultdict(set)
        bits = self.plan.encoding.bits

        def attempt(number: int, dropped: int) -> np.ndarray:
            gone = dict.fromkeys(f"dropped client {j}" for j in range(dropped))
            parties = len(inputs) + dropped
            graph = masking_graph(self.protocol, parties, signed=self.signed)
            terms = Round(
                self.round_number,
                self.size,
                bits,
                graph.threshold,
                whose,
                attempt=number,
                min_survivors=max(fewest, graph.fewest),
            )
            total, _ = run_round(
                {**inputs, **gone},
                terms,
                encode=lambda own: to_ring(self._noised(*own), bits),
                degree=graph.degree,
                drops=dict.fromkeys(gone, "mask"),
                signed=self.signed,
                unmasked=unmasked,
                meter=meter,
            )
            return from_ring(total, bits)

        try:
            return attempt(0, dropped), meter
        except BelowThresholdError:
            return attempt(1, 0), meter

    def plain(self, inputs: Mapping[str, _Input]) -> np.ndarray:
        """The sum where the super-node sees every input."""
        return np.sum([self._noised(*own) for own in inputs.values()], axis=0)

    def _noised(self, vector: np.ndarray, own: PartyNoise | None) -> np.ndarray:
        vector = vector.astype(np.int64)
        if own:
            steps = own.in_steps(self.plan.encoding.step)
            vector[:-1] += noise.discrete_gaussian(steps, self.size - 1)
        return vector


def _costs(zones: Sequence[Meter], server: Meter | None) -> dict[str, float]:
    in_zones = [meter.summary() for meter in zones]
    above = [] if server is None else [server.summary()]
    summaries = in_zones + above
    slowest = max((s["critical_path_seconds"] for s in in_zones), default=0.0)
    busiest = max(
        (
            cost.sent_bytes + cost.received_bytes
            for meter in zones
            for cost in meter.clients.values()
        ),
        default=0,
    )
    return {
        "secagg_seconds": slowest + sum(s["critical_path_seconds"] for s in above),
        "secagg_total_seconds": sum(s["total_seconds"] for s in summaries),
        "secagg_bytes_up": sum(s["hub_received_bytes"] for s in summaries),
        "secagg_bytes_down": sum(s["hub_sent_bytes"] for s in summaries),
        "secagg_client_bytes": busiest,
    }
