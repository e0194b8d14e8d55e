"""A whole election among simulated clients."""

from collections.abc import Callable, Mapping
from typing import Literal

from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Registry
from tff_hdp.protocols.elections.relay import Relay
from tff_hdp.protocols.elections.setup import Call
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.protocols.meter import Meter

RELAY = "relay"
Phase = Literal["deal", "confirm", "reveal"]
PHASES: tuple[Phase, ...] = ("deal", "confirm", "reveal")


def run_election(
    registry: Registry,
    call: Call,
    electors: Mapping[str, Elector],
    *,
    relay: Identity,
    stops: Mapping[str, Phase] | None = None,
    meter: Meter | None = None,
) -> tuple[str, Transcript]:
    """Holds an election among simulated clients.

    Args:
      registry: The zone's, as the relay knows it.
      call: What the relay calls for.
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

    def online(phase: str) -> list[str]:
        return [
            client
            for client in electors
            if client not in stops
            or phase == "attend"
            or PHASES.index(stops[client]) > PHASES.index(phase)
        ]

    def exchange(phase: str, shown: object) -> None:
        """Shows everybody online something and collects their answers."""
        for client in online(phase):
            received = meter.deliver(RELAY, client, shown)
            act = {
                "attend": electors[client].attend,
                "deal": electors[client].deal,
                "confirm": electors[client].confirm,
                "reveal": electors[client].reveal,
            }[phase]
            with meter.time(client, phase):
                message = act(received)
            message = meter.deliver(client, RELAY, message)
            with meter.time(RELAY, phase):
                board.receive(message)

    def ended(phase: str, end: Callable[[], object]) -> object:
        with meter.time(RELAY, phase):
            return end()

    try:
        exchange("attend", call)
        exchange("deal", ended("attend", board.roll))
        exchange("confirm", ended("deal", board.propose))
        exchange("reveal", ended("confirm", board.certify))
        transcript = ended("reveal", board.finish)
    except ElectionError as error:
        for transcript in error.transcripts:
            for client in online("reveal"):
                shown = meter.deliver(RELAY, client, transcript)
                with meter.time(client, "conclude"):
                    electors[client].close(shown)
        raise

    winners = set()
    for client in online("reveal"):
        outcome = meter.deliver(RELAY, client, board.outcome(transcript))
        with meter.time(client, "conclude"):
            winners.add(electors[client].conclude(outcome))
    if len(winners) != 1:
        raise ElectionError(f"clients disagree on the winner: {sorted(winners)}")
    return winners.pop(), transcript
