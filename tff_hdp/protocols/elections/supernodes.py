"""Who is super-node, round after round."""

import dataclasses
import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_hdp.errors import ArgumentError, check_count, check_word, require
from tff_hdp.protocols.elections.chain import Standing
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.election_round import (
    StopPhase,
    UnsoundElector,
    draw_winner,
    run_election,
)
from tff_hdp.protocols.elections.electorate import (
    FAULT_MODELS,
    POLICIES,
    RELAY,
    RUN_BYTES,
    ElectionError,
    FaultModel,
    Identity,
    Policy,
    Registry,
    Voter,
    eligible_clients,
)
from tff_hdp.protocols.elections.setup import NO_RECORD, Call, Setup
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.protocols.meter import Meter
from tff_hdp.topology.zoning import Zoning


@dataclasses.dataclass(frozen=True)
class Term:
    """One zone's super-node in one round.

    Attributes:
      super_node: Its client id.
      elected: Whether it was elected now.
      costs: `Meter.summary()` of the elections held, summed; empty if there was
        none.
      transcripts: Of the elections held, in order; none if no protocol was run.
    """

    super_node: str
    elected: bool
    costs: Mapping[str, float]
    transcripts: tuple[Transcript, ...]


class SuperNodes:
    """The super-nodes of all zones.

    `persistent`: in power while online, replaced when it leaves (the HDP
    paper's section IV-A). `rotate`: a new election every round.

    Attributes:
      zoning: The zones.
      policy: When a super-node is replaced.
      elections: How many elections were held.
    """

    def __init__(
        self,
        zoning: Zoning,
        *,
        policy: Policy = "persistent",
        fault_model: FaultModel = "byzantine",
        capability: Mapping[str, float] | None = None,
        min_capability: float | None = None,
        call_size: int | None = None,
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
          call_size: How many of a zone's clients are called to vote in a round;
            None for all.
          run_protocol: Whether to hold elections in full. False draws winners by
            the same law, with the same refusals, at no cost.
          secret: All simulated clients' keys and contributions derive from it, so
            that the same election held again has the same transcript; None draws
            one.

        Raises:
          ArgumentError: If `policy` or `fault_model` is unknown, or `call_size` is
            less than 1.
        """
        check_word("policy", policy, POLICIES)
        check_word("fault_model", fault_model, FAULT_MODELS)
        if call_size is not None:
            check_count("call_size", call_size, 1)
        self.zoning = zoning
        self.policy = policy
        self.elections = 0
        self._fault_model = fault_model
        self._call_size = call_size
        self._eligible = set(
            eligible_clients(
                zoning.client_ids,
                capability=capability,
                min_capability=min_capability,
            )
        )
        self._run_protocol = run_protocol
        # With a secret elections are to repeat themselves, without fresh randomness.
        self._fresh = None if secret is None else b""
        self._secret = secrets.token_bytes(32) if secret is None else secret
        # No client's secret: theirs are derived with their ids behind "identity".
        self._relay = Identity(RELAY, secret=hashlib.sha256(self._secret).digest())
        named = HKDF(hashes.SHA256(), RUN_BYTES, None, b"run of elections")
        self._run = named.derive(self._secret) if run_protocol else b""
        self._identities: dict[str, Identity] = {}
        self._registries: dict[int, Registry] = {}
        self._incumbent: dict[int, str] = {}
        self._standing: dict[int, Standing] = {}

    def registry(self, zone: int) -> Registry:
        """A zone's clients and their keys, for all who vote or verify."""
        if zone not in self._registries:
            members = self.zoning.clients_in(zone)
            size = len(members) if self._call_size is None else self._call_size
            self._registries[zone] = Registry(
                zone,
                tuple(self._voter(client) for client in members),
                tuple(client for client in members if client in self._eligible),
                self._fault_model,
                self.policy,
                min(size, len(members)),
                self._relay.public.verify_key if self._run_protocol else b"",
                self._run,
            )
        return self._registries[zone]

    def seat(
        self,
        zone: int,
        round_number: int,
        online: Collection[str],
        *,
        stops: Mapping[str, StopPhase] | None = None,
        unsound: Collection[str] = (),
    ) -> Term:
        """Who leads a zone this round, after an election if one is due.

        Args:
          zone: The zone.
          round_number: The round.
          online: The zone's clients that are online; those of them who are called
            vote.
          stops: Clients that go silent during an election, and when; who is not
            online has no part in it.
          unsound: Clients whose proofs do not hold (`UnsoundElector`); likewise.

        Raises:
          ElectionError: If an election is refused, with the transcripts of all that
            were held. The zone then has no super-node, and is as if it had just
            left.
          ArgumentError: If a client online is not of the zone, or one of the zone has
            the relay's name.
        """
        members = set(self.zoning.clients_in(zone))
        stranger = next((client for client in online if client not in members), None)
        if stranger is not None:
            raise ArgumentError("online", stranger, f"clients of zone {zone}")
        online = set(online)
        incumbent = self._incumbent.pop(zone, None)
        is_new = round_number > self._stands(zone).round_number
        if incumbent in online and not (is_new and self.policy == "rotate"):
            self._incumbent[zone] = incumbent
            return Term(incumbent, False, {}, ())
        stops = {c: phase for c, phase in (stops or {}).items() if c in online}
        term = self._elect(zone, round_number, online, stops, online & set(unsound))
        self._incumbent[zone] = term.super_node
        return term

    def incumbent(self, zone: int) -> str | None:
        """The zone's super-node, if it has one."""
        return self._incumbent.get(zone)

    def dismiss(self, zone: int) -> None:
        """The zone's super-node failed: `seat` elects another, also in this round.

        It is out of that election. Exclude it from `online` in later rounds, if it is
        gone for good.
        """
        self._incumbent.pop(zone, None)

    def state_dict(self) -> dict[str, Any]:
        """Who is in power and what was said, as JSON types."""
        return {
            "incumbents": {str(z): c for z, c in sorted(self._incumbent.items())},
            "elections": self.elections,
            "standing": {
                str(z): standing.to_fields()
                for z, standing in sorted(self._standing.items())
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the state by what `state_dict` wrote; {} is the start.

        Raises:
          ArgumentError: If it is something else, or names a client that is not of the
            zone; the state is then as it was.
        """
        incumbents = self._by_zone("incumbents", state)
        for zone, client in incumbents.items():
            known = client in self.zoning.clients_in(zone)
            require(known, "incumbents", client, f"clients of zone {zone}")
        standing = {
            zone: Standing.from_fields(fields)
            for zone, fields in self._by_zone("standing", state).items()
        }
        self.elections = check_count("elections", state.get("elections", 0))
        self._incumbent, self._standing = incumbents, standing

    def _by_zone(self, name: str, state: Mapping[str, Any]) -> dict[int, Any]:
        """An entry of a state: from a zone, written as text, to what stands there."""
        zones = {str(zone): zone for zone in range(self.zoning.num_zones)}
        entry = state.get(name, {})
        require(isinstance(entry, Mapping), name, entry, "a mapping from zones")
        for text in entry:
            check_word(f"zone of {name}", text, zones)
        return {zones[text]: value for text, value in entry.items()}

    def _stands(self, zone: int) -> Standing:
        return self._standing.get(zone, Standing())

    def _elect(
        self,
        zone: int,
        round_number: int,
        online: Collection[str],
        stops: Mapping[str, StopPhase],
        unsound: Collection[str],
    ) -> Term:
        registry, stands = self.registry(zone), self._stands(zone)
        failed = stands.failed_by(round_number, self.policy)
        call = Call(registry.digest, round_number, stands.head, failed)
        present = [client for client in call.awaited(registry) if client in online]
        try:
            winner, costs, held = self._hold(registry, call, present, stops, unsound)
        except ElectionError as error:
            self._note(zone, call, error.transcripts, None)
            raise
        self._note(zone, call, held, winner)
        self.elections += 1
        if winner not in stops:
            return Term(winner, True, costs, held)
        # It went silent before it could serve: those still there elect another.
        rest = [client for client in present if client not in stops]
        try:
            term = self._elect(zone, round_number, rest, {}, unsound)
        except ElectionError as error:
            error.transcripts = (*held, *error.transcripts)
            raise
        summed = {name: cost + term.costs[name] for name, cost in costs.items()}
        return Term(term.super_node, True, summed, (*held, *term.transcripts))

    def _hold(
        self,
        registry: Registry,
        call: Call,
        present: Sequence[str],
        stops: Mapping[str, StopPhase],
        unsound: Collection[str],
    ) -> tuple[str, dict[str, float], tuple[Transcript, ...]]:
        if not self._run_protocol:
            self._stands(registry.zone).check(registry, call)
            setup = Setup(registry, call, tuple(present))
            return draw_winner(setup, stops, unsound, secret=self._secret), {}, ()
        electors = {
            client: (UnsoundElector if client in unsound else Elector)(
                self._identity(client),
                registry,
                standing=self._stands(registry.zone),
                fresh=self._fresh,
            )
            for client in present
        }
        meter = Meter(RELAY)
        winner, transcript = run_election(
            registry,
            call,
            electors,
            relay=self._relay,
            stops={client: stops[client] for client in present if client in stops},
            meter=meter,
        )
        return winner, meter.summary(), (transcript,)

    def _note(
        self, zone: int, call: Call, held: Sequence[Transcript], elected: str | None
    ) -> None:
        digest = held[-1].digest if held else NO_RECORD
        # What ends without a transcript where there should be one, has not been.
        if held or not self._run_protocol:
            self._standing[zone] = Standing.after(call, digest, elected)

    def _voter(self, client_id: str) -> Voter:
        if self._run_protocol:
            return self._identity(client_id).public
        # Where nothing is signed, the id stands for the keys.
        return Voter(client_id, client_id.encode(), b"")

    def _identity(self, client_id: str) -> Identity:
        if client_id not in self._identities:
            self._identities[client_id] = Identity(client_id, secret=self._secret)
        return self._identities[client_id]
