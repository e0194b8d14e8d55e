import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.elections.zones import (
    BOARD,
    POOL,
    call_of,
    certified,
    dealt,
    electors_of,
    hold,
    registry_of,
    setup_of,
)
from tff_hdp.protocols.elections import ballots, electorate, group, relay, transcripts
from tff_hdp.protocols.elections.ballots import Ballot, Certificate, Outcome
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.electorate import (
    RELAY,
    BeyondThresholdError,
    ElectionError,
    Identity,
    Registry,
    eligible_clients,
)
from tff_hdp.protocols.elections.setup import Setup
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.protocols.meter import Meter


@pytest.mark.parametrize("k", range(1, 40))
def test_thresholds_are_the_papers(k):
    crash = [f for f in range(k) if f < (k - 1) / 2]
    byzantine = [f for f in range(k) if f <= (k - 1) / 3]
    assert electorate.max_faulty(k, "crash") == max(crash, default=0)
    assert electorate.max_faulty(k, "byzantine") == max(byzantine)


@pytest.mark.parametrize("fault_model", ["crash", "byzantine"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_an_election_ends_and_anyone_can_check_it(k, fault_model):
    registry = registry_of(k, fault_model)
    meter = Meter(RELAY)
    winner, transcript = hold(registry, meter=meter)
    assert winner in registry.eligible
    assert transcript.verify(registry) == winner
    again = Transcript.from_text(transcript.to_text())
    assert again == transcript
    assert again.verify(registry) == winner
    # Call, presence, roll, dealing, ballot, confirmation, certificate, reveal, outcome.
    enough = electorate.max_faulty(k, fault_model) + 1
    assert len(transcript.dealings) == len(transcript.reveals) == enough
    assert len(transcript.confirmations) == k - enough + 1
    assert meter.summary()["messages"] == 9 * k
    sent = sum(cost.sent_bytes for cost in meter.parties.values())
    received = sum(cost.received_bytes for cost in meter.parties.values())
    assert sent == received > 0


def test_withholding_reveals_changes_nothing():
    registry = registry_of(5, "crash")
    relay, electors, certificate = certified(registry)
    reveals = [elector.reveal(certificate) for elector in electors.values()]
    digest = certificate.election
    for reveal in reveals:
        relay.receive(reveal)
    done = relay.finish()
    winners = set()
    subsets = itertools.combinations(reveals, 2)
    for elector, subset in zip(electors.values(), subsets, strict=False):
        with pytest.raises(BeyondThresholdError, match=r"1 of 5 voters revealed; .* 2"):
            elector.conclude(Outcome(digest, subset[:1], b""))
        with pytest.raises(ElectionError, match="3 reveals; allowed are 2"):
            elector.conclude(Outcome(digest, tuple(reveals[:3]), b""))
        other = dataclasses.replace(done, reveals=subset).sealed(BOARD)
        winners.add(elector.conclude(Outcome(digest, subset, other.seal)))
    assert len(winners) == 1


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_tolerated_stops_are_survived_and_others_refused(data):
    registry = registry_of(5, data.draw(st.sampled_from(["crash", "byzantine"])))
    phases = st.sampled_from(["deal", "confirm", "reveal"])
    stops = data.draw(st.dictionaries(st.sampled_from(registry.eligible), phases))
    before = sum(phase != "reveal" for phase in stops.values())
    # Of a confirmed ballot any f + 1 shares give the winner.
    if before <= 1 and len(stops) <= 3:
        winner, transcript = hold(registry, stops=stops)
        assert transcript.verify(registry) == winner
        return
    with pytest.raises(BeyondThresholdError, match=r"of 5 voters .* must") as refused:
        hold(registry, stops=stops)
    (transcript,) = refused.value.transcripts
    assert transcript.phase in stops.values()
    assert transcript.verify(registry) is None
    assert Transcript.from_text(transcript.to_text()) == transcript


class Adversary(Elector):
    """Always contributes the same polynomial, whatever others do."""

    def _scalars(self, *message):
        del message
        return lambda: 7


def frequencies(elections, monkeypatch):
    # Proofs decide whether an election stands, not who wins; checking them is
    # nine tenths of the time and tested apart.
    for module in (relay, transcripts):
        monkeypatch.setattr(module, "dealing_holds", lambda *_: True)
        monkeypatch.setattr(module, "reveal_holds", lambda *_: True)
    counts = dict.fromkeys(["c0", "c1", "c2", "c3"], 0)
    for number in range(elections):
        # One of four is faulty: it contributes a constant and withholds its
        # reveal.
        registry = registry_of(4)
        electors = electors_of(registry) | {"c3": Adversary(POOL["c3"], registry)}
        winner, _ = hold(
            registry, round_number=number, electors=electors, stops={"c3": "reveal"}
        )
        counts[winner] += 1
    return list(counts.values())


def test_everyone_is_equally_likely_despite_an_adversary(monkeypatch):
    assert scipy.stats.chisquare(frequencies(40, monkeypatch)).pvalue > 1e-4


@pytest.mark.slow
def test_everyone_is_equally_likely_in_many_elections(monkeypatch):
    assert scipy.stats.chisquare(frequencies(1000, monkeypatch)).pvalue > 1e-4


def test_the_draw_is_uniform_over_recovered_secrets():
    # The winner is a function of one uniform group element; sample those.
    setup = setup_of(registry_of(4))
    rng = np.random.default_rng(5)
    counts = dict.fromkeys(setup.candidates, 0)
    for _ in range(2000):
        secret = group.backend.multiply_generator(int(rng.integers(2**62)))
        counts[transcripts.draw(setup, bytes(32), secret)] += 1
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_only_the_capable_are_elected():
    capability = {f"c{i}": float(i) for i in range(4)}
    eligible = eligible_clients(
        list(capability), capability=capability, min_capability=2.0
    )
    assert eligible == ("c2", "c3")
    winner, _ = hold(registry_of(4, eligible=eligible))
    assert winner in eligible


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Elector(POOL["c5"], registry_of(2)), "'c5' is no client of zone 0"),
        (lambda: Elector(Identity("c0"), registry_of(2)), "keys of 'c0' are not"),
        (lambda: setup_of(registry_of(2, eligible=())), "no online client is eligible"),
        (
            lambda: Setup(registry_of(2), call_of(registry_of(2)), ()),
            "has no client online",
        ),
        (
            lambda: Setup(registry_of(2), call_of(registry_of(3)), ("c0", "c1")),
            "zone 0, round 0, attempt 0 is called by another registry",
        ),
        (
            lambda: Setup(registry_of(2), call_of(registry_of(2)), ("c1", "c0")),
            "each once and in order",
        ),
        (
            lambda: Setup(registry_of(2), call_of(registry_of(2)), ("c0", "c0")),
            "each once and in order",
        ),
        (lambda: setup_of(registry_of(3), failed=("c1",)), "each once and in order"),
    ],
)
def test_impossible_elections_are_refused(build, message):
    with pytest.raises(ElectionError, match=message):
        build()


@pytest.mark.parametrize(("k", "fault_model"), [(4, "byzantine"), (7, "crash")])
def test_no_more_may_be_absent_than_may_be_faulty(k, fault_model):
    registry = registry_of(k, fault_model)
    f = electorate.max_faulty(k, fault_model)
    ids = registry.eligible
    call = call_of(registry)
    assert Setup(registry, call, ids[f:]).voters
    with pytest.raises(BeyondThresholdError, match=f"{f + 1} of {k} called are absent"):
        Setup(registry, call, ids[f + 1 :])
    # Who has failed is known by the transcripts, and not counted among them.
    call = call_of(registry, failed=ids[:1])
    assert Setup(registry, call, ids[f + 1 :]).voters


def test_whom_a_round_calls_leaves_nobody_a_choice():
    registry = registry_of(7, call_size=3)
    called = [registry.called(r) for r in range(400)]
    assert called == [registry_of(7, call_size=3).called(r) for r in range(400)]
    assert called != [registry_of(7, call_size=3, zone=1).called(r) for r in range(400)]
    counts = np.zeros(7)
    for some in called:
        assert len(set(some)) == 3
        assert list(some) == sorted(some)
        counts[[int(client[1:]) for client in some]] += 1
    # Drawing three of seven without replacement varies less than chance with.
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_registry_comes_back_from_its_fields():
    registry = registry_of(4, eligible=("c1", "c2"), call_size=3)
    assert Registry.from_fields(registry.to_fields()) == registry
    whole = registry.to_fields()
    for spoiled in (
        *({}, {"voters": 3}, whole | {"call_size": 9}),
        *(whole | {name: True} for name in ("zone", "call_size")),
    ):
        with pytest.raises(ElectionError, match="no registry"):
            Registry.from_fields(spoiled)


def test_a_bad_message_is_refused_and_leaves_the_election_intact():
    registry = registry_of(4)
    relay, electors, dealings = dealt(registry)
    other = dealt(registry, round_number=1)[2]["c0"]
    unknown = ballots.sign(dataclasses.replace(other, sender="c6"), POOL["c6"])
    forged = dataclasses.replace(dealings["c0"], signature=dealings["c1"].signature)
    relay.receive(dealings["c1"])
    for bad, message in [
        (other, "dealing of 'c0' is of another election"),
        (unknown, "'c6' is no client of zone 0"),
        (forged, "dealing of 'c0' bears a wrong signature"),
        (dealings["c1"], "'c1' sent more than one dealing"),
        (
            ballots.Confirmation(other.election, "c0", bytes(32)),
            "confirmation of 'c0' came in phase 'deal'",
        ),
    ]:
        with pytest.raises(ElectionError, match=message):
            relay.receive(bad)
    for client in ("c0", "c2", "c3"):
        relay.receive(dealings[client])
    ballot = relay.propose()
    assert relay.rejected == {}
    for elector in electors.values():
        relay.receive(elector.confirm(ballot))
    certificate = relay.certify()
    with pytest.raises(ElectionError, match="dealing of 'c0' came in phase 'reveal'"):
        relay.receive(dealings["c0"])
    for elector in electors.values():
        relay.receive(elector.reveal(certificate))
    assert relay.finish().verify(registry) in registry.eligible


def test_unsound_dealings_and_reveals_are_dropped_and_named():
    registry = registry_of(4)
    relay, electors, dealings = dealt(registry)
    # c1 passes off c0's dealing as its own: the proof names its dealer.
    stolen = ballots.sign(
        dataclasses.replace(dealings["c0"], sender="c1", signature=b""), POOL["c1"]
    )
    for dealing in (dealings["c0"], stolen, dealings["c2"], dealings["c3"]):
        relay.receive(dealing)
    ballot = relay.propose()
    assert relay.rejected == {"c1": "the proof of its dealing fails"}
    assert [d.sender for d in ballot.dealings] == ["c0", "c2"]
    for elector in electors.values():
        relay.receive(elector.confirm(ballot))
    certificate = relay.certify()
    reveals = {c: e.reveal(certificate) for c, e in electors.items()}
    wrong = ballots.sign(
        dataclasses.replace(reveals["c0"], share=reveals["c1"].share, signature=b""),
        POOL["c0"],
    )
    for reveal in (wrong, reveals["c2"], reveals["c3"]):
        relay.receive(reveal)
    transcript = relay.finish()
    assert relay.rejected["c0"] == "the proof of its reveal fails"
    assert [r.sender for r in transcript.reveals] == ["c2", "c3"]
    digest = certificate.election
    with pytest.raises(ElectionError, match=r"\['c0'\] revealed wrong shares"):
        electors["c1"].conclude(Outcome(digest, (wrong, reveals["c2"]), b""))
    with pytest.raises(ElectionError, match=r"transcript .* wrong signature"):
        electors["c1"].conclude(Outcome(digest, transcript.reveals, b""))
    outcome = relay.outcome(transcript)
    assert electors["c1"].conclude(outcome) == transcript.verify(registry)


def test_too_many_unsound_dealings_end_the_election():
    registry = registry_of(4)
    relay, _, dealings = dealt(registry)
    for client, dealing in dealings.items():
        if client in ("c2", "c3"):
            dealing = dataclasses.replace(
                dealing, shares=dealing.shares[::-1], signature=b""
            )
            dealing = ballots.sign(dealing, POOL[client])
        relay.receive(dealing)
    with pytest.raises(BeyondThresholdError, match="2 of 4 voters dealt; with at most"):
        relay.propose()


def test_a_cheating_relay_gets_no_second_ballot():
    registry = registry_of(4)
    _, electors, dealings = dealt(registry)
    c0, c1, c2, c3 = dealings.values()
    digest = c0.election
    first, second = Ballot(digest, (c0, c1)), Ballot(digest, (c2, c3))
    words = [
        elector.confirm(ballot)
        for elector, ballot in zip(
            electors.values(), [first, first, second, second], strict=True
        )
    ]
    with pytest.raises(ElectionError, match="'c0' has confirmed a ballot already"):
        electors["c0"].confirm(second)
    # No quorum of 3 for either, however the relay mixes what it was given.
    for chosen in ([words[0], words[1]], words[:3], [words[0], words[1], words[1]]):
        certificate = Certificate(digest, tuple(chosen))
        with pytest.raises(ElectionError):
            electors["c0"].reveal(certificate)
    _, electors, dealings = dealt(registry)
    few = Ballot(dealings["c3"].election, (dealings["c3"],))
    with pytest.raises(BeyondThresholdError, match=r"1 of 4 voters dealt; .* 2 must"):
        electors["c0"].confirm(few)


def test_each_step_is_taken_once_and_in_order():
    registry = registry_of(2)
    elector = electors_of(registry)["c0"]
    with pytest.raises(ElectionError, match="has not dealt yet"):
        elector.confirm(Ballot(b"", ()))
    with pytest.raises(ElectionError, match="has confirmed no ballot"):
        elector.reveal(Certificate(b"", ()))
    with pytest.raises(ElectionError, match="has not revealed yet"):
        elector.conclude(Outcome(b"", (), b""))
    relay, electors, certificate = certified(registry)
    electors["c0"].reveal(certificate)
    with pytest.raises(ElectionError, match="has revealed already"):
        electors["c0"].reveal(certificate)
    with pytest.raises(ElectionError, match="phase is 'reveal'; this belongs to 'dea"):
        relay.propose()
    relay, electors, _ = dealt(registry)
    with pytest.raises(ElectionError, match="attended no call, or has dealt"):
        electors["c0"].deal(ballots.Roll(relay.call, ()))
