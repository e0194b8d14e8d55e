"""A relay that does not like a winner cannot elect again unseen."""

import dataclasses
import itertools

import pytest

from tests.protocols.elections.zones import (
    BOARD,
    call_of,
    certified,
    electors_of,
    hold,
    registry_of,
)
from tff_hdp.protocols.elections.ballots import Roll
from tff_hdp.protocols.elections.chain import Chain, Standing
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Registry,
)
from tff_hdp.protocols.elections.relay import Relay
from tff_hdp.protocols.elections.setup import NO_RECORD
from tff_hdp.protocols.elections.transcripts import Transcript

replace = dataclasses.replace


def revealed(registry, electors):
    """A relay that has all reveals, and what it may say of them."""
    relay, _, certificate = certified(registry, electors)
    reveals = [elector.reveal(certificate) for elector in electors.values()]
    for reveal in reveals:
        relay.receive(reveal)
    done = relay.finish()
    return done, tuple(reveals)


def test_a_call_that_died_with_its_relay_keeps_nobody_out_of_the_chain():
    registry = registry_of(7, policy="rotate", call_size=4)
    electors = electors_of(registry)
    lost = electors["c0"]
    dead = next(r for r in range(50) if "c0" in registry.called(r))
    after = next(r for r in range(dead, 50) if "c0" not in registry.called(r))
    back = next(r for r in range(after, 50) if "c0" in registry.called(r))
    lost.attend(call_of(registry, dead), dead)
    present = {c: electors[c] for c in registry.called(after)}
    _, done = hold(registry, electors=present, round_number=after)
    assert lost.follow(done, after) == done.verify(registry)
    assert lost.standing.head == done.digest
    lost.attend(call_of(registry, back, previous=done.digest), back)


def test_who_confirmed_a_ballot_votes_no_more_until_it_sees_the_end():
    registry = registry_of(4)
    electors = electors_of(registry)
    done, reveals = revealed(registry, electors)
    lost = replace(done, phase="reveal", reveals=()).sealed(BOARD)
    # All the relay can do with a winner it does not like: hold the election again,
    # under another name, or say that too few confirmed or revealed.
    for call in (
        call_of(registry),
        call_of(registry, failed=("c1",)),
        call_of(registry, round_number=1),
        call_of(registry, round_number=1, previous=lost.digest),
    ):
        for client, elector in electors.items():
            if client not in call.failed:
                with pytest.raises(ElectionError, match="has not seen how it ended"):
                    elector.attend(call, call.round_number)
    assert lost.verify(registry) is None
    unconfirmed = replace(
        done, phase="confirm", confirmations=done.confirmations[:1], reveals=()
    ).sealed(BOARD)
    assert unconfirmed.verify(registry) is None
    for client, elector in electors.items():
        own = next(reveal for reveal in reveals if reveal.sender == client)
        for told in (lost, unconfirmed):
            if client != "c0" or told is lost:
                with pytest.raises(ElectionError, match=f"leaves out what '{client}'"):
                    elector.close(told)
        # Its own reveal is in, but a second one makes the winner known to all.
        seen = replace(lost, reveals=(own,)).sealed(BOARD)
        assert seen.verify(registry) is None
        with pytest.raises(ElectionError, match="enough"):
            replace(lost, reveals=reveals[:2]).sealed(BOARD).verify(registry)
        with pytest.raises(ElectionError, match="attends an election: it is closed"):
            elector.follow(done, 0)
        assert elector.close(done) == done.verify(registry)
        assert elector.standing.head == done.digest
        failed = (done.verify(registry),)
        if client not in failed:
            call = call_of(registry, 1, previous=done.digest, failed=failed)
            elector.attend(call, 1)


def test_a_relay_cannot_repeat_until_its_friend_wins():
    """The audit's attack: it sees reveals first, loses them and calls again."""
    registry = registry_of(4)
    electors = electors_of(registry)
    done, _ = revealed(registry, electors)
    friend = next(c for c in registry.eligible if c != done.verify(registry))
    for _ in range(5):
        relay = Relay(registry, call_of(registry, previous=NO_RECORD), BOARD)
        for elector in electors.values():
            with pytest.raises(ElectionError):
                relay.receive(elector.attend(relay.call, 0))
        with pytest.raises(ElectionError, match="no client online"):
            relay.roll()
    # Nor is a transcript of anybody else's making part of the chain.
    chain = Chain(registry)
    for _ in range(30):
        winner, other = hold(registry)
        if winner == friend:
            break
    assert chain.follow(done) != friend
    with pytest.raises(ElectionError, match="does not follow"):
        chain.follow(other)
    hidden = Chain(registry)
    hidden.follow(other)
    with pytest.raises(ElectionError, match="does not follow"):
        hidden.follow(done)


def test_who_shows_a_different_past_is_found_out():
    registry = registry_of(4, policy="rotate")
    electors = electors_of(registry)
    _, first = hold(registry, electors=electors)
    for previous in (NO_RECORD, bytes(31) + b"x"):
        for elector in electors.values():
            with pytest.raises(ElectionError, match="does not follow"):
                elector.attend(call_of(registry, 1, previous=previous), 1)
    _, second = hold(registry, electors=electors, round_number=1, previous=first.digest)
    chain = Chain(registry)
    for transcripts in itertools.permutations((first, second)):
        chain = Chain(registry)
        if transcripts == (first, second):
            assert [chain.follow(t) for t in transcripts]
        else:
            with pytest.raises(ElectionError, match="does not follow"):
                chain.follow(second)


def test_a_further_attempt_names_the_winner_it_replaces():
    registry = registry_of(4)
    electors = electors_of(registry)
    winner, first = hold(registry, electors=electors)
    other = next(c for c in registry.eligible if c != winner)
    options = {"previous": first.digest}

    def attempt(failed, round_number=0):
        # Clients that take the relay's word for what was before.
        fresh = electors_of(registry)
        there = {c: e for c, e in fresh.items() if c not in failed}
        return hold(
            registry,
            electors=there,
            round_number=round_number,
            failed=failed,
            **options,
        )[1]

    for failed in ((), (other,), (winner, other)):
        chain = Chain(registry)
        chain.follow(first)
        with pytest.raises(ElectionError, match="as failed; under 'persistent' it has"):
            chain.follow(attempt(failed))
        assert chain.standing.head == first.digest
    second = attempt((winner,))
    assert chain.follow(second) == second.verify(registry) != winner
    assert (chain.failures, chain.transcripts) == (1, 2)
    with pytest.raises(ElectionError, match="does not follow"):
        chain.follow(second)
    later = attempt((winner,), round_number=1)
    chain = Chain(registry)
    chain.follow(first)
    assert chain.follow(later) == later.verify(registry) != winner
    assert (chain.failures, chain.transcripts) == (1, 2)


@pytest.mark.parametrize(
    ("policy", "named", "free"),
    [("persistent", True, False), ("rotate", False, True)],
)
def test_whom_a_new_round_names_is_no_relays_choice(policy, named, free):
    registry = registry_of(4, policy=policy)
    electors = electors_of(registry)
    winner, first = hold(registry, electors=electors)
    other = next(c for c in registry.eligible if c != winner)
    for failed, allowed in (((), free), ((winner,), named), ((other,), False)):
        call = call_of(registry, 1, previous=first.digest, failed=failed)
        for client, elector in electors.items():
            if allowed and client not in failed:
                elector.attend(call, call.round_number)
                continue
            with pytest.raises(ElectionError, match=r"as failed; under|and has not"):
                elector.attend(call, call.round_number)


def test_under_persistent_a_relay_pays_for_every_draw_with_a_super_node():
    """An audit's attack: everybody is online, and a new round has a new election."""
    registry = registry_of(7)
    electors = electors_of(registry)
    winner, first = hold(registry, electors=electors)
    for number in range(1, 20):
        call = call_of(registry, number, previous=first.digest)
        for elector in electors.values():
            with pytest.raises(ElectionError, match=f"has to name \\['{winner}'\\]"):
                elector.attend(call, call.round_number)
    # Were they to attend, nobody who verifies would have it.
    fresh = electors_of(registry)
    _, second = hold(registry, electors=fresh, round_number=1, previous=first.digest)
    chain = Chain(registry)
    chain.follow(first)
    with pytest.raises(ElectionError, match=f"has to name \\['{winner}'\\]"):
        chain.follow(second)
    # What is left is to call it dead, before it and all the others.
    options = {"round_number": 1, "previous": first.digest, "failed": (winner,)}
    with pytest.raises(ElectionError, match=f"'{winner}' is said to have failed"):
        electors[winner].attend(call_of(registry, **options), 1)
    rest = {c: e for c, e in electors.items() if c != winner}
    _, third = hold(registry, electors=rest, **options)
    assert chain.follow(third) == third.verify(registry)
    assert chain.failures == 1


def test_the_policy_is_the_registrys():
    one, other = (registry_of(4, policy=p) for p in ("persistent", "rotate"))
    assert one.digest != other.digest
    assert Registry.from_fields(one.to_fields()) == one
    fields = one.to_fields()
    for policy, message in (("often", "policy is often"), (3, "policy is 3")):
        with pytest.raises(ElectionError, match=message):
            Registry.from_fields({**fields, "policy": policy})
    # As registries were written before they held one.
    del fields["policy"]
    with pytest.raises(ElectionError, match=r"^no registry: it lacks 'policy'$"):
        Registry.from_fields(fields)


def test_a_refusal_may_hide_a_winner_where_some_are_said_to_have_failed():
    """The relay has others to call in the next round, as where few are called."""
    registry = registry_of(4)
    electors = electors_of(registry)
    chain = Chain(registry)
    winner, first = hold(registry, electors=electors)
    chain.follow(first)
    rest = {c: e for c, e in electors.items() if c != winner}
    stops = dict.fromkeys(sorted(rest)[:2], "deal")
    options = {"previous": first.digest, "failed": (winner,)}
    with pytest.raises(BeyondThresholdError) as refused:
        hold(registry, electors=rest, stops=stops, **options)
    (second,) = refused.value.transcripts
    assert second.phase == "deal"
    assert chain.follow(second) is None
    assert (chain.refused, chain.unfinished, chain.failures) == (1, 1, 1)


def test_a_refusal_ends_the_round_and_is_counted():
    registry = registry_of(4)
    electors = electors_of(registry)
    stops = dict.fromkeys(("c1", "c2", "c3"), "reveal")
    with pytest.raises(BeyondThresholdError) as refused:
        hold(registry, electors=electors, stops=stops)
    (first,) = refused.value.transcripts
    # The one that stayed has been shown it and goes on from there.
    assert electors["c0"].standing == Standing(first.digest, 0)
    chain = Chain(registry)
    assert chain.follow(first) is None
    assert (chain.refused, chain.unfinished) == (1, 1)
    fresh = electors_of(registry)
    _, again = hold(registry, electors=fresh, previous=first.digest)
    with pytest.raises(ElectionError, match="comes after the round it belongs to"):
        chain.follow(again)
    fresh = electors_of(registry)
    _, later = hold(registry, electors=fresh, round_number=3, previous=first.digest)
    assert chain.follow(later) in registry.eligible


def test_a_roll_without_oneself_or_with_too_few_is_not_dealt_to():
    registry = registry_of(4)
    electors = electors_of(registry)
    call = call_of(registry)
    presences = tuple(
        elector.attend(call, call.round_number) for elector in electors.values()
    )
    with pytest.raises(ElectionError, match="'c0' is no voter"):
        electors["c0"].deal(Roll(call, presences[1:]))
    with pytest.raises(BeyondThresholdError, match="2 of 4 called are absent"):
        electors["c0"].deal(Roll(call, presences[:2]))
    forged = replace(presences[1], signature=presences[2].signature)
    with pytest.raises(ElectionError, match="presence of 'c1' bears a wrong"):
        electors["c0"].deal(Roll(call, (presences[0], forged, *presences[2:])))
    with pytest.raises(ElectionError, match="attended another call"):
        electors["c0"].deal(Roll(call_of(registry, 1), presences))
    electors["c0"].deal(Roll(call, presences))


def test_a_refused_transcript_of_another_call_closes_nothing():
    registry = registry_of(2)
    electors = electors_of(registry)
    electors["c0"].attend(call_of(registry), 0)
    with pytest.raises(ElectionError, match="attended another call"):
        electors["c0"].close(Transcript(call_of(registry, 1), "attend", ()))


def test_who_is_not_called_follows_what_it_is_shown():
    registry = registry_of(7, policy="rotate", call_size=4)
    electors = electors_of(registry)
    chain = Chain(registry)
    for number in range(12):
        head = chain.standing.head
        there = {c: electors[c] for c in registry.called(number)}
        winner, held = hold(
            registry, electors=there, round_number=number, previous=head
        )
        for client, elector in electors.items():
            if client not in there:
                assert elector.follow(held, number) == winner
        chain.follow(held)
        assert {e.standing for e in electors.values()} == {chain.standing}
    # Nor can it be shown a past that does not lead here.
    left_out = next(c for c in electors if c not in registry.called(12))
    with pytest.raises(ElectionError, match="does not follow"):
        electors[left_out].follow(held, 12)
    voter = electors[registry.called(12)[0]]
    voter.attend(call_of(registry, 12, previous=chain.standing.head), 12)
    with pytest.raises(ElectionError, match="does not follow"):
        voter.follow(held, 12)


def test_a_relay_does_not_choose_the_round():
    """It would hold the elections of rounds to come until its friend wins one."""
    registry = registry_of(4, policy="rotate")
    for client, elector in electors_of(registry).items():
        for told, now in ((1, 0), (0, 1), (10**6, 3)):
            with pytest.raises(ElectionError, match=f"is called in round {now}"):
                elector.attend(call_of(registry, told), now)
        assert elector.attend(call_of(registry), 0).sender == client


def test_a_relay_does_not_choose_a_round_that_calls_its_friends():
    """With two of seven it would fill a ballot, once none but these are called."""
    registry = registry_of(7, policy="rotate", call_size=2)
    friends = ("c0", "c1")
    chosen = next(r for r in range(1, 1000) if registry.called(r) == friends)
    electors = electors_of(registry)
    present = {c: electors[c] for c in friends}
    winner, held = hold(registry, electors=present, round_number=chosen)
    for elector in (e for c, e in electors.items() if c not in friends):
        with pytest.raises(ElectionError, match=f"is told of in round {chosen - 1}"):
            elector.follow(held, chosen - 1)
        assert elector.standing is None
        assert elector.follow(held, chosen) == winner
