"""Who led which zone, with elections held in full: what is kept of it, and verified."""

import dataclasses
import itertools
import json
import os
import shutil
from collections import Counter
from csv import DictReader

import pytest

from tests.systems.hdp.participations import FULL, hold, participation, run, same
from tff_hdp.errors import FileError
from tff_hdp.protocols.elections.electorate import ElectionError
from tff_hdp.protocols.elections.supernodes import SuperNodes
from tff_hdp.simulation import experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.simulation.journal import Journal
from tff_hdp.systems.hdp.attendance import Elections
from tff_hdp.systems.hdp.run import Hdp
from tff_hdp.systems.hdp.seats import (
    REGISTRY,
    Seat,
    count_exposure,
    count_tenures,
    read_registries,
    read_seats,
    report_exposure,
    verify_seats,
    write_seats,
)
from tff_hdp.topology import Zoning


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Three rounds with elections held in full, and where they were kept."""
    path = tmp_path_factory.mktemp("run") / "elections"
    return path, hold(path)


def release(folder, *rounds):
    journal = Journal(folder / "journal.jsonl")
    journal.begin({})
    for number in rounds:
        journal.announce(journal.entry(number, {"history": []}))


def led(rounds):
    """How many zones' rounds each client led, by what the rounds themselves say."""
    leaders = (seat.super_node for present in rounds for seat in present.seats)
    return Counter(leader for leader in leaders if leader is not None)


def exposure(folder):
    with (folder / "exposure.csv").open() as file:
        return {row["client"]: int(row["aggregates_seen"]) for row in DictReader(file)}


def seat_of(term):
    """Zone 0's seat after an election or more, if nobody failed."""
    texts = tuple(transcript.to_text() for transcript in term.transcripts)
    return Seat(
        zone=0, super_node=term.super_node, transcripts=texts, elections=len(texts)
    )


def test_who_was_elected_for_a_round_that_never_ran_saw_nothing(held, tmp_path):
    """As where a run is ended at the round it was killed in, by fewer rounds."""
    path, rounds = held
    shutil.copytree(path, tmp_path / "elections")
    release(tmp_path, 1, 2)
    assert "in 2 rounds" in report_exposure(tmp_path)
    seen = exposure(tmp_path)
    assert seen == led(rounds[:2]) != led(rounds)
    assert len(read_seats(tmp_path / "elections")) == 2


def test_a_round_that_was_released_again_was_seen_again(held, tmp_path):
    """As where its checkpoint was lost; the run may have been ended before it."""
    path, rounds = held
    shutil.copytree(path, tmp_path / "elections")
    release(tmp_path, 1, 2, 3, 2)
    second = led(rounds[1:2])
    said = report_exposure(tmp_path)
    assert second.total() > 0
    assert exposure(tmp_path) == led(rounds) + second
    assert f"the most exposed one {max(exposure(tmp_path).values())}" in said
    assert len(read_seats(tmp_path / "elections")) == 3


def test_transcripts_verify_and_repeat(held):
    path, rounds = held
    (again,) = run(participation(**FULL), 1)
    assert same(again, rounds[0])
    assert again.seats[0].transcripts
    count = sum(len(s.transcripts) for p in rounds for s in p.seats)
    registries = read_registries(path / REGISTRY)
    chains = verify_seats(path, registries, max_failures=9, max_unfinished=9)
    # Five voters of more: any refusal may hide a winner.
    refused = sum(chain.refused for chain in chains.values())
    assert sum(chain.unfinished for chain in chains.values()) == refused > 0
    with pytest.raises(ElectionError, match="refused elections may have had a winner"):
        verify_seats(path, registries, max_failures=9)
    failed = sum(len(seat.failed) for p in rounds for seat in p.seats)
    assert sum(chain.failures for chain in chains.values()) == failed > 0
    most = max(chain.failures for chain in chains.values())
    assert verify_seats(path, registries, max_failures=most, max_unfinished=9)
    said = f"{most} super-nodes are said to have failed; allowed: {most - 1}"
    with pytest.raises(ElectionError, match=said):
        verify_seats(path, registries, max_failures=most - 1, max_unfinished=9)
    assert sum(chain.transcripts for chain in chains.values()) == count > 3
    first = rounds[0].metrics
    assert first["election_seconds"] > 0
    # Five voters of 32-byte keys exchange some kilobytes a zone.
    assert first["election_bytes"] > 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda *_: {"super_node": "nobody"}, "leads, but .* was elected"),
        (lambda *_: {"zone": 1}, "round 1 has other zones"),
        (
            lambda _, other: {"transcripts": other.transcripts},
            "does not follow|called by another registry",
        ),
        (lambda *_: {"elections": 9}, "9 elections, but"),
        (lambda *_: {"failed": ("c0", "c3")}, r"\['c0', 'c3'\] .* by the transcripts"),
        (lambda *_: {"transcripts": ()}, "no transcript says why"),
        (
            lambda seat, _: {"transcripts": (*seat.transcripts, "AAAA")},
            "no transcript",
        ),
        (
            lambda seat, _: {"transcripts": seat.transcripts * 2},
            "does not follow the election before",
        ),
    ],
)
def test_records_that_were_changed_do_not_verify(held, tmp_path, change, message):
    registries = read_registries(held[0] / REGISTRY)
    first, second, third = read_seats(held[0])[1]
    write_seats(tmp_path, 1, [first, second, third])
    assert verify_seats(tmp_path, registries, max_failures=9, max_unfinished=9)
    first = dataclasses.replace(first, **change(first, second))
    write_seats(tmp_path, 1, [first, second, third])
    with pytest.raises(ElectionError, match=message):
        verify_seats(tmp_path, registries, max_failures=9, max_unfinished=9)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", ["zone", "elections"])
def test_a_truth_value_is_no_number_of_seats(tmp_path, name, value):
    seat = Seat(zone=1, super_node="c", elections=1)
    write_seats(tmp_path, 1, [seat])
    assert read_seats(tmp_path)
    write_seats(tmp_path, 1, [dataclasses.replace(seat, **{name: value})])
    with pytest.raises(FileError, match="holds no list of seats"):
        read_seats(tmp_path)


def test_a_run_whose_last_elections_are_gone_does_not_verify(held, tmp_path):
    """Nothing follows them, so nothing else tells."""
    registries = read_registries(held[0] / REGISTRY)
    for number in (1, 2):
        write_seats(tmp_path, number, read_seats(held[0])[number])
    assert verify_seats(
        tmp_path, registries, rounds=2, max_failures=9, max_unfinished=9
    )
    with pytest.raises(ElectionError, match="elections of 2 rounds, of 3 that were"):
        verify_seats(tmp_path, registries, rounds=3, max_failures=9, max_unfinished=9)


def test_rounds_keep_their_numbers_where_one_before_is_gone(held, tmp_path):
    """Those after it were taken for one round earlier each."""
    path, rounds = held
    shutil.copytree(path, tmp_path / "elections")
    release(tmp_path, 1, 2, 3, 3)
    (tmp_path / "elections" / "round_00002.json").unlink()
    with pytest.raises(FileError, match=r"elections: lacks .*: round_00002\.json$"):
        report_exposure(tmp_path)
    assert not (tmp_path / "exposure.csv").exists()
    assert count_exposure(tmp_path / "elections", {3: 1}) == led(rounds[2:])


def test_a_run_whose_elections_are_gone_does_not_go_on(
    hdp_config, tmp_path, traced_once
):
    """It counted later rounds as the lost ones, and so who saw how much wrongly."""
    traced_once(Hdp)
    elected = {"elect_super_nodes": "rotate", "election_protocol": "drawn"}
    config = hdp_config(tmp_path, zones=2, local_epochs=1, **elected)
    experiment.run(config)
    kept = [tmp_path / name for name in ("metrics.csv", "exposure.csv")]
    before = [file.read_text() for file in kept]
    (tmp_path / "elections" / "round_00002.json").unlink()
    for rounds in (4, 3):
        with pytest.raises(FileError, match=r"elections: lacks .*: round_00002\.json$"):
            experiment.run(dataclasses.replace(config, rounds=rounds))
        assert [file.read_text() for file in kept] == before
    # The model can be tested all the same.
    assert evaluate_run(config).card["round"] == 3


@pytest.mark.parametrize("name", ["round_2.json", "round_x.json", "round_.json"])
def test_a_file_that_is_named_after_no_round_is_refused(tmp_path, name):
    write_seats(tmp_path, 1, [Seat(zone=0, super_node="c")])
    (tmp_path / "round_00001.json").rename(tmp_path / name)
    with pytest.raises(FileError, match=f"{name}: is named after no round"):
        read_seats(tmp_path)


def test_rounds_come_in_their_order_beyond_five_digits(tmp_path):
    numbers = [9_999, 10_000, 10_001, 99_999, 100_000, 100_001]
    for number in numbers:
        write_seats(tmp_path, number, [Seat(zone=0, super_node=str(number))])
    found = read_seats(tmp_path)
    assert list(found) == numbers
    assert [int(seats[0].super_node) for seats in found.values()] == numbers


def test_a_round_in_which_nobody_led_ends_a_term(tmp_path):
    """Zone 0 is led for two rounds, then not, then for three: no election between."""
    leaders = [("a", 1), ("a", 0), (None, 0), ("a", 0), ("a", 0), ("a", 0)]
    for number, (leader, held) in enumerate(leaders, start=1):
        seats = [
            Seat(zone=0, super_node=leader, elections=held),
            Seat(zone=1, super_node="b", elections=int(number == 1)),
        ]
        write_seats(tmp_path, number, seats)
    assert sorted(count_tenures(tmp_path)) == [2, 3, 6]


def test_nobody_leads_on_where_super_nodes_rotate(tmp_path):
    """A relay that likes a winner owes an election all the same."""
    zoning = Zoning(tuple("abcde"), (0,) * 5)
    nodes = SuperNodes(zoning, policy="rotate", secret=bytes(32))
    for number in (1, 2, 3):
        seats = [seat_of(nodes.seat(0, number, "abcde"))]
        write_seats(tmp_path, number, seats, [nodes.registry(0)])
    found = read_registries(tmp_path / REGISTRY)
    assert verify_seats(tmp_path, found, rounds=3)[0].transcripts == 3
    # Whether it says that the last winner leads on, or that nobody does.
    for leads in (read_seats(tmp_path)[1][0].super_node, None):
        write_seats(tmp_path, 2, [Seat(zone=0, super_node=leads)])
        said = "round 2, zone 0: nobody leads, and no transcript says why"
        with pytest.raises(ElectionError, match=said):
            verify_seats(tmp_path, found, rounds=3)


def test_a_relay_cannot_keep_an_election_to_itself(tmp_path):
    """With few called, it would call others next round, until it likes the winner."""
    zoning = Zoning(tuple("abcdefghij"), (0,) * 10)
    nodes = SuperNodes(zoning, policy="persistent", call_size=4, secret=bytes(32))
    drawn = nodes.seat(0, 2, "abcdefghij")
    nobody = Seat(zone=0, super_node=None)
    write_seats(tmp_path, 1, [nobody], [nodes.registry(0)])
    write_seats(tmp_path, 2, [seat_of(drawn)])
    found = read_registries(tmp_path / REGISTRY)
    with pytest.raises(ElectionError, match="round 1, zone 0: nobody leads, and no"):
        verify_seats(tmp_path, found)


def test_a_round_in_which_nobody_came_to_vote_has_a_transcript_of_that(tmp_path):
    zoning = Zoning(tuple("abcde"), (0,) * 5)
    for policy, online in itertools.product(("rotate", "persistent"), ("", "a")):
        nodes = SuperNodes(zoning, policy=policy, secret=bytes(32))
        with pytest.raises(ElectionError) as refusal:
            nodes.seat(0, 1, online)
        texts = tuple(t.to_text() for t in refusal.value.transcripts)
        seat = Seat(zone=0, super_node=None, transcripts=texts)
        write_seats(tmp_path, 1, [seat], [nodes.registry(0)])
        found = read_registries(tmp_path / REGISTRY)
        assert verify_seats(tmp_path, found)[0].refused == 1


def test_a_run_with_keys_of_its_own_making_does_not_verify(held, tmp_path):
    other = participation(entropy=12, elections=Elections(call_size=5))
    write_seats(tmp_path, 1, [], other.registries())
    with pytest.raises(ElectionError, match="is called by another registry"):
        verify_seats(held[0], read_registries(tmp_path / REGISTRY))


def test_a_zone_has_one_registry(tmp_path):
    """The last one was taken, whoever had written it there."""
    write_seats(tmp_path, 1, [], participation(**FULL).registries())
    rows = json.loads((tmp_path / REGISTRY).read_text())
    (tmp_path / REGISTRY).write_text(json.dumps([*rows, rows[0]]))
    with pytest.raises(FileError, match=r"holds more than one registry of a zone$"):
        read_registries(tmp_path / REGISTRY)


@pytest.mark.parametrize(
    "text", ["", "{", "3", "[3]", '[{"zone": 0}]', "[" * 100_000, '[{"zone": NaN}]']
)
def test_what_is_no_registry_is_refused(tmp_path, text):
    (tmp_path / REGISTRY).write_text(text)
    with pytest.raises(FileError, match="registr"):
        read_registries(tmp_path / REGISTRY)


@pytest.mark.parametrize(
    "text", ["", "{", "3", "[]", "[3]", '[{"zone": 0}]', "[" * 100_000]
)
def test_what_is_no_list_of_seats_is_refused(tmp_path, text):
    (tmp_path / "round_00001.json").write_text(text)
    with pytest.raises(FileError, match="round_00001"):
        verify_seats(tmp_path, {})


def test_seats_are_on_the_disk_when_they_are_written(tmp_path, monkeypatch):
    """The journal's flush keeps their names, not what is in them."""
    flushed, flush = set(), os.fsync

    def noting(descriptor):
        flush(descriptor)
        flushed.add(os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2])

    monkeypatch.setattr(os, "fsync", noting)
    seat = Seat(zone=0, super_node="c")
    registries = participation(**FULL).registries()
    write_seats(tmp_path / "run" / "elections", 1, [seat], registries)
    files = {name.partition(".json")[0].lstrip(".") for name in flushed}
    assert files == {"round_00001", "registry", "elections", "run"}


def test_a_transcript_of_another_round_does_not_verify(tmp_path):
    """A relay might hold round 1's election as round 7's, of whom others are called."""
    nodes = SuperNodes(
        Zoning(tuple("abcdefghij"), (0,) * 10),
        policy="persistent",
        call_size=4,
        secret=bytes(32),
    )
    seat = seat_of(nodes.seat(0, 7, "abcdefghij"))
    write_seats(tmp_path, 1, [seat], [nodes.registry(0)])
    with pytest.raises(ElectionError, match="round 1, zone 0: a transcript is of"):
        verify_seats(tmp_path, read_registries(tmp_path / REGISTRY))


def test_a_seat_is_read_as_it_was_written(tmp_path):
    told = {
        "zone": 3,
        "super_node": None,
        "failed": ["a", "b"],
        "refused": "too few came",
        "left": "a",
        "seconds": 0.5,
        "total_seconds": 1.25,
        "bytes": 700,
        "transcripts": ["QUFB"],
        "elections": 2,
    }
    file = tmp_path / "round_00001.json"
    file.write_text(json.dumps([told], indent=2) + "\n")
    before = file.read_bytes()
    (seat,) = read_seats(tmp_path)[1]
    assert seat == Seat(**told | {"failed": ("a", "b"), "transcripts": ("QUFB",)})
    write_seats(tmp_path, 1, [seat])
    assert file.read_bytes() == before


def test_a_file_of_before_may_lack_what_nobody_reads_back(tmp_path):
    needed = {"zone": 0, "super_node": "c", "failed": [], "elections": 1}
    needed |= {"transcripts": []}
    file = tmp_path / "round_00001.json"
    file.write_text(json.dumps([needed | {"of_before": 1}]))
    assert read_seats(tmp_path) == {1: [Seat(zone=0, super_node="c", elections=1)]}
    for name in needed:
        rest = {key: value for key, value in needed.items() if key != name}
        file.write_text(json.dumps([rest]))
        with pytest.raises(FileError, match="holds no list of seats"):
            read_seats(tmp_path)


def test_who_led_saw_its_zones_aggregate(held):
    path, rounds = held
    assert count_exposure(path) == led(rounds)


def test_a_run_does_not_verify_where_elections_before_its_last_are_gone(held, tmp_path):
    shutil.copytree(held[0], tmp_path / "elections")
    (tmp_path / "elections" / "round_00002.json").unlink()
    registries = read_registries(held[0] / REGISTRY)
    most = {"max_failures": 9, "max_unfinished": 9}
    with pytest.raises(ElectionError, match=r"of 3 that were; .*: round_00002\.json"):
        verify_seats(tmp_path / "elections", registries, rounds=2, **most)
