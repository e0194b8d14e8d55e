"""Who takes part in a round: the cohort, who drops out, who leads the zones."""

import dataclasses
import functools
import hashlib
from typing import Any

import numpy as np

from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.faults import Faults, byzantine_clients
from tff_hdp.topology import SuperNodes, Zoning
from tff_hdp.topology.electorate import ElectionError
from tff_hdp.topology.supernodes import Policy, Term

# Streams of a round's randomness; `round_data` takes 1 for the order of examples.
_DROPS, _FAILURES, _VOTERS, _BYZANTINE = 2, 3, 4, 5
_PHASES = ("deal", "confirm", "reveal")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elections:
    """How zones elect their super-nodes.

    Attributes:
      policy: `persistent` or `rotate`; see `SuperNodes`.
      fault_model: `crash` or `byzantine`.
      run_protocol: Whether to hold elections in full.
      voters: How many of a zone's clients are online when it elects, at most;
        who, is drawn apart from the cohort.
      capability: Each client's score; needed with `min_capability`.
      min_capability: Least score of an eligible client.
    """

    policy: Policy = "persistent"
    fault_model: str = "byzantine"
    run_protocol: bool = True
    voters: int = 10
    capability: dict[str, float] | None = None
    min_capability: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attendance:
    """Who takes part in one round.

    Attributes:
      cohort: [k] int64, indices into `zoning.client_ids` of those who deliver.
      byzantine: [k] bool, which of them are Byzantine.
      seats: Per zone its super-node and how it came to power, as JSON types;
        empty without elections.
      carried: What the next round must know, as JSON types.
      metrics: Columns of metrics.csv.
    """

    cohort: np.ndarray
    byzantine: np.ndarray
    seats: list[dict[str, Any]]
    carried: dict[str, Any]
    metrics: dict[str, float]


class Participation:
    """Decides round by round who takes part.

    A round depends on the run's secret, its number and what the round before
    carried, and on nothing else: not on anybody's data, and whether a zone is
    skipped not on the cohort either. So a skipped zone tells nothing of who
    takes part, and voters, whom transcripts name, were drawn apart from it.

    Args:
      plan: How zones sample.
      zoning: Who belongs where.
      faults: What goes wrong.
      elections: How super-nodes are elected; None where they are given, so that a
        zone whose super-node fails is skipped.
    """

    def __init__(
        self,
        *,
        plan: NoisePlan,
        zoning: Zoning,
        faults: Faults | None = None,
        elections: Elections | None = None,
    ) -> None:
        self._plan = plan
        self._zoning = zoning
        self._faults = Faults() if faults is None else faults
        self._elections = elections
        self._zone_of = np.asarray(zoning.zone_of)
        self.sampler = functools.lru_cache(maxsize=1)(self._sampler)
        self._super_nodes = functools.lru_cache(maxsize=1)(self._new_super_nodes)

    def attend(
        self, entropy: int, round_number: int, carried: dict[str, Any]
    ) -> Attendance:
        """Who takes part in a round.

        Args:
          entropy: The run's secret.
          round_number: From 1.
          carried: What the round before returned as `carried`; {} at the start.
        """
        drawn = self.sampler(entropy).draw(round_number)
        rng = self._generator(entropy, round_number, _DROPS)
        arrives = rng.random(len(drawn)) >= self._faults.drop_rate
        seats, carried = self._seat(entropy, round_number, carried)
        skipped = [zone for zone, seat in enumerate(seats) if not seat["super_node"]]
        served = ~np.isin(self._zone_of[drawn], skipped)
        cohort = drawn[arrives & served]
        byzantine = self._byzantine(entropy, round_number)[cohort]
        metrics: dict[str, float] = {}
        if self._faults.drop_rate:
            metrics["dropped"] = int(np.sum(~arrives))
        if self._faults.byzantine:
            metrics["byzantine"] = int(byzantine.sum())
        if seats:
            metrics["skipped_zones"] = len(skipped)
            metrics["failed_super_nodes"] = sum(seat["failed"] for seat in seats)
        if self._elections is not None:
            metrics["elections"] = sum(seat["elections"] for seat in seats)
            metrics["election_seconds"] = max(seat["seconds"] for seat in seats)
            metrics["election_bytes"] = sum(seat["bytes"] for seat in seats)
        return Attendance(
            cohort=cohort,
            byzantine=byzantine,
            seats=seats if self._elections else [],
            carried=carried,
            metrics=metrics,
        )

    def _seat(
        self, entropy: int, number: int, carried: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Every zone's seat, and what to carry on."""
        zones = range(self._zoning.num_zones)
        fails = self._generator(entropy, number, _FAILURES)
        rate = self._faults.super_node_failure_rate
        if self._elections is None:
            if not rate:
                return [], carried
            gone = fails.random(len(zones)) < rate
            return [
                {"super_node": None if g else "given", "failed": int(g)} for g in gone
            ], carried
        nodes = self._super_nodes(entropy)
        nodes.load_state_dict(carried)
        voters = self._generator(entropy, number, _VOTERS)
        seats = [
            self._lead(nodes, zone, number, entropy, voters, fails) for zone in zones
        ]
        return seats, nodes.state_dict()

    def _lead(
        self,
        nodes: SuperNodes,
        zone: int,
        number: int,
        entropy: int,
        voters: np.random.Generator,
        fails: np.random.Generator,
    ) -> dict[str, Any]:
        """Seats a zone's super-node, and another as often as one fails."""
        ids = np.asarray(self._zoning.client_ids, object)
        members = np.flatnonzero(self._zone_of == zone)
        size = min(self._elections.voters, len(members))
        chosen = voters.choice(members, size, replace=False)
        silent = voters.random(size) < self._faults.drop_rate
        phases = voters.integers(len(_PHASES), size=size)
        stops = {
            ids[i]: _PHASES[phase]
            for i, phase, stopped in zip(chosen, phases, silent, strict=True)
            if stopped
        }
        bad = set(ids[self._byzantine(entropy, number)])
        online = set(ids[chosen])
        incumbent = nodes.incumbent(zone)
        if incumbent is not None and self._elections.policy == "persistent":
            online.add(incumbent)
        seat: dict[str, Any] = {"zone": zone, "super_node": None, "failed": 0}
        seat |= {"seconds": 0.0, "bytes": 0, "transcripts": []}
        held = nodes.elections
        attempt = 0
        try:
            while seat["super_node"] is None:
                term = nodes.seat(
                    zone, number, online, stops=stops, unsound=bad, attempt=attempt
                )
                attempt = term.attempt + 1
                _add_costs(seat, term)
                # A Byzantine super-node withholds the sum: it is as good as gone.
                if (
                    fails.random() < self._faults.super_node_failure_rate
                    or term.super_node in bad
                ):
                    nodes.dismiss(zone)
                    seat["failed"] += 1
                    online -= {term.super_node, *stops}
                else:
                    nodes.saw_aggregate(zone)
                    seat["super_node"] = term.super_node
        except ElectionError as refusal:
            seat["refused"] = str(refusal)
        return seat | {"elections": nodes.elections - held}

    def _byzantine(self, entropy: int, number: int) -> np.ndarray:
        share = self._faults.byzantine_share(number)
        rng = self._generator(entropy, 0, _BYZANTINE)
        return byzantine_clients(self._zoning, share, rng=rng)

    def _generator(self, entropy: int, number: int, stream: int) -> np.random.Generator:
        return self.sampler(entropy).generator(number, stream=stream)

    def _sampler(self, entropy: int) -> CohortSampler:
        return CohortSampler(plan=self._plan, zoning=self._zoning, entropy=entropy)

    def _new_super_nodes(self, entropy: int) -> SuperNodes:
        options = {
            field.name: getattr(self._elections, field.name)
            for field in dataclasses.fields(self._elections)
            if field.name != "voters"
        }
        secret = hashlib.sha256(f"elections {entropy}".encode()).digest()
        return SuperNodes(self._zoning, secret=secret, **options)


def _add_costs(seat: dict[str, Any], term: Term) -> None:
    seat["seconds"] += term.costs.get("critical_path_seconds", 0.0)
    seat["bytes"] += term.costs.get("total_sent_bytes", 0)
    if term.transcript is not None:
        seat["transcripts"].append(term.transcript.to_json())
