"""Elections held in full: their transcripts verify, and nothing that was changed."""

import dataclasses
import itertools
import shutil

import pytest

from tests.systems.hdp.participations import FULL, hold, participation, run, same
from tff_hdp.errors import FileError
from tff_hdp.protocols.elections.electorate import ElectionError
from tff_hdp.protocols.elections.supernodes import SuperNodes
from tff_hdp.systems.hdp.attendance import Elections
from tff_hdp.systems.hdp.seats import (
    REGISTRY,
    Seat,
    read_registries,
    read_seats,
    write_seats,
)
from tff_hdp.systems.hdp.verification import verify_seats
from tff_hdp.topology import Zoning


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Three rounds with elections held in full, and where they were kept."""
    path = tmp_path_factory.mktemp("run") / "elections"
    return path, hold(path)


def seat_of(term):
    """Zone 0's seat after an election or more, if nobody failed."""
    texts = tuple(transcript.to_text() for transcript in term.transcripts)
    return Seat(
        zone=0, super_node=term.super_node, transcripts=texts, elections=len(texts)
    )


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


def test_a_run_does_not_verify_where_elections_before_its_last_are_gone(held, tmp_path):
    shutil.copytree(held[0], tmp_path / "elections")
    (tmp_path / "elections" / "round_00002.json").unlink()
    registries = read_registries(held[0] / REGISTRY)
    most = {"max_failures": 9, "max_unfinished": 9}
    with pytest.raises(ElectionError, match=r"of 3 that were; .*: round_00002\.json"):
        verify_seats(tmp_path / "elections", registries, rounds=2, **most)


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


@pytest.mark.parametrize(
    "text", ["", "{", "3", "[]", "[3]", '[{"zone": 0}]', "[" * 100_000]
)
def test_what_is_no_list_of_seats_is_refused(tmp_path, text):
    (tmp_path / "round_00001.json").write_text(text)
    with pytest.raises(FileError, match="round_00001"):
        verify_seats(tmp_path, {})


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
