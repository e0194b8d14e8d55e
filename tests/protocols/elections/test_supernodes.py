import json

import pytest
import scipy.stats

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.elections.chain import Chain
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Identity,
)
from tff_hdp.protocols.elections.supernodes import SuperNodes
from tff_hdp.topology import Zoning

ZONING = Zoning(tuple("abcdefg"), (0, 0, 0, 0, 1, 1, 1))


def simulated(seed=0, **options):
    return SuperNodes(
        ZONING, run_protocol=False, secret=seed.to_bytes(32, "little"), **options
    )


def test_a_super_node_stays_while_online_and_is_replaced_when_gone():
    nodes = SuperNodes(ZONING)
    first = nodes.seat(0, 0, "abcd")
    assert first.elected
    assert first.transcripts[-1].verify(nodes.registry(0)) == first.super_node
    assert first.costs["messages"] == 9 * 4
    kept = nodes.seat(0, 1, {first.super_node, "a"})
    assert (kept.super_node, kept.elected, kept.costs) == (first.super_node, False, {})
    rest = set("abcd") - {first.super_node}
    second = nodes.seat(0, 2, rest)
    assert second.elected
    assert second.super_node in rest
    assert second.transcripts[-1].call.name(0) == "zone 0, round 2, attempt 1"
    # Coming back does not restore the first to power.
    assert nodes.seat(0, 3, "abcd").super_node == second.super_node
    assert nodes.elections == 2


def test_a_client_cannot_have_the_relays_name():
    """Each other's messages would count as theirs."""
    zoning = Zoning(("relay", "b", "c", "d"), (0,) * 4)
    with pytest.raises(ArgumentError, match=r"^client_ids is relay; allowed: ids t"):
        SuperNodes(zoning).seat(0, 0, zoning.client_ids)
    # Where there is no relay, the name is as good as any.
    drawn = SuperNodes(zoning, run_protocol=False)
    assert drawn.seat(0, 0, zoning.client_ids).elected


def test_a_failed_super_node_is_replaced_within_the_round():
    nodes = SuperNodes(ZONING)
    failed = nodes.seat(1, 4, "efg").super_node
    nodes.dismiss(1)
    online = set("efg") - {failed}
    term = nodes.seat(1, 4, online)
    assert term.elected
    assert term.super_node in online
    assert term.transcripts[-1].call.name(1) == "zone 1, round 4, attempt 1"
    assert term.transcripts[-1].call.failed == (failed,)


@pytest.mark.parametrize("protocol", [True, False])
@pytest.mark.parametrize("how", ["left", "dismissed", "dismissed, then resumed"])
def test_who_led_before_a_new_round_is_named_as_failed(protocol, how):
    nodes = SuperNodes(ZONING, run_protocol=protocol, secret=bytes(32))
    before = nodes.seat(0, 0, "abcd")
    gone = before.super_node
    if how != "left":
        nodes.dismiss(0)
    if how == "dismissed, then resumed":
        saved = json.loads(json.dumps(nodes.state_dict()))
        nodes = SuperNodes(ZONING, run_protocol=protocol, secret=bytes(32))
        nodes.load_state_dict(saved)
    # Even if it is online again, it is out of this election.
    online = set("abcd") - ({gone} if how == "left" else set())
    after = nodes.seat(0, 5, online)
    assert after.elected
    assert after.super_node != gone
    if protocol:
        chain = Chain(nodes.registry(0))
        for transcript in (*before.transcripts, *after.transcripts):
            chain.follow(transcript)
        assert (chain.failures, chain.leader) == (1, after.super_node)


@pytest.mark.parametrize("protocol", [True, False])
def test_a_round_has_no_second_election_for_nothing(protocol):
    nodes = SuperNodes(ZONING, run_protocol=protocol, policy="rotate")
    first = nodes.seat(0, 3, "abcd")
    again = nodes.seat(0, 3, "abcd")
    assert (again.super_node, again.elected) == (first.super_node, False)
    with pytest.raises(BeyondThresholdError):
        nodes.seat(0, 4, "abcd", stops={"a": "deal", "b": "deal"})
    with pytest.raises(ElectionError, match="comes after the round it belongs to"):
        nodes.seat(0, 4, "abcd")


def test_a_refused_election_leaves_the_zone_without_super_node():
    nodes = SuperNodes(ZONING)
    with pytest.raises(BeyondThresholdError, match="zone 0, round 0"):
        nodes.seat(0, 0, "abcd", stops={"a": "deal", "b": "confirm"})
    assert nodes.incumbent(0) is None
    assert nodes.elections == 0
    assert nodes.seat(0, 1, "abcd").elected


def test_a_winner_that_went_silent_is_replaced_by_those_still_there():
    repeated = 0
    for seed in range(40):
        nodes = simulated(seed)
        term = nodes.seat(0, 0, "abcd", stops={"b": "reveal"})
        assert term.super_node in set("acd")
        repeated += nodes.elections == 2
    # b wins the first election one time in four.
    assert 2 <= repeated <= 22


def test_the_costs_of_a_repeated_election_add_up():
    for round_number in range(60):
        nodes = SuperNodes(ZONING)
        term = nodes.seat(0, round_number, "abcd", stops={"b": "reveal"})
        # With b silent from its reveal on: 6 exchanges of 4 and 3 of 3; then an
        # election of three.
        first, second = 6 * 4 + 3 * 3, 9 * 3
        if nodes.elections == 2:
            assert term.costs["messages"] == first + second
            names = [transcript.call.name(0) for transcript in term.transcripts]
            assert [name[-1] for name in names] == ["0", "1"]
            chain = Chain(nodes.registry(0))
            assert [chain.follow(t) for t in term.transcripts] == ["b", term.super_node]
            assert (chain.failures, chain.refused) == (1, 0)
            return
        assert term.costs["messages"] == first
    raise AssertionError("b was not elected in 60 elections of four")


def test_who_is_offline_cannot_also_stop_half_way():
    gone = {"e": "deal", "f": "deal", "d": "deal"}
    for nodes in (simulated(), SuperNodes(ZONING)):
        assert nodes.seat(0, 0, "abc", stops=gone).super_node in set("abc")


@pytest.mark.parametrize(
    ("stops", "unsound", "message"),
    [
        ({"a": "deal", "b": "deal"}, "", "2 of 4 voters dealt; .* 3 must"),
        ({"a": "deal"}, "b", "2 of 4 voters dealt; .* 3 must"),
        ({"a": "deal", "b": "confirm"}, "", "2 of 4 voters confirmed; .* 3 must"),
        (dict.fromkeys("abc", "reveal"), "", "1 of 4 voters revealed; .* 2 must"),
        (dict.fromkeys("bc", "reveal"), "a", "1 of 4 voters revealed; .* 2 must"),
        (dict.fromkeys("c", "reveal"), "", None),
        ({"a": "confirm"}, "a", None),
    ],
)
def test_a_simulated_draw_refuses_what_the_protocol_refuses(stops, unsound, message):
    for nodes in (simulated(), SuperNodes(ZONING)):
        if message is None:
            assert nodes.seat(0, 0, "abcd", stops=stops, unsound=unsound).elected
            continue
        with pytest.raises(BeyondThresholdError, match=message):
            nodes.seat(0, 0, "abcd", stops=stops, unsound=unsound)


def test_absent_clients_are_refused_alike():
    for nodes in (simulated(), SuperNodes(ZONING)):
        with pytest.raises(BeyondThresholdError, match="2 of 4 called are absent"):
            nodes.seat(0, 0, "ab")


@pytest.mark.parametrize("policy", ["persistent", "rotate"])
def test_who_leads_is_one_for_ever_or_anybody_alike(policy):
    nodes = simulated(policy=policy)
    seen = dict.fromkeys("abcdefg", 0)
    for round_number in range(300):
        for zone, members in enumerate(("abcd", "efg")):
            seen[nodes.seat(zone, round_number, members).super_node] += 1
    assert len(seen) == 7
    if policy == "persistent":
        assert nodes.elections == 2
        assert sorted(seen.values()) == [0] * 5 + [300] * 2
    else:
        assert nodes.elections == 600
        for members in ("abcd", "efg"):
            counts = [seen[c] for c in members]
            assert sum(counts) == 300
            assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_eligibility_holds_over_a_whole_run():
    capability = {c: float(i) for i, c in enumerate("abcdefg")}
    nodes = simulated(capability=capability, min_capability=2.0, policy="rotate")
    leaders = {nodes.seat(0, r, "abcd").super_node for r in range(60)}
    assert leaders == {"c", "d"}
    with pytest.raises(ElectionError, match="no online client"):
        nodes.seat(0, 60, "ab")


@pytest.mark.parametrize(
    ("online", "message"),
    [("abz", "online is z; allowed: clients of zone 0"), ("", "no client online")],
)
def test_bad_rounds_are_refused(online, message):
    with pytest.raises(ValueError, match=message):
        simulated().seat(0, 0, online)


@pytest.mark.parametrize("protocol", [True, False])
@pytest.mark.parametrize("phase", ["attend", "done", None])
def test_nobody_goes_silent_in_another_phase(protocol, phase):
    nodes = SuperNodes(ZONING, run_protocol=protocol)
    with pytest.raises(ArgumentError, match=r"stops is .*; allowed: deal, confirm"):
        nodes.seat(0, 0, "abcd", stops={"a": phase})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "forever"}, "policy is forever; allowed: persistent, rotate"),
        ({"fault_model": "rare"}, "fault_model is rare; allowed: crash, byzantine"),
        ({"call_size": 0}, "call_size is 0; allowed: a whole number >= 1"),
    ],
)
def test_other_options_are_refused_at_once(options, words):
    with pytest.raises(ArgumentError, match=words):
        SuperNodes(ZONING, **options)


def test_the_same_secret_holds_the_same_elections():
    """A round that is run again after a crash has the transcript it had."""
    terms = [
        SuperNodes(ZONING, secret=secret).seat(0, 3, "abcd")
        for secret in (bytes(32), bytes(32), b"x" * 32)
    ]
    texts = [term.transcripts[0].to_text() for term in terms]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_without_a_secret_two_runs_share_nothing():
    one, other = (SuperNodes(ZONING).registry(0) for _ in range(2))
    assert not set(one.voters) & set(other.voters)


def test_derived_keys_and_contributions_differ_between_clients_and_rounds():
    nodes = SuperNodes(ZONING, secret=bytes(32), policy="rotate")
    dealings = [
        dealing.shares
        for r in range(2)
        for dealing in nodes.seat(0, r, "abcd").transcripts[-1].dealings
    ]
    assert len(set(dealings)) == len(dealings)
    identities = [Identity(c, secret=bytes(32)).public for c in "ab"]
    assert identities[0].share_key != identities[1].share_key
    assert Identity("a").public != Identity("a").public


@pytest.mark.parametrize("protocol", [True, False])
def test_unsound_voters_are_withstood_up_to_the_threshold(protocol):
    nodes = SuperNodes(ZONING, run_protocol=protocol, secret=bytes(32))
    term = nodes.seat(0, 0, "abcd", unsound="b")
    assert term.super_node in set("abcd")
    if protocol:
        (transcript,) = term.transcripts
        assert transcript.verify(nodes.registry(0)) == term.super_node
        assert "b" not in {d.sender for d in transcript.dealings}
        assert "b" not in {r.sender for r in transcript.reveals}
    nodes = SuperNodes(ZONING, run_protocol=protocol, secret=bytes(32))
    with pytest.raises(BeyondThresholdError, match="2 of 4 voters"):
        nodes.seat(0, 1, "abcd", unsound="bc")


def test_a_state_that_was_saved_goes_on():
    nodes = simulated(3)
    whole = simulated(3)
    for round_number in range(8):
        online = set("abcd") - {"abcd"[round_number % 4]}
        nodes.seat(0, round_number, online)
        whole.seat(0, round_number, online)
        saved = json.loads(json.dumps(nodes.state_dict()))
        nodes = simulated(3)
        nodes.load_state_dict(saved)
    assert nodes.incumbent(0) == whole.incumbent(0)
    assert nodes.elections == whole.elections > 1
    nodes.load_state_dict({})
    assert nodes.incumbent(0) is None


@pytest.mark.parametrize("policy", ["persistent", "rotate"])
def test_the_elections_of_a_zone_form_one_chain(policy):
    nodes = SuperNodes(ZONING, secret=bytes(32), policy=policy)
    chain = Chain(nodes.registry(0))
    for r in range(5):
        held = []
        try:
            stops = dict.fromkeys("ab", "deal") if r == 2 else {}
            term = nodes.seat(0, r, "abcd", stops=stops)
            held += term.transcripts
            if r in (1, 3):
                nodes.dismiss(0)
                term = nodes.seat(0, r, set("abcd") - {term.super_node})
                held += term.transcripts
        except ElectionError as refusal:
            held += refusal.transcripts
        for transcript in held:
            chain.follow(transcript)
        saved = json.loads(json.dumps(nodes.state_dict()))
        nodes = SuperNodes(ZONING, secret=bytes(32), policy=policy)
        nodes.load_state_dict(saved)
        assert chain.leader == nodes.incumbent(0)
    # A persistent super-node needs no election in round 2, so nothing is refused.
    assert chain.failures == 2
    assert (chain.refused, chain.unfinished) == (policy == "rotate", 0)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"incumbents": {"0": "e"}}, "incumbents is e; allowed: clients of zone 0"),
        ({"incumbents": {"9": "e"}}, "zone of incumbents is 9; allowed: 0, 1"),
        ({"incumbents": {3: "a"}}, "zone of incumbents is 3"),
        ({"standing": {"x": {}}}, "zone of standing is x"),
        ({"standing": [0]}, "standing is 0; allowed: a mapping"),
        ({"standing": {"0": {}}}, "standing is {}; allowed: what to_fields made"),
        ({"standing": {"0": {"head": "q", "failed": []}}}, "standing is {'head': 'q'"),
        ({"elections": -7}, "elections is -7"),
    ],
)
def test_another_state_is_refused_and_changes_nothing(state, message):
    nodes = simulated()
    nodes.seat(0, 0, "abcd")
    before = nodes.state_dict()
    with pytest.raises(ArgumentError, match=message):
        nodes.load_state_dict({"incumbents": {"1": "e"}, "elections": 9} | state)
    assert nodes.state_dict() == before
