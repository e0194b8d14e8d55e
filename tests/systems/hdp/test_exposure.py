"""Who saw how many aggregates, and how long super-nodes led."""

import shutil
from collections import Counter
from csv import DictReader

import pytest

from tests.systems.hdp.participations import hold
from tff_hdp.errors import FileError
from tff_hdp.simulation.journal import Journal
from tff_hdp.systems.hdp.exposure import (
    count_exposure,
    count_tenures,
    report_exposure,
)
from tff_hdp.systems.hdp.seats import Seat, read_seats, write_seats


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


def test_who_led_saw_its_zones_aggregate(held):
    path, rounds = held
    assert count_exposure(path) == led(rounds)


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
