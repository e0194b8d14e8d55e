"""Whole elections among simulated clients, some of whom fail: held, or only drawn."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from tff_hdp.errors import check_word
from tff_hdp.protocols.elections.ballots import (
    Certificate,
    Dealing,
    Reveal,
    Roll,
    sign,
)
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.electorate import (
    RELAY,
    ElectionError,
    Identity,
    Registry,
)
from tff_hdp.protocols.elections.pvss import ORDER
from tff_hdp.protocols.elections.relay import Relay
from tff_hdp.protocols.elections.setup import Call, Setup
from tff_hdp.protocols.elections.transcripts import PHASES, Transcript
from tff_hdp.protocols.meter import Meter

# In which a client that came may still go silent.
StopPhase = Literal["deal", "confirm", "reveal"]
STOP_PHASES: tuple[StopPhase, ...] = get_args(StopPhase)


class UnsoundElector(Elector):
    """Signs what it says, but its dealing and its reveal fail their proofs.

    It concludes like everybody else, from the others' reveals.
    """

    def deal(self, roll: Roll) -> Dealing:
        """A dealing whose shares do not lie on one polynomial."""
        dealing = super().deal(roll)
        responses = _spoiled(dealing.responses)
        return sign(dataclasses.replace(dealing, responses=responses), self.identity)

    def reveal(self, certificate: Certificate) -> Reveal:
        """A share that is not the decryption it claims to be."""
        reveal = super().reveal(certificate)
        (response,) = _spoiled([reveal.response])
        return sign(dataclasses.replace(reveal, response=response), self.identity)

    def close(self, transcript: Transcript) -> None:
        """Takes any end, since none tells of its unsound words."""
        self._end(transcript, None)


def run_election(
    registry: Registry,
    call: Call,
    electors: Mapping[str, Elector],
    *,
    relay: Identity,
    stops: Mapping[str, StopPhase] | None = None,
    meter: Meter | None = None,
) -> tuple[str, Transcript]:
    """Holds an election among simulated clients.

    Args:
      registry: The zone's, as the relay knows it.
      call: What the relay calls for, in the round that it is.
      electors: Those who are online, by id.
      relay: The relay's keys.
      stops: Clients that go silent, with the first phase they miss.
      meter: Counts time and bytes, if given; its hub must be `RELAY`.

    Returns:
      (winner, transcript). Every client that stayed computed the same winner.

    Raises:
      BeyondThresholdError: If more clients are faulty than tolerated; those that
        stayed have then been shown the transcript that the error carries.
      ElectionError: If the clients that stayed do not agree.
    """
    meter = Meter(RELAY) if meter is None else meter
    stops = stops or {}
    board = Relay(registry, call, relay)
    number = call.round_number

    def step(
        phase: str,
        shown: object,
        act: Callable[[Elector, Any], object],
        end: Callable[[], Any],
    ) -> Any:
        """Shows everybody online something; what the relay makes of their answers."""
        for client in _acting(electors, stops, phase):
            received = meter.deliver(RELAY, client, shown)
            with meter.time(client, phase):
                message = act(electors[client], received)
            message = meter.deliver(client, RELAY, message)
            with meter.time(RELAY, phase):
                board.receive(message)
        with meter.time(RELAY, phase):
            return end()

    try:
        roll = step("attend", call, lambda e, m: e.attend(m, number), board.roll)
        ballot = step("deal", roll, lambda e, m: e.deal(m), board.propose)
        certificate = step("confirm", ballot, lambda e, m: e.confirm(m), board.certify)
        transcript = step("reveal", certificate, lambda e, m: e.reveal(m), board.finish)
    except ElectionError as error:
        for transcript in error.transcripts:
            for client in _acting(electors, stops, "reveal"):
                shown = meter.deliver(RELAY, client, transcript)
                with meter.time(client, "conclude"):
                    electors[client].close(shown)
        raise

    winners = set()
    for client in _acting(electors, stops, "reveal"):
        outcome = meter.deliver(RELAY, client, board.outcome(transcript))
        with meter.time(client, "conclude"):
            winners.add(electors[client].conclude(outcome))
    if len(winners) != 1:
        raise ElectionError(f"clients disagree on the winner: {sorted(winners)}")
    return winners.pop(), transcript


def draw_winner(
    setup: Setup,
    stops: Mapping[str, StopPhase],
    unsound: Collection[str],
    *,
    secret: bytes,
) -> str:
    """The winner as the protocol would have it, or as it would refuse.

    Args:
      setup: What the election is about.
      stops: Clients that go silent, with the first phase they miss.
      unsound: Clients whose proofs do not hold.
      secret: Decides, with the election's name.

    Raises:
      BeyondThresholdError: If more clients are faulty than tolerated.
    """
    deal, confirm, reveal = (
        _acting(setup.present, stops, phase) for phase in STOP_PHASES
    )
    setup.check_quorum("dealt", sum(client not in unsound for client in deal))
    setup.check_quorum("confirmed", len(confirm))
    setup.check_threshold("revealed", sum(client not in unsound for client in reveal))
    digest = hashlib.sha256(secret + setup.name.encode()).digest()
    number = int.from_bytes(digest, "little") % len(setup.candidates)
    return setup.candidates[number]


def _acting(
    clients: Iterable[str], stops: Mapping[str, StopPhase], phase: str
) -> list[str]:
    """Those who have not gone silent by a phase."""
    last = PHASES.index(phase)
    missed = {c: check_word("stops", stop, STOP_PHASES) for c, stop in stops.items()}
    return [c for c in clients if c not in missed or PHASES.index(missed[c]) > last]


def _spoiled(responses: Sequence[bytes]) -> tuple[bytes, ...]:
    first = (int.from_bytes(responses[0], "little") + 1) % ORDER
    return (first.to_bytes(32, "little"), *responses[1:])
