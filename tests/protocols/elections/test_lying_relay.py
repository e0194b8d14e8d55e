"""A relay that lies, with as many accomplices as may be faulty."""

import dataclasses

import pytest

from tests.protocols.elections.zones import (
    BOARD,
    POOL,
    call_of,
    certified,
    dealt,
    electors_of,
    hold,
)
from tests.protocols.elections.zones import registry_of as zone_of
from tff_hdp.protocols.elections.ballots import (
    Ballot,
    Certificate,
    Presence,
    Roll,
    sign,
)
from tff_hdp.protocols.elections.chain import Chain
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Registry,
    Voter,
    max_faulty,
)
from tff_hdp.protocols.elections.relay import Relay
from tff_hdp.protocols.elections.setup import Call, Setup
from tff_hdp.protocols.elections.transcripts import Transcript


def registry_of(k, fault_model):
    ids = tuple(f"c{i}" for i in range(k))
    voters = tuple(Voter(c, c.encode(), b"") for c in ids)
    return Registry(0, voters, ids, fault_model, "persistent", k, b"", b"")


@pytest.mark.parametrize("fault_model", ["byzantine", "crash"])
@pytest.mark.parametrize("k", range(1, 20))
def test_whoever_is_absent_or_failed_the_faulty_never_are_enough(k, fault_model):
    """Losing presences or naming super-nodes as failed leaves no draw to liars."""
    registry = registry_of(k, fault_model)
    f = max_faulty(k, fault_model)
    ids = [voter.client_id for voter in registry.voters]
    liars = f if fault_model == "byzantine" else 0
    for failed in range(k):
        call = Call(registry.digest, 0, failed=tuple(ids[:failed]))
        for absent in range(min(f, k - failed - 1) + 1):
            present = tuple(ids[failed : k - absent])
            setup = Setup(registry, call, present)
            # f accomplices alone neither fill a ballot nor open it,
            assert setup.threshold > f
            # two ballots are not confirmed by what honest voters there are,
            assert 2 * setup.quorum - len(present) > liars
            # and f faults in all, failed super-nodes and absences included, are borne.
            if failed + absent <= f:
                acting = k - f
                assert setup.quorum <= acting
                assert setup.threshold <= acting


@pytest.mark.parametrize(("k", "friends"), [(4, ["c0"]), (7, ["c0", "c1"])])
def test_its_friends_alone_make_no_ballot(k, friends):
    """It loses as many honest presences as may be absent; 2f + 1 are left."""
    registry = zone_of(k)
    electors = electors_of(registry)
    call = call_of(registry)
    there = [f"c{i}" for i in range(k - len(friends))]
    roll = Roll(call, tuple(electors[c].attend(call, 0) for c in there))
    dealings = {c: electors[c].deal(roll) for c in there}
    setup = Setup(registry, call, tuple(there))
    ballot = Ballot(setup.digest, tuple(dealings[c] for c in friends))
    with pytest.raises(BeyondThresholdError, match=f"{len(friends)} of .* dealt"):
        electors[there[-1]].confirm(ballot)


def test_a_confirmation_it_does_not_tell_of_is_counted():
    """It has the quorum's, and so may know the winner, and says one is missing."""
    registry = zone_of(4)
    relay, electors, dealings = dealt(registry)
    for dealing in dealings.values():
        relay.receive(dealing)
    ballot = relay.propose()
    words = {c: electors[c].confirm(ballot) for c in ("c0", "c1", "c2")}
    setup = Setup(registry, relay.call, tuple(electors))
    certificate = Certificate(setup.digest, tuple(words.values()))
    for friend_and_one in ("c0", "c1"):
        electors[friend_and_one].reveal(certificate)
    told = Transcript(
        relay.call,
        "confirm",
        relay_presences(relay),
        ballot.dealings,
        (words["c1"], words["c2"]),
    ).sealed(BOARD)
    chain = Chain(registry)
    assert chain.follow(told) is None
    assert (chain.refused, chain.unfinished) == (1, 1)


def relay_presences(relay: Relay):
    """Who the relay heard from, in order."""
    return relay._ordered(relay._ids, "attend")


def test_where_few_are_called_any_refusal_may_hide_a_winner():
    """Those who wait for the end are not called again, so absences cost it nothing."""
    registry = zone_of(7, policy="rotate", call_size=4)
    electors = electors_of(registry)
    called = registry.called(0)
    held = {c: electors[c] for c in called}
    relay, _, certificate = certified(registry, held)
    for elector in held.values():
        relay.receive(elector.reveal(certificate))
    done = relay.finish()
    told = Transcript(relay.call, "attend", done.presences[:2]).sealed(BOARD)
    chain = Chain(registry)
    assert chain.follow(told) is None
    assert (chain.refused, chain.unfinished) == (1, 1)
    # In another round enough are called that have confirmed nothing.
    again = next(r for r in range(1, 50) if len({*registry.called(r)} - {*called}) == 3)
    idle = {c: electors[c] for c in registry.called(again) if c not in called}
    for elector in idle.values():
        elector.follow(told, again)
    options = {"round_number": again, "previous": told.digest}
    winner, drawn = hold(registry, electors=idle, **options)
    assert chain.follow(drawn) == winner
    assert winner != done.verify(registry)


@pytest.mark.parametrize("stranger", ["c4", "c0"])
def test_who_is_not_awaited_cannot_cancel_an_election(stranger):
    """A client that is not called, and the super-node that was deposed."""
    registry = zone_of(5, call_size=4) if stranger == "c4" else zone_of(5)
    if stranger == "c4":
        number = next(r for r in range(50) if "c4" not in registry.called(r))
        call = call_of(registry, number)
    else:
        call = call_of(registry, failed=("c0",))
    relay = Relay(registry, call, BOARD)
    voice = Presence(call.digest, stranger)
    with pytest.raises(ElectionError, match=f"'{stranger}' is not called, or has fail"):
        relay.receive(sign(voice, POOL[stranger]))
    for client in call.awaited(registry):
        relay.receive(sign(Presence(call.digest, client), POOL[client]))
    assert len(relay.roll().presences) == 4


@pytest.mark.parametrize("told", ["reversed", "twice", "uncalled"])
def test_presences_that_are_none_refuse_no_election(told):
    registry = zone_of(5, call_size=4)
    number = next(r for r in range(50) if "c4" not in registry.called(r))
    call = call_of(registry, number)
    signed = [sign(Presence(call.digest, c), POOL[c]) for c in POOL if c < "c5"]
    *there, uncalled = signed
    said = {
        "reversed": there[::-1],
        "twice": [there[0], *there],
        "uncalled": [*there, uncalled],
    }[told]
    with pytest.raises(ElectionError, match="each once and in order"):
        Transcript(call, "attend", tuple(said)).sealed(BOARD).verify(registry)


def test_what_was_said_in_another_run_counts_in_none():
    """Keys outlive a run; its ballots, whose winner is known, do not."""
    registry = zone_of(4)
    relay, electors, certificate = certified(registry)
    for elector in electors.values():
        relay.receive(elector.reveal(certificate))
    done = relay.finish()
    assert Chain(registry).follow(done)
    other = dataclasses.replace(registry, run=bytes(16))
    with pytest.raises(ElectionError, match="called by another registry"):
        Chain(other).follow(done)
    with pytest.raises(ElectionError, match="called by another registry"):
        electors_of(other)["c0"].attend(relay.call, 0)


OTHER = bytes(32)
SAYING = ("deal", "confirm", "reveal")
# What it makes of three messages, helped by who sent the second, of those said in these
# phases; and why it is refused.
SPOILED = {
    "forged": (
        SAYING,
        lambda a, b, c: (a, sign(b, POOL["c6"]), c),
        "bears a wrong signature",
    ),
    "twice": (SAYING, lambda a, b, c: (a, a, c), "is repeated or misplaced"),
    "misplaced": (SAYING, lambda a, b, c: (b, a, c), "is repeated or misplaced"),
    "of a stranger": (
        SAYING,
        lambda a, b, c: (a, dataclasses.replace(b, sender="c9"), c),
        "'c9' is no voter",
    ),
    "of another election": (
        SAYING,
        lambda a, b, c: (a, resigned(b, election=OTHER), c),
        "is of another election",
    ),
    "of another ballot": (
        ("confirm", "reveal"),
        lambda a, b, c: (a, resigned(b, ballot=OTHER), c),
        "is of another ballot",
    ),
    "unsound": (
        ("deal", "reveal"),
        lambda a, b, c: (a, resigned(b, challenge=bytes(16)), c),
        "no sound sharings|revealed wrong shares",
    ),
}
each_lie = pytest.mark.parametrize(
    ("phase", "how"), [(phase, how) for how in SPOILED for phase in SPOILED[how][0]]
)


def resigned(message, **changes):
    """A message changed by the client that sends it."""
    return sign(dataclasses.replace(message, **changes), POOL[message.sender])


@pytest.fixture(scope="module")
def said():
    """An election's transcript, and all that was said in it, phase by phase."""
    registry = zone_of(7)
    relay, electors, dealings = dealt(registry)
    for dealing in dealings.values():
        relay.receive(dealing)
    ballot = relay.propose()
    words = [elector.confirm(ballot) for elector in electors.values()]
    for word in words:
        relay.receive(word)
    certificate = relay.certify()
    reveals = [elector.reveal(certificate) for elector in electors.values()]
    for reveal in reveals:
        relay.receive(reveal)
    spoken = {"deal": [*dealings.values()], "confirm": words, "reveal": reveals}
    return registry, relay.finish(), spoken


@each_lie
def test_what_clients_did_not_say_is_on_no_record(said, phase, how):
    """The relay seals that too few dealt, confirmed or revealed."""
    registry, done, spoken = said
    _, spoil, message = SPOILED[how]
    # Of three reveals there would be a winner.
    enough = 2 if phase == "reveal" else 3
    before = (done.dealings, done.confirmations)[: SAYING.index(phase)]

    def told(last):
        parts = (*before, last[:enough])
        return Transcript(done.call, phase, done.presences, *parts).sealed(BOARD)

    three = tuple(spoken[phase][:3])
    assert told(three).verify(registry) is None
    with pytest.raises(ElectionError, match=message):
        told(spoil(*three)).verify(registry)


@each_lie
def test_no_client_goes_on_with_what_others_did_not_say(phase, how):
    _, spoil, message = SPOILED[how]
    relay, electors, dealings = dealt(zone_of(7))
    last = electors["c6"]

    def act(step, shown, said_in, field):
        """A client's step, before which it may be shown what is spoiled."""
        if said_in == phase:
            first, second, third, *rest = getattr(shown, field)
            spoiled = {field: (*spoil(first, second, third), *rest)}
            with pytest.raises(ElectionError, match=message):
                step(dataclasses.replace(shown, **spoiled))
        return step(shown)

    for dealing in dealings.values():
        relay.receive(dealing)
    ballot = relay.propose()
    relay.receive(act(last.confirm, ballot, "deal", "dealings"))
    for client in list(electors)[:-1]:
        relay.receive(electors[client].confirm(ballot))
    certificate = relay.certify()
    relay.receive(act(last.reveal, certificate, "confirm", "confirmations"))
    for client in list(electors)[:-1]:
        relay.receive(electors[client].reveal(certificate))
    done = relay.finish()
    elected = act(last.conclude, relay.outcome(done), "reveal", "reveals")
    assert elected == done.verify(relay.registry)
