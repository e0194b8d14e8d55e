"""A whole election among simulated clients."""

from collections.abc import Callable, Mapping
from typing import Literal

from tff_hdp.protocols.elections.ballots import Ballot, Certificate
from tff_hdp.protocols.elections.election import Elector, Relay
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Setup
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.protocols.meter import Meter

RELAY = "relay"
Phase = Literal["deal", "confirm", "reveal"]
PHASES: tuple[Phase, ...] = ("deal", "confirm", "reveal")


def run_election(
    setup: Setup,
    identities: Mapping[str, Identity],
    *,
    stops: Mapping[str, Phase] | None = None,
    elector: Callable[[Setup, Identity], Elector] = Elector,
    meter: Meter | None = None,
) -> tuple[str, Transcript]:
    """Holds an election among simulated clients.

    Args:
      setup: What it is about.
      identities: The secret keys of every voter, by id.
      stops: Clients that go silent, with the first phase they miss.
      elector: Builds one client's part; tests put adversaries here.
      meter: Counts time and bytes, if given; its hub must be `RELAY`.

    Returns:
      (winner, transcript). Every client that stayed computed the same winner.

    Raises:
      BeyondThresholdError: If more clients are faulty than `setup.faulty`.
      ElectionError: If the clients that stayed do not agree.
    """
    meter = Meter(RELAY) if meter is None else meter
    stops = stops or {}
    relay = Relay(setup)
    electors = {
        voter.client_id: elector(setup, identities[voter.client_id])
        for voter in setup.voters
    }

    def online(phase: Phase) -> list[str]:
        return [
            client
            for client in electors
            if client not in stops or PHASES.index(stops[client]) > PHASES.index(phase)
        ]

    def collect(phase: Phase, act: Callable[[Elector, str], object]) -> None:
        for client in online(phase):
            with meter.time(client, phase):
                message = act(electors[client], client)
            message = meter.deliver(client, RELAY, message)
            with meter.time(RELAY, phase):
                relay.receive(message)

    def broadcast(message: Ballot | Certificate, to: Phase) -> dict[str, object]:
        return {client: meter.deliver(RELAY, client, message) for client in online(to)}

    collect("deal", lambda party, _: party.deal())
    with meter.time(RELAY, "deal"):
        ballot = relay.propose()
    ballots = broadcast(ballot, "confirm")
    collect("confirm", lambda party, client: party.confirm(ballots[client]))
    with meter.time(RELAY, "confirm"):
        certificate = relay.certify()
    certificates = broadcast(certificate, "reveal")
    collect("reveal", lambda party, client: party.reveal(certificates[client]))
    with meter.time(RELAY, "reveal"):
        transcript = relay.finish()

    winners = set()
    for client in online("reveal"):
        reveals = [meter.deliver(RELAY, client, r) for r in transcript.reveals]
        with meter.time(client, "conclude"):
            winners.add(electors[client].conclude(reveals))
    if len(winners) != 1:
        raise ElectionError(f"clients disagree on the winner: {sorted(winners)}")
    return winners.pop(), transcript
