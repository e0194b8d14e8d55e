"""Who led which zone: what the run folder keeps of it, and reads back."""

import dataclasses
import json
import os

import pytest

from tests.systems.hdp.participations import FULL, participation
from tff_hdp.errors import FileError
from tff_hdp.simulation import experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.systems.hdp.run import Hdp
from tff_hdp.systems.hdp.seats import (
    REGISTRY,
    Seat,
    read_registries,
    read_seats,
    write_seats,
)


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


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", ["zone", "elections"])
def test_a_truth_value_is_no_number_of_seats(tmp_path, name, value):
    seat = Seat(zone=1, super_node="c", elections=1)
    write_seats(tmp_path, 1, [seat])
    assert read_seats(tmp_path)
    write_seats(tmp_path, 1, [dataclasses.replace(seat, **{name: value})])
    with pytest.raises(FileError, match="holds no list of seats"):
        read_seats(tmp_path)


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
