"""Who takes part: drop-outs, elections and skipped zones, round by round."""

import collections
import dataclasses
import re

import numpy as np
import pytest
import scipy.stats

from tests.systems.hdp.participations import (
    DRAWN,
    IDS,
    ZONING,
    participation,
    run,
    same,
)
from tff_hdp.protocols.elections import SuperNodes
from tff_hdp.systems.hdp.attendance import Elections
from tff_hdp.systems.hdp.exposure import count_exposure, count_tenures
from tff_hdp.systems.hdp.faults import Faults
from tff_hdp.systems.hdp.seats import write_seats


def test_without_faults_everybody_drawn_delivers():
    parties = participation()
    for number, present in enumerate(run(parties, 5), start=1):
        assert present.cohort.tolist() == parties.sampler.draw(number).tolist()
        assert not present.byzantine.any()
        assert present.seats == []
        assert present.metrics == {}


def test_drop_outs_are_independent_of_everything():
    parties = participation(q=0.9, faults=Faults(drop_rate=0.25))
    arrived, drawn = np.zeros(24), np.zeros(24)
    for number, present in enumerate(run(parties, 600), start=1):
        drawn[parties.sampler.draw(number)] += 1
        arrived[present.cohort] += 1
        assert present.metrics["dropped"] == (
            len(parties.sampler.draw(number)) - len(present.cohort)
        )
    # A share of 540 draws has a standard error of 0.019.
    np.testing.assert_allclose(arrived / drawn, 0.75, atol=0.085)
    assert abs(arrived.sum() / drawn.sum() - 0.75) < 0.02


def test_who_is_offline_and_who_drops_out_hang_on_each_other_in_nothing():
    faults = Faults(drop_rate=0.5, online_rate=0.5)
    drawn = arrived = dropped = offline = changed = 0
    parties = participation(q=0.9, faults=faults)
    for number, present in enumerate(run(parties, 300), start=1):
        drawn += len(parties.sampler.draw(number))
        arrived += len(present.cohort)
        dropped += present.metrics["dropped"]
        offline += present.metrics["offline"]
        assert sum(present.dropped) == present.metrics["dropped"]
        # All is drawn anew where a round is released again.
        again = parties.attend(number, {}, earlier=1)
        both = set(parties.sampler.draw(number))
        both &= set(parties.sampler.draw(number, earlier=1))
        changed += len(both & set(present.cohort) - set(again.cohort)) / len(both)
    shares = np.array([arrived, dropped, offline]) / drawn
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=0.03)
    # A quarter arrived, and of those a quarter again.
    assert changed / 300 == pytest.approx(0.1875, abs=0.03)


def test_how_many_come_is_drawn_anew_of_a_round_that_is_released_again():
    """The account composes releases as independent: their numbers must be."""
    parties = participation(q=1.0, faults=Faults(online_rate=0.5))
    counts = [
        [len(parties.attend(number, {}, earlier=again).cohort) for again in (0, 1)]
        for number in range(1, 401)
    ]
    # Of 400 pairs a correlation has a standard error of 0.05; it was 1.
    assert abs(np.corrcoef(np.transpose(counts))[0, 1]) < 0.2
    assert np.mean(counts) == pytest.approx(12, abs=0.5)


def test_removing_a_client_leaves_who_else_drops_out(monkeypatch):
    parties = participation(faults=Faults(drop_rate=0.3, online_rate=0.8))
    drawn = parties.sampler.draw
    for number in range(1, 20):
        first, *others = drawn(number)
        with_it = parties.attend(number, {}).cohort.tolist()
        monkeypatch.setattr(
            parties.sampler, "draw", lambda _, o=others, **_k: np.array(o)
        )
        assert parties.attend(number, {}).cohort.tolist() == [
            client for client in with_it if client != first
        ]
        monkeypatch.undo()


FAULTS = Faults(
    drop_rate=0.15,
    online_rate=0.97,
    supernode_failure_rate=0.3,
    byzantine=((5, 0.13), (20, 0.26)),
)


@pytest.mark.parametrize("policy", ["persistent", "rotate"])
def test_a_resumed_run_goes_on_with_the_same_seats(policy):
    elections = dataclasses.replace(DRAWN, policy=policy)
    options = {"faults": FAULTS, "elections": elections}
    whole = run(participation(**options), 40)
    again = run(participation(**options), 25, carried=whole[14].carried, first=16)
    assert all(map(same, again, whole[15:]))
    other = run(participation(entropy=12, **options), 40)
    assert not all(map(same, other, whole))


@pytest.mark.parametrize("policy", ["persistent", "rotate"])
def test_elections_stand_where_a_round_is_released_again(policy):
    elections = dataclasses.replace(DRAWN, policy=policy)
    parties = participation(faults=FAULTS, elections=elections)
    others = 0
    for number in range(1, 41):
        first, again = (parties.attend(number, {}, earlier=i) for i in (0, 1))
        assert first.seats == again.seats
        assert first.carried == again.carried
        others += first.cohort.tolist() != again.cohort.tolist()
    assert others > 20


def test_who_leads_and_who_is_skipped_does_not_depend_on_the_cohort():
    """Else transcripts and skipped zones would tell who takes part."""
    runs = [
        run(participation(q=q, faults=FAULTS, elections=DRAWN), 40) for q in (0.1, 0.9)
    ]
    seats = [[present.seats for present in rounds] for rounds in runs]
    assert seats[0] == seats[1]
    assert sum(len(p.cohort) for p in runs[0]) < sum(len(p.cohort) for p in runs[1])
    skipped = sum(present.metrics["skipped_zones"] for present in runs[0])
    assert skipped > 5


def test_seats_through_faults():
    rounds = run(participation(faults=FAULTS, elections=DRAWN), 120)
    before = [None] * 3
    kept = replaced = 0
    for present in rounds:
        skipped = {s.zone for s in present.seats if s.super_node is None}
        assert present.metrics["skipped_zones"] == len(skipped)
        assert not skipped & set(np.asarray(ZONING.zone_of)[present.cohort])
        for seat in present.seats:
            leader = seat.super_node
            assert (leader is None) == (seat.refused is not None)
            assert leader not in seat.failed
            if leader is None:
                continue
            assert leader in ZONING.clients_in(seat.zone)
            if seat.elections == 0:
                assert leader == before[seat.zone]
                kept += 1
            replaced += bool(seat.failed)
        before = [s.super_node for s in present.seats]
    assert kept > 50
    assert replaced > 20
    total = sum(p.metrics["elections"] for p in rounds)
    assert rounds[-1].carried["elections"] == total


def test_super_nodes_that_are_offline_leave():
    rate, rounds = 0.9, 400
    elections = Elections(run_protocol=False, call_size=8, fault_model="crash")
    found = run(
        participation(q=1.0, faults=Faults(online_rate=rate), elections=elections),
        rounds,
    )
    before = [None] * 3
    left = stayed = 0
    for present in found:
        there = {IDS[i] for i in present.cohort}
        for seat in present.seats:
            leader = seat.super_node
            # All are drawn, so who is not in the cohort is offline.
            assert leader is None or leader in there
            if (was := before[seat.zone]) is None:
                assert seat.left is None
            elif seat.left is None:
                assert leader == was
                assert seat.elections == 0
                stayed += 1
            else:
                assert seat.left == was
                assert leader != was
                left += 1
        before = [seat.super_node for seat in present.seats]
        skipped = {s.zone for s in present.seats if s.super_node is None}
        drawn = sum(z not in skipped for z in ZONING.zone_of)
        assert present.metrics["dropped"] == 0
        assert present.metrics["offline"] >= drawn - len(present.cohort)
        assert sum(present.dropped) == 0
    assert scipy.stats.binomtest(left, left + stayed, 1 - rate).pvalue > 1e-4
    assert left > 80


def test_tenure_is_geometric_where_super_nodes_leave_by_chance(tmp_path):
    rate = 0.8
    elections = Elections(run_protocol=False, call_size=8, fault_model="crash")
    found = run(
        participation(faults=Faults(online_rate=rate), elections=elections), 500
    )
    for number, present in enumerate(found, start=1):
        write_seats(tmp_path, number, present.seats)
    tenures = count_tenures(tmp_path)
    assert sum(tenures) == sum(count_exposure(tmp_path).values())
    lengths = np.bincount(tenures, minlength=9)[1:]
    # The last terms of the run are cut short, three of some two hundred.
    expected = len(tenures) * (1 - rate) * rate ** np.arange(8)
    observed = np.append(lengths[:8], lengths[8:].sum())
    expected = np.append(expected, len(tenures) * rate**8)
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-4
    rotating = tmp_path / "rotate"
    elections = dataclasses.replace(elections, policy="rotate")
    for number, present in enumerate(
        run(participation(elections=elections), 5), start=1
    ):
        write_seats(rotating, number, present.seats)
    assert count_tenures(rotating) == [1] * 15


def test_byzantine_clients_never_lead_and_are_marked():
    rounds = run(participation(faults=FAULTS, elections=DRAWN), 40)
    bad: list[set[int]] = []
    for part in (rounds[:4], rounds[4:19], rounds[19:]):
        bad.append({int(c) for p in part for c in p.cohort[p.byzantine]})
    # 13 % of 8 clients is one a zone, 26 % are two.
    assert [len(some) for some in bad] == [0, 3, 6]
    assert bad[1] < bad[2]
    names = {IDS[i] for i in bad[2]}
    leaders = {s.super_node for p in rounds[19:] for s in p.seats}
    failed = {c for p in rounds[19:] for s in p.seats for c in s.failed}
    assert not leaders & names
    assert failed & names


def test_without_elections_a_failed_super_node_costs_its_zone_the_round():
    parties = participation(q=1.0, faults=Faults(supernode_failure_rate=0.2))
    rounds = run(parties, 400)
    for present in rounds:
        zones = np.unique(np.asarray(ZONING.zone_of)[present.cohort])
        assert len(zones) == 3 - present.metrics["skipped_zones"]
        assert present.metrics["failed_super_nodes"] == 3 - len(zones)
    skipped = sum(present.metrics["skipped_zones"] for present in rounds)
    assert scipy.stats.binomtest(skipped, 1200, 0.2).pvalue > 1e-4


def test_who_fell_silent_is_not_called_again_in_the_round(monkeypatch):
    calls, seat = {}, SuperNodes.seat

    def watched(self, zone, number, online, *, stops, **others):
        calls.setdefault((number, zone), []).append((set(online), set(stops)))
        return seat(self, zone, number, online, stops=stops, **others)

    monkeypatch.setattr(SuperNodes, "seat", watched)
    faults = Faults(supernode_failure_rate=0.5, drop_rate=0.3)
    run(participation(faults=faults, elections=DRAWN), 30)
    silent = 0
    for (first, stops), *later in calls.values():
        for online, still in later:
            assert still == stops
            assert online < first and not online & stops
            silent += len(first & stops)
    assert silent > 0


def test_who_drops_out_of_a_skipped_zone_would_not_have_delivered():
    faults = Faults(supernode_failure_rate=0.5, drop_rate=0.1)
    parties = participation(q=0.9, faults=faults)
    zone_of, of_led, of_skipped = np.array(ZONING.zone_of), 0, 0
    for number, present in enumerate(run(parties, 60), start=1):
        drawn = parties.sampler.draw(number)
        missing = np.bincount(
            zone_of[np.setdiff1d(drawn, present.cohort)], minlength=ZONING.num_zones
        )
        # Of the eight of a zone not all drop out.
        led = np.bincount(zone_of[present.cohort], minlength=ZONING.num_zones) > 0
        assert (~led).sum() == present.skipped
        dropped = np.array(present.dropped)
        np.testing.assert_array_equal(dropped[led], missing[led])
        assert not dropped[~led].any()
        of_led, of_skipped = of_led + dropped.sum(), of_skipped + missing[~led].sum()
    assert of_led > 0 and of_skipped > 0


def test_too_few_voters_skip_the_zone_and_say_so():
    elections = dataclasses.replace(DRAWN, call_size=4, fault_model="crash")
    parties = participation(faults=Faults(drop_rate=0.5), elections=elections)
    refusals = [s.refused for p in run(parties, 60) for s in p.seats if s.refused]
    assert refusals
    said = re.compile(
        "of 4 voters (dealt|confirmed|revealed); with at most 1 crash faults [23] must"
    )
    assert all(said.search(refusal) for refusal in refusals)


def test_rotation_spreads_exposure_evenly():
    elections = dataclasses.replace(DRAWN, policy="rotate")
    rounds = run(participation(elections=elections), 800)
    led = collections.Counter(s.super_node for p in rounds for s in p.seats)
    for zone in range(3):
        counts = [led[client] for client in ZONING.clients_in(zone)]
        assert sum(counts) == 800
        assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_only_capable_clients_lead():
    elections = dataclasses.replace(
        DRAWN,
        policy="rotate",
        capability={c: float(i) for i, c in enumerate(IDS)},
        min_capability=12.0,
    )
    rounds = run(participation(elections=elections), 60)
    leaders = {s.super_node for p in rounds for s in p.seats}
    assert leaders == set(IDS[12:])


def test_a_state_of_other_zones_is_refused():
    parties = participation(elections=DRAWN)
    with pytest.raises(ValueError, match="incumbents is c1; allowed: clients"):
        parties.attend(1, {"incumbents": {"0": "c1"}})
