"""Who takes part in a round: the cohort, who drops out, who leads the zones."""

import collections
import dataclasses
import hashlib
from typing import Any

import numpy as np

from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.protocols.elections import SuperNodes
from tff_hdp.protocols.elections.election_round import STOP_PHASES, StopPhase
from tff_hdp.protocols.elections.electorate import ElectionError, Policy, Registry
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.systems.hdp.faults import Faults, byzantine_clients
from tff_hdp.systems.hdp.seats import Seat
from tff_hdp.topology import Zoning

# Streams of a round's randomness; `round_data` takes 1 for the order of examples.
_DROPS, _FAILURES, _VOTERS, _BYZANTINE, _ONLINE = 2, 3, 4, 5, 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elections:
    """How zones elect their super-nodes: arguments of `SuperNodes`.

    Attributes:
      policy: `persistent` or `rotate`.
      fault_model: `crash` or `byzantine`.
      run_protocol: Whether to hold elections in full.
      call_size: How many of a zone's clients are called to vote when it elects, at
        most; who, is drawn by `Registry.called`, apart from the cohort.
      capability: Each client's score; needed with `min_capability`.
      min_capability: Least score of an eligible client.
    """

    policy: Policy = "persistent"
    fault_model: str = "byzantine"
    run_protocol: bool = True
    call_size: int = 10
    capability: dict[str, float] | None = None
    min_capability: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attendance:
    """Who takes part in one round.

    Attributes:
      cohort: [k] int64, indices into `zoning.client_ids` of those who deliver.
      byzantine: [k] bool, which of them are Byzantine.
      dropped: Per zone how many were drawn and online, dropped out and would have
        delivered.
      seats: Per zone its super-node and how it came to power; empty without
        elections.
      skipped: How many zones nobody leads; depends on faults alone, not on the cohort.
      carried: What the next round must know, as JSON types.
      metrics: Columns of metrics.csv.
    """

    cohort: np.ndarray
    byzantine: np.ndarray
    dropped: tuple[int, ...]
    seats: list[Seat]
    skipped: int
    carried: dict[str, Any]
    metrics: dict[str, float]


class Participation:
    """Decides round by round who takes part.

    A round depends on the run's secret, its number and what the round before
    carried, and on nothing else: not on anybody's data, and whether a zone is
    skipped not on the cohort either. So a skipped zone tells no more of who
    takes part than who is online, which is no secret, and voters, whom
    transcripts name, are drawn apart from the cohort. A round that is released again
    has another cohort, and others of it are online or drop out: the account takes how
    many come as drawn anew in every release. Its elections stand, among whoever was
    online when they were held.

    Args:
      plan: How zones sample.
      zoning: Who belongs where.
      entropy: The run's secret.
      faults: What goes wrong.
      elections: How super-nodes are elected; None where they are given, so that a
        zone whose super-node fails is skipped.
    """

    def __init__(
        self,
        *,
        plan: NoisePlan,
        zoning: Zoning,
        entropy: int,
        faults: Faults | None = None,
        elections: Elections | None = None,
    ) -> None:
        self.sampler = CohortSampler(plan=plan, zoning=zoning, entropy=entropy)
        self._faults = Faults() if faults is None else faults
        self._elections = elections
        self._zone_of = np.asarray(zoning.zone_of)
        self._ids = np.asarray(zoning.client_ids, object)
        self._zoning = zoning
        self._super_nodes = None
        if elections is not None:
            secret = hashlib.sha256(f"elections {entropy}".encode()).digest()
            self._super_nodes = SuperNodes(zoning, secret=secret, **vars(elections))

    def registries(self) -> tuple[Registry, ...]:
        """Every zone's clients and their keys, where elections are held in full."""
        if self._elections is None or not self._elections.run_protocol:
            return ()
        return tuple(map(self._super_nodes.registry, range(self._zoning.num_zones)))

    def attend(
        self, round_number: int, carried: dict[str, Any], *, earlier: int = 0
    ) -> Attendance:
        """Who takes part in a round.

        Args:
          round_number: From 1.
          carried: What the round before returned as `carried`; {} at the start.
          earlier: How often the round was released before.
        """
        faults = self._faults
        drawn = self.sampler.draw(round_number, earlier=earlier)
        # Of all clients, so that nobody's depends on who else was drawn.
        n, rate = self._zoning.num_clients, faults.drop_rate
        drops = self._happens(rate, n, round_number, _DROPS, earlier=earlier)[drawn]
        online = self._online(round_number, earlier=earlier)
        bad = byzantine_clients(
            self._zoning,
            faults.byzantine_share(round_number),
            rng=self.sampler.generator(0, stream=_BYZANTINE),
        )
        if self._super_nodes is None:
            seats, rate = [], faults.supernode_failure_rate
            gone = self._happens(rate, self._zoning.num_zones, round_number, _FAILURES)
            skipped, failed = np.flatnonzero(gone), int(gone.sum())
        else:
            seats, carried = self._hold_elections(round_number, carried, bad)
            skipped = [s.zone for s in seats if s.super_node is None]
            failed = sum(len(s.failed) for s in seats)
        led = ~np.isin(self._zone_of[drawn], skipped)
        kept = drawn[online[drawn] & ~drops & led]
        lost = self._zone_of[drawn[online[drawn] & drops & led]]
        zones = self._zoning.num_zones
        metrics: dict[str, float] = {}
        if faults != Faults() or seats:
            metrics |= {
                "offline": int(np.sum(~online[drawn])),
                "dropped": int(np.sum(online[drawn] & drops)),
                "byzantine": int(bad[kept].sum()),
                "skipped_zones": len(skipped),
                "failed_super_nodes": failed,
            }
        if seats:
            metrics |= {
                "elections": sum(s.elections for s in seats),
                "election_seconds": max(s.seconds for s in seats),
                "election_total_seconds": sum(s.total_seconds for s in seats),
                "election_bytes": sum(s.bytes for s in seats),
            }
        return Attendance(
            cohort=kept,
            byzantine=bad[kept],
            dropped=tuple(np.bincount(lost, minlength=zones).tolist()),
            seats=seats,
            skipped=len(skipped),
            carried=carried,
            metrics=metrics,
        )

    def _online(self, round_number: int, *, earlier: int = 0) -> np.ndarray:
        """Who of all clients is online, bool [n]."""
        n, rate = self._zoning.num_clients, self._faults.online_rate
        return self._happens(rate, n, round_number, _ONLINE, earlier=earlier)

    def _happens(
        self, rate: float, count: int, round_number: int, stream: int, earlier: int = 0
    ) -> np.ndarray:
        """To whom of so many it happens, bool [count]."""
        if rate in (0, 1):
            return np.full(count, bool(rate))
        rng = self.sampler.generator(round_number, stream=stream, earlier=earlier)
        return rng.random(count) < rate

    def _hold_elections(
        self,
        round_number: int,
        carried: dict[str, Any],
        bad: np.ndarray,
    ) -> tuple[list[Seat], dict[str, Any]]:
        """Every zone's seat, and what to carry to the next round."""
        nodes = self._super_nodes
        nodes.load_state_dict(carried)
        voters = self.sampler.generator(round_number, stream=_VOTERS)
        fails = self.sampler.generator(round_number, stream=_FAILURES)
        online = self._online(round_number)
        there, unsound = set(self._ids[online]), set(self._ids[bad])
        seats = [
            self._seat(zone, round_number, there, unsound, voters, fails)
            for zone in range(self._zoning.num_zones)
        ]
        return seats, nodes.state_dict()

    def _seat(
        self,
        zone: int,
        round_number: int,
        there: set[str],
        unsound: set[str],
        voters: np.random.Generator,
        fails: np.random.Generator,
    ) -> Seat:
        """Seats a zone's super-node, and another as often as one fails."""
        nodes = self._super_nodes
        online, stops = self._voters(zone, round_number, voters)
        is_persistent = self._elections.policy == "persistent"
        incumbent = nodes.incumbent(zone) if is_persistent else None
        if incumbent is not None:
            online.add(incumbent)
        online &= there
        held, super_node, refused = nodes.elections, None, None
        failed: list[str] = []
        costs: collections.Counter[str] = collections.Counter()
        transcripts: list[Transcript] = []
        while super_node is None:
            try:
                term = nodes.seat(
                    zone, round_number, online, stops=stops, unsound=unsound
                )
            except ElectionError as refusal:
                refused = str(refusal)
                transcripts += refusal.transcripts
                break
            costs.update(term.costs)
            transcripts += term.transcripts
            gone = fails.random() < self._faults.supernode_failure_rate
            # A Byzantine super-node withholds the sum: it is as good as gone.
            if gone or term.super_node in unsound:
                nodes.dismiss(zone)
                failed.append(term.super_node)
                online -= {term.super_node, *stops}
            else:
                super_node = term.super_node
        return Seat(
            zone=zone,
            super_node=super_node,
            failed=tuple(failed),
            refused=refused,
            left=None if incumbent in there else incumbent,
            seconds=float(costs["critical_path_seconds"]),
            total_seconds=float(costs["total_seconds"]),
            # Every message passes the relay once.
            bytes=costs["hub_sent_bytes"] + costs["hub_received_bytes"],
            transcripts=tuple(transcript.to_text() for transcript in transcripts),
            elections=nodes.elections - held,
        )

    def _voters(
        self, zone: int, round_number: int, rng: np.random.Generator
    ) -> tuple[set[str], dict[str, StopPhase]]:
        """A zone's clients that are called to vote, and who falls silent when."""
        chosen = self._super_nodes.registry(zone).called(round_number)
        size = len(chosen)
        silent = rng.random(size) < self._faults.drop_rate
        phases = rng.integers(len(STOP_PHASES), size=size)
        stops = {
            client: STOP_PHASES[phase]
            for client, phase, stopped in zip(chosen, phases, silent, strict=True)
            if stopped
        }
        return set(chosen), stops
