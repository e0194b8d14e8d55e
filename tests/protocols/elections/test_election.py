import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.protocols.elections import ballots, election, electorate, pvss, transcripts
from tff_hdp.protocols.elections import ristretto as group
from tff_hdp.protocols.elections.election import Elector, Relay
from tff_hdp.protocols.elections.election_round import RELAY, run_election
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Identity,
    setup_election,
)
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.protocols.meter import Meter

POOL = {f"c{i}": Identity(f"c{i}") for i in range(7)}


def make_setup(k=4, fault_model="byzantine", session="zone 0, round 0", **options):
    voters = [POOL[f"c{i}"].public for i in range(k)]
    return setup_election(
        session=session, voters=voters, fault_model=fault_model, **options
    )


def certified(setup):
    """A relay and electors up to the certificate; all clients honest."""
    relay = Relay(setup)
    electors = [Elector(setup, POOL[v.client_id]) for v in setup.voters]
    for elector in electors:
        relay.receive(elector.deal())
    ballot = relay.propose()
    for elector in electors:
        relay.receive(elector.confirm(ballot))
    return relay, electors, relay.certify()


@pytest.mark.parametrize("k", range(1, 40))
def test_thresholds_are_the_papers(k):
    crash = [f for f in range(k) if f < (k - 1) / 2]
    byzantine = [f for f in range(k) if f <= (k - 1) / 3]
    assert electorate.max_faulty(k, "crash") == max(crash, default=0)
    assert electorate.max_faulty(k, "byzantine") == max(byzantine)


@pytest.mark.parametrize("fault_model", ["crash", "byzantine"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_an_election_ends_and_anyone_can_check_it(k, fault_model):
    setup = make_setup(k, fault_model)
    meter = Meter(RELAY)
    winner, transcript = run_election(setup, POOL, meter=meter)
    assert winner in setup.candidates
    assert transcript.verify() == winner
    again = Transcript.from_json(transcript.to_json())
    assert again == transcript
    assert again.verify() == winner
    # Dealing, ballot, confirmation, certificate, reveal, and f + 1 reveals back.
    enough = setup.faulty + 1
    assert len(transcript.ballot.dealings) == len(transcript.reveals) == enough
    assert meter.summary()["messages"] == 5 * k + k * enough
    sent = sum(cost.sent_bytes for cost in meter.parties.values())
    received = sum(cost.received_bytes for cost in meter.parties.values())
    assert sent == received > 0


def test_withholding_reveals_changes_nothing():
    setup = make_setup(5, "crash", faulty=1)
    _, electors, certificate = certified(setup)
    reveals = [elector.reveal(certificate) for elector in electors]
    winners = {
        electors[0].conclude(subset)
        for size in (2, 3, 5)
        for subset in itertools.combinations(reveals, size)
    }
    assert len(winners) == 1
    with pytest.raises(BeyondThresholdError, match=r"1 reveals; .* 2 are needed"):
        electors[0].conclude(reveals[:1])


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_tolerated_stops_are_survived_and_others_refused(data):
    fault_model = data.draw(st.sampled_from(["crash", "byzantine"]))
    setup = make_setup(5, fault_model)
    phases = st.sampled_from(["deal", "confirm", "reveal"])
    stops = data.draw(st.dictionaries(st.sampled_from(setup.candidates), phases))
    if len(stops) <= setup.faulty:
        winner, transcript = run_election(setup, POOL, stops=stops)
        assert transcript.verify() == winner
    else:
        with pytest.raises(BeyondThresholdError, match=r"of 5 voters .* must"):
            run_election(setup, POOL, stops=stops)


class Adversary(Elector):
    """Always contributes the same polynomial, whatever others do."""

    def __init__(self, setup, identity):
        super().__init__(setup, identity, random=lambda: 7)


def frequencies(elections, monkeypatch):
    # Proofs decide whether an election stands, not who wins; checking them is
    # nine tenths of the time and tested apart.
    for module in (election, transcripts):
        monkeypatch.setattr(module, "dealings_hold", lambda *_: True)
        monkeypatch.setattr(module, "reveals_hold", lambda *_: True)
    counts = dict.fromkeys(["c0", "c1", "c2", "c3"], 0)
    for number in range(elections):
        # One of four is faulty: it contributes a constant and withholds its
        # reveal.
        setup = make_setup(4, session=f"election {number}")
        winner, _ = run_election(
            setup,
            POOL,
            stops={"c3": "reveal"},
            elector=lambda setup, identity: (
                Adversary if identity.client_id == "c3" else Elector
            )(setup, identity),
        )
        counts[winner] += 1
    return list(counts.values())


def test_everyone_is_equally_likely_despite_an_adversary(monkeypatch):
    assert scipy.stats.chisquare(frequencies(80, monkeypatch)).pvalue > 1e-4


@pytest.mark.slow
def test_everyone_is_equally_likely_in_many_elections(monkeypatch):
    assert scipy.stats.chisquare(frequencies(1000, monkeypatch)).pvalue > 1e-4


def test_the_draw_is_uniform_over_recovered_secrets():
    # The winner is a function of one uniform group element; sample those.
    setup = make_setup(4)
    rng = np.random.default_rng(5)
    counts = dict.fromkeys(setup.candidates, 0)
    for _ in range(2000):
        secret = group.multiply(int(rng.integers(2**62)), group.GENERATOR)
        counts[transcripts.draw(setup, bytes(32), secret)] += 1
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_only_the_capable_are_elected():
    capability = {f"c{i}": float(i) for i in range(4)}
    setup = make_setup(4, capability=capability, min_capability=2.0)
    assert setup.candidates == ("c2", "c3")
    assert run_election(setup, POOL)[0] in ("c2", "c3")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make_setup(4, "byzantine", faulty=2), "allowed is 0..1"),
        (lambda: make_setup(5, "crash", faulty=2), "faulty is 2; with 5 voters"),
        (lambda: make_setup(4, "lazy"), "fault_model is 'lazy'"),
        (lambda: make_setup(0), "voters is 0"),
        (
            lambda: make_setup(2, capability={"c0": 1.0}, min_capability=1.0),
            "capability lacks client 'c1'",
        ),
        (
            lambda: make_setup(
                2, capability={"c0": 1.0, "c1": 0.0}, min_capability=2.0
            ),
            "no online client .* reaches min_capability 2.0",
        ),
        (
            lambda: setup_election(session="s", voters=[POOL["c0"].public] * 2),
            "voters hold 'c0' twice",
        ),
        (
            lambda: setup_election(
                session="s",
                voters=[dataclasses.replace(POOL["c0"].public, share_key=bytes(32))],
            ),
            "share_key of 'c0' is the identity",
        ),
        (
            lambda: electorate.Setup("s", (POOL["c0"].public,), ("c9",), 0, "crash"),
            "candidates names 'c9'",
        ),
        (lambda: Elector(make_setup(2), POOL["c5"]), "'c5' is no voter"),
        (lambda: Elector(make_setup(2), Identity("c0")), "keys of 'c0' are not"),
    ],
)
def test_impossible_elections_are_refused(build, message):
    with pytest.raises(ElectionError, match=message):
        build()


def test_a_bad_message_is_refused_and_leaves_the_election_intact():
    setup = make_setup(4)
    relay = Relay(setup)
    electors = [Elector(setup, POOL[c]) for c in setup.candidates]
    dealings = [elector.deal() for elector in electors]
    other = Elector(make_setup(4, session="zone 0, round 1"), POOL["c0"]).deal()
    stranger = ballots.sign(dataclasses.replace(dealings[0], sender="c6"), POOL["c6"])
    forged = dataclasses.replace(dealings[0], signature=dealings[1].signature)
    relay.receive(dealings[1])
    for bad, message in [
        (other, "'c0' belongs to another election"),
        (stranger, "'c6' is no voter"),
        (forged, "dealing of 'c0' bears a wrong signature"),
        (dealings[1], "'c1' sent more than one dealing"),
        (
            ballots.Confirmation(setup.digest, "c0", bytes(32)),
            "confirmation of 'c0' came in phase 'deal'",
        ),
    ]:
        with pytest.raises(ElectionError, match=message):
            relay.receive(bad)
    for dealing in (dealings[0], *dealings[2:]):
        relay.receive(dealing)
    ballot = relay.propose()
    assert relay.rejected == {}
    for elector in electors:
        relay.receive(elector.confirm(ballot))
    certificate = relay.certify()
    reveals = [elector.reveal(certificate) for elector in electors]
    with pytest.raises(ElectionError, match="dealing of 'c0' came in phase 'reveal'"):
        relay.receive(dealings[0])
    for reveal in reveals:
        relay.receive(reveal)
    assert relay.finish().verify() in setup.candidates


def test_unsound_dealings_and_reveals_are_dropped_and_named():
    setup = make_setup(4)
    relay = Relay(setup)
    electors = [Elector(setup, POOL[c]) for c in setup.candidates]
    dealings = [elector.deal() for elector in electors]
    # c3 passes off c0's dealing as its own: the proof names its dealer.
    stolen = ballots.sign(dataclasses.replace(dealings[0], sender="c3"), POOL["c3"])
    for dealing in (*dealings[:3], stolen):
        relay.receive(dealing)
    ballot = relay.propose()
    assert relay.rejected == {"c3": "the proof of its dealing fails"}
    assert [d.sender for d in ballot.dealings] == ["c0", "c1"]
    for elector in electors:
        relay.receive(elector.confirm(ballot))
    certificate = relay.certify()
    *good, last = [elector.reveal(certificate) for elector in electors]
    wrong = ballots.sign(dataclasses.replace(last, share=good[0].share), POOL["c3"])
    for reveal in (*good, wrong):
        relay.receive(reveal)
    transcript = relay.finish()
    assert relay.rejected["c3"] == "the proof of its reveal fails"
    assert transcript.verify() == electors[0].conclude(good)
    with pytest.raises(ElectionError, match=r"\['c3'\] revealed wrong shares"):
        electors[0].conclude([*good, wrong])


def test_too_many_unsound_dealings_end_the_election():
    setup = make_setup(4)
    relay = Relay(setup)
    for client in setup.candidates:
        dealing = Elector(setup, POOL[client]).deal()
        if client in ("c2", "c3"):
            dealing = dataclasses.replace(dealing, shares=dealing.shares[::-1])
            dealing = ballots.sign(dealing, POOL[client])
        relay.receive(dealing)
    with pytest.raises(BeyondThresholdError, match="2 of 4 voters dealt; with at most"):
        relay.propose()


def test_a_cheating_relay_gets_no_second_ballot():
    setup = make_setup(4)
    dealings = [Elector(setup, POOL[c]).deal() for c in setup.candidates]
    first = ballots.Ballot(setup.digest, tuple(dealings))
    second = ballots.Ballot(setup.digest, tuple(dealings[1:]))
    electors = [Elector(setup, POOL[c]) for c in setup.candidates]
    words = [
        e.confirm(b)
        for e, b in zip(electors, [first, first, second, second], strict=True)
    ]
    with pytest.raises(ElectionError, match="'c0' has confirmed a ballot already"):
        electors[0].confirm(second)
    # No quorum of 3 for either, however the relay mixes what it was given.
    for chosen in ([words[0], words[1]], words[:3], [words[0], words[1], words[1]]):
        certificate = ballots.Certificate(setup.digest, tuple(chosen))
        with pytest.raises(ElectionError):
            electors[0].reveal(certificate)
    few = ballots.Ballot(setup.digest, tuple(dealings[3:]))
    with pytest.raises(BeyondThresholdError, match=r"1 dealings; .* 2 are needed"):
        Elector(setup, POOL["c0"]).confirm(few)


def test_each_step_is_taken_once_and_in_order():
    setup = make_setup(2)
    elector = Elector(setup, POOL["c0"])
    with pytest.raises(ElectionError, match="has confirmed no ballot"):
        elector.reveal(ballots.Certificate(setup.digest, ()))
    with pytest.raises(ElectionError, match="has not revealed yet"):
        elector.conclude([])
    elector.deal()
    with pytest.raises(ElectionError, match="has dealt already"):
        elector.deal()
    _, electors, certificate = certified(setup)
    electors[0].reveal(certificate)
    with pytest.raises(ElectionError, match="has revealed already"):
        electors[0].reveal(certificate)
    with pytest.raises(ElectionError, match="phase is 'deal'; this belongs to"):
        Relay(setup).finish()


def tamperings(transcript):
    """The transcript with one thing changed, for every kind of thing."""
    replace = dataclasses.replace
    setup, ballot, certificate = (
        transcript.setup,
        transcript.ballot,
        transcript.certificate,
    )
    yield replace(transcript, setup=replace(setup, session="another"))
    yield replace(transcript, setup=replace(setup, candidates=setup.candidates[1:]))
    yield replace(transcript, setup=replace(setup, faulty=0))
    yield replace(transcript, setup=replace(setup, voters=setup.voters[::-1]))
    yield replace(transcript, ballot=replace(ballot, dealings=ballot.dealings[1:]))
    for field in ("shares", "commitments", "responses"):
        first, *rest = ballot.dealings
        items = getattr(first, field)
        changed = replace(first, **{field: (items[0][::-1], *items[1:])})
        yield replace(transcript, ballot=replace(ballot, dealings=(changed, *rest)))
    words = certificate.confirmations
    yield replace(transcript, ballot=replace(ballot, setup=bytes(32)))
    yield replace(transcript, certificate=replace(certificate, setup=bytes(32)))
    yield replace(transcript, certificate=replace(certificate, confirmations=words[1:]))
    yield replace(transcript, reveals=transcript.reveals[:1])
    first, *rest = transcript.reveals
    yield replace(transcript, reveals=(first, first, *rest[1:]))
    for field in ("share", "response", "signature", "ballot"):
        changed = replace(first, **{field: getattr(first, field)[::-1]})
        yield replace(transcript, reveals=(changed, *rest))


def test_a_tampered_transcript_fails_verification():
    # One client is silent, so that no message can be spared.
    _, transcript = run_election(make_setup(4), POOL, stops={"c2": "deal"})
    count = 0
    for changed in tamperings(transcript):
        with pytest.raises(ElectionError):
            changed.verify()
        count += 1
    assert count == 17


@pytest.mark.parametrize("text", ["", "{}", '{"transcript": "AAAA"}', "[]"])
def test_what_is_no_transcript_is_refused(text):
    with pytest.raises(ElectionError, match="no transcript"):
        Transcript.from_json(text)


def test_scalars_are_in_range():
    assert all(0 <= pvss.random_scalar() < group.ORDER for _ in range(100))
