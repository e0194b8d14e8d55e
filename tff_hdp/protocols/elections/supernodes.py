"""Who is super-node, round after round, and what each came to see."""

import dataclasses
import hashlib
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from tff_hdp.protocols.elections.byzantine import UnsoundElector
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.election_round import RELAY, Phase, run_election
from tff_hdp.protocols.elections.electorate import (
    ElectionError,
    Identity,
    Setup,
    setup_election,
)
from tff_hdp.protocols.elections.pvss import derived_scalars
from tff_hdp.protocols.elections.transcripts import Transcript, check_quorum
from tff_hdp.protocols.meter import Meter
from tff_hdp.topology.zoning import Zoning

Policy = Literal["persistent", "rotate"]
POLICIES = ("persistent", "rotate")


@dataclasses.dataclass(frozen=True)
class Term:
    """One zone's super-node in one round.

    Attributes:
      super_node: Its client id.
      elected: Whether it was elected this round.
      attempt: The number of the last election, to count repeated ones on from.
      costs: `Meter.summary()` of the round's elections, summed; empty if there
        was none.
      transcript: The last one's transcript; None without an election, or if no
        protocol was run.
    """

    super_node: str
    elected: bool
    attempt: int
    costs: Mapping[str, float]
    transcript: Transcript | None


class SuperNodes:
    """The super-nodes of all zones.

    `persistent`: in power while online, replaced when it leaves (the HDP
    paper's section IV-A). `rotate`: a new election every round.

    Attributes:
      exposure: For every client how many zone aggregates it has seen.
      elections: How many elections were held.
    """

    def __init__(
        self,
        zoning: Zoning,
        *,
        policy: Policy = "persistent",
        fault_model: Literal["crash", "byzantine"] = "byzantine",
        capability: Mapping[str, float] | None = None,
        min_capability: float | None = None,
        run_protocol: bool = True,
        secret: bytes | None = None,
    ) -> None:
        """Starts with no zone led.

        Args:
          zoning: The zones.
          policy: When a super-node is replaced.
          fault_model: Which faults elections withstand, at their most.
          capability: Each client's score, if eligibility asks for one.
          min_capability: Least score of an eligible client.
          run_protocol: Whether to hold elections in full. False draws winners by
            the same law, with the same refusals, at no cost.
          secret: All simulated clients' keys and contributions derive from it, so
            that the same election held again has the same transcript; None draws
            one.

        Raises:
          ValueError: If `policy` is unknown.
        """
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}; allowed are {', '.join(POLICIES)}")
        self.zoning = zoning
        self.policy = policy
        self.exposure = dict.fromkeys(zoning.client_ids, 0)
        self.elections = 0
        self._options = {
            "fault_model": fault_model,
            "capability": capability,
            "min_capability": min_capability,
        }
        self._run_protocol = run_protocol
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._identities: dict[str, Identity] = {}
        self._incumbent: dict[int, str] = {}

    def seat(
        self,
        zone: int,
        round_number: int,
        online: Collection[str],
        *,
        stops: Mapping[str, Phase] | None = None,
        unsound: Collection[str] = (),
        attempt: int = 0,
    ) -> Term:
        """Who leads a zone this round, after an election if one is due.

        Args:
          zone: The zone.
          round_number: The round; with zone and attempt it names the election.
          online: The zone's clients that are online.
          stops: Clients that go silent during an election, and when; who is not
            online has no part in it.
          unsound: Clients whose proofs do not hold (`UnsoundElector`); likewise.
          attempt: Counts repeated elections within one round, as after a
            super-node's failure.

        Raises:
          ElectionError: If an election is refused. The zone then has no
            super-node, and is as if it had just left.
          ValueError: If a client online is not of the zone.
        """
        members = self.zoning.clients_in(zone)
        stranger = next((c for c in online if c not in set(members)), None)
        if stranger is not None:
            raise ValueError(f"online holds {stranger!r}, who is not of zone {zone}")
        online = set(online)
        incumbent = self._incumbent.pop(zone, None)
        if self.policy == "persistent" and incumbent in online:
            self._incumbent[zone] = incumbent
            return Term(incumbent, False, attempt, {}, None)
        present = [client for client in members if client in online]
        if not present:
            raise ElectionError(f"zone {zone} has no client online")
        stops = {c: phase for c, phase in (stops or {}).items() if c in online}
        faulty = online.intersection(unsound)
        term = self._elect(zone, round_number, attempt, present, stops, faulty)
        self._incumbent[zone] = term.super_node
        return term

    def incumbent(self, zone: int) -> str | None:
        """The zone's super-node, if it has one."""
        return self._incumbent.get(zone)

    def dismiss(self, zone: int) -> None:
        """The zone's super-node failed: the next `seat` elects another.

        Exclude it from `online` there, if it is gone for good.
        """
        self._incumbent.pop(zone, None)

    def saw_aggregate(self, zone: int) -> None:
        """Counts one zone aggregate as seen by the zone's super-node.

        Raises:
          ElectionError: If the zone has none.
        """
        if zone not in self._incumbent:
            raise ElectionError(f"zone {zone} has no super-node")
        self.exposure[self._incumbent[zone]] += 1

    def exposure_histogram(self) -> dict[int, int]:
        """For every number of aggregates seen, how many clients saw so many."""
        return dict(sorted(Counter(self.exposure.values()).items()))

    def state_dict(self) -> dict[str, Any]:
        """Who is in power and who saw how much, as JSON types."""
        return {
            "incumbents": {str(z): c for z, c in sorted(self._incumbent.items())},
            "exposure": {c: seen for c, seen in self.exposure.items() if seen},
            "elections": self.elections,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the state by what `state_dict` wrote; {} is the start.

        Raises:
          ValueError: If it names a client that is not of the zone.
        """
        incumbents = {int(z): c for z, c in state.get("incumbents", {}).items()}
        for zone, client in incumbents.items():
            if client not in self.zoning.clients_in(zone):
                raise ValueError(f"incumbents holds {client!r}, not of zone {zone}")
        exposure = dict.fromkeys(self.zoning.client_ids, 0)
        stranger = next((c for c in state.get("exposure", {}) if c not in exposure), "")
        if stranger:
            raise ValueError(f"exposure holds {stranger!r}, which is not a client")
        self._incumbent = incumbents
        self.exposure = exposure | dict(state.get("exposure", {}))
        self.elections = int(state.get("elections", 0))

    def _elect(
        self,
        zone: int,
        round_number: int,
        attempt: int,
        present: Sequence[str],
        stops: Mapping[str, Phase],
        unsound: Collection[str],
    ) -> Term:
        setup = setup_election(
            session=f"zone {zone}, round {round_number}, attempt {attempt}",
            voters=[self._identity(client).public for client in present],
            **self._options,
        )
        winner, costs, transcript = self._hold(setup, stops, unsound)
        self.elections += 1
        if winner not in stops:
            return Term(winner, True, attempt, costs, transcript)
        # It went silent before it could serve: those still there elect another.
        rest = [client for client in present if client not in stops]
        term = self._elect(zone, round_number, attempt + 1, rest, {}, unsound)
        summed = {name: cost + term.costs[name] for name, cost in costs.items()}
        return dataclasses.replace(term, costs=summed)

    def _hold(
        self, setup: Setup, stops: Mapping[str, Phase], unsound: Collection[str]
    ) -> tuple[str, dict[str, float], Transcript | None]:
        if not self._run_protocol:
            faulty = {*stops, *unsound}
            sound = sum(voter.client_id not in faulty for voter in setup.voters)
            check_quorum(setup, "stayed", sound)
            digest = hashlib.sha256(self._secret + setup.session.encode()).digest()
            number = int.from_bytes(digest, "little") % len(setup.candidates)
            return setup.candidates[number], {}, None

        def elector(setup: Setup, identity: Identity) -> Elector:
            name = identity.client_id
            kind = UnsoundElector if name in unsound else Elector
            random = derived_scalars(self._secret, setup.session, name)
            return kind(setup, identity, random=random)

        identities = {v.client_id: self._identity(v.client_id) for v in setup.voters}
        meter = Meter(RELAY)
        winner, transcript = run_election(
            setup, identities, stops=stops, elector=elector, meter=meter
        )
        return winner, meter.summary(), transcript

    def _identity(self, client_id: str) -> Identity:
        if client_id not in self._identities:
            self._identities[client_id] = Identity(client_id, secret=self._secret)
        return self._identities[client_id]
