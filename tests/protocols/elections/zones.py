"""Zones of simulated clients for tests of elections."""

from tff_hdp.protocols.elections.ballots import Certificate
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.election_round import run_election
from tff_hdp.protocols.elections.electorate import Identity, Registry
from tff_hdp.protocols.elections.relay import Relay
from tff_hdp.protocols.elections.setup import Call, Setup

POOL = {f"c{i}": Identity(f"c{i}") for i in range(7)}
BOARD = Identity("relay")
RUN = bytes(range(16))


def registry_of(k=4, fault_model="byzantine", zone=0, **options):
    ids = [f"c{i}" for i in range(k)]
    defaults = {"eligible": tuple(ids), "call_size": k, "policy": "persistent"}
    fields = defaults | options
    fields |= {"relay_key": BOARD.public.verify_key, "run": RUN}
    voters = tuple(POOL[c].public for c in ids)
    return Registry(zone=zone, voters=voters, fault_model=fault_model, **fields)


def electors_of(registry, **options):
    return {
        voter.client_id: Elector(POOL[voter.client_id], registry, **options)
        for voter in registry.voters
    }


def call_of(registry, round_number=0, **options):
    return Call(registry.digest, round_number, **options)


def setup_of(registry, **options):
    call = call_of(registry, **options)
    ids = tuple(voter.client_id for voter in registry.voters)
    return Setup(registry, call, ids)


def hold(registry, *, electors=None, stops=None, meter=None, **options):
    electors = electors_of(registry) if electors is None else electors
    call = call_of(registry, **options)
    return run_election(registry, call, electors, relay=BOARD, stops=stops, meter=meter)


def dealt(registry, electors=None, **options):
    """A relay, its electors and their dealings; none is received yet."""
    electors = electors_of(registry) if electors is None else electors
    relay = Relay(registry, call_of(registry, **options), BOARD)
    for elector in electors.values():
        relay.receive(elector.attend(relay.call, relay.call.round_number))
    roll = relay.roll()
    return relay, electors, {c: e.deal(roll) for c, e in electors.items()}


def certified(registry, electors=None, **options) -> tuple[Relay, dict, Certificate]:
    """A relay and electors up to the certificate; all clients honest."""
    relay, electors, dealings = dealt(registry, electors, **options)
    for dealing in dealings.values():
        relay.receive(dealing)
    ballot = relay.propose()
    for elector in electors.values():
        relay.receive(elector.confirm(ballot))
    return relay, electors, relay.certify()
