"""Who led which zone in every round of a run: records, transcripts, exposure.

`<run folder>/elections/round_00012.json` holds a list with a `Seat` per zone.
`registry.json` beside it holds the zones' clients and keys. Who does not trust the run
brings a registry of its own.
"""

import csv
import dataclasses
import io
import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_hdp.errors import FileError
from tff_hdp.files import sync_names, write_json, write_text
from tff_hdp.protocols.elections.chain import Chain
from tff_hdp.protocols.elections.electorate import ElectionError, Registry
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.reading import read_json
from tff_hdp.simulation.journal import Journal

REGISTRY = "registry.json"
# What is read back of a seat. A file of before may lack the rest; it is not checked.
_KINDS = {
    "zone": int,
    "super_node": str | None,
    "failed": list,
    "elections": int,
    "transcripts": list,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seat:
    """Who led a zone in a round, and how it came to that; in the order of the file.

    Attributes:
      zone: The zone.
      super_node: The client that delivered the zone's aggregate; None if the zone was
        skipped.
      failed: The super-nodes that failed before it in the round, in order.
      refused: Why the last election was refused; None if it was not.
      left: The super-node of the round before, where it is gone; None otherwise and
        under `rotate`.
      seconds: Critical path of the elections, summed; those that led up to a refusal
        are not counted.
      total_seconds: Of all parties; likewise.
      bytes: What the relay sent and received; likewise.
      transcripts: Of all elections, in order, refused ones too, each as
        `Transcript.to_text` writes it; none where winners are drawn.
      elections: How many had a winner.
    """

    zone: int
    super_node: str | None
    failed: tuple[str, ...] = ()
    refused: str | None = None
    left: str | None = None
    seconds: float = 0.0
    total_seconds: float = 0.0
    bytes: int = 0
    transcripts: tuple[str, ...] = ()
    elections: int = 0


def write_seats(
    path: pathlib.Path,
    number: int,
    seats: Sequence[Seat],
    registries: Sequence[Registry] = (),
) -> None:
    """Keeps a round's seats on the disk; a round prepared again overwrites them.

    With the first round the registries too: a run that died before it released anything
    may begin again with other keys.
    """
    if not path.exists():
        path.mkdir(parents=True)
        sync_names(path.parent)
    rows = [dataclasses.asdict(seat) for seat in seats]
    write_json(path / _file_of(number), rows, durable=True)
    if registries and (number == 1 or not (path / REGISTRY).exists()):
        fields = [registry.to_fields() for registry in registries]
        write_json(path / REGISTRY, fields, durable=True)


def read_seats(
    path: pathlib.Path, released: Iterable[int] = ()
) -> dict[int, list[Seat]]:
    """The seats of every round by its number, in the order of rounds.

    Args:
      path: The run folder's `elections`.
      released: Rounds that must be there.

    Raises:
      FileNotFoundError: If there are none.
      FileError: If a file holds no list of seats, or a round released has none.
    """
    files = _files(path)
    _check_there(path, files, released)
    if not files:
        raise FileNotFoundError(f"{path} holds no round_*.json of elections")
    return {number: _read_round(file) for number, file in files.items()}


def read_registries(file: pathlib.Path) -> dict[int, Registry]:
    """Every zone's registry, from a file such as a run's `registry.json`.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If it holds no list of registries, one for each zone.
    """
    rows = read_json(file)
    if not isinstance(rows, list):
        raise FileError(file, "holds no list of registries")
    try:
        found = [Registry.from_fields(fields) for fields in rows]
    except ElectionError as error:
        raise FileError(file, str(error)) from error
    registries = {registry.zone: registry for registry in found}
    if len(registries) < len(found):
        raise FileError(file, "holds more than one registry of a zone")
    return registries


def check_readable(path: pathlib.Path) -> None:
    """Checks that what earlier rounds of a run left, if anything, can be read back.

    Raises:
      FileError: If a round's file holds no seats, or the registry no registries.
    """
    if any(path.glob("round_*.json")):
        read_seats(path)
    if (path / REGISTRY).exists():
        read_registries(path / REGISTRY)


def check_complete(path: pathlib.Path) -> None:
    """Checks that every round that the run's journal says was released has its seats.

    Raises:
      FileError: If one has none: nobody could tell who saw its aggregates.
    """
    journal = Journal(path.parent / "journal.jsonl")
    _check_there(path, _files(path), journal.releases_by_round)


def verify_seats(
    path: pathlib.Path,
    registries: Mapping[int, Registry],
    *,
    rounds: int = 1,
    max_unfinished: int = 0,
    max_failures: int = 0,
) -> dict[int, Chain]:
    """Checks every transcript of a run, as anybody can, and who sits where.

    Not checked are seconds and bytes, of which there is no witness, who `left` before
    an election, which counts as failed here, that none was left out of a seat's
    `failed`, and the words of a refusal.

    Args:
      path: The run folder's `elections`.
      registries: By zone, from elsewhere than the run if it is not trusted.
      rounds: How many rounds there were at least; elections of the last ones that are
        not there leave no gap.
      max_unfinished: How many elections of a zone may have been refused by a relay
        that may have known the winner (`Chain.unfinished`).
      max_failures: How many super-nodes of a zone may be said to have failed. Each
        is one more draw, and nobody can witness that it was not silenced.

    Returns:
      By zone the chain of its elections; all hold.

    Raises:
      ElectionError: If a transcript does not verify or does not follow the one
        before, a round's are not there, a seat is not as its transcripts say, too many
        were refused by a relay that may have known the winner, or too many super-nodes
        are said to have failed.
    """
    chains = {zone: Chain(registry) for zone, registry in registries.items()}
    held = read_seats(path)
    rounds = max(rounds, *held)
    if missing := _missing(held, range(1, rounds + 1)):
        there = f"elections of {len(held)} rounds, of {rounds} that were"
        raise ElectionError(f"{there}; missing: {missing}")
    for number, seats in held.items():
        if sorted(seat.zone for seat in seats) != sorted(chains):
            raise ElectionError(f"round {number} has other zones than the registry")
        for seat in seats:
            try:
                _follow(chains[seat.zone], number, seat)
            except ElectionError as error:
                raise ElectionError(
                    f"round {number}, zone {seat.zone}: {error}"
                ) from error
    for count, what, most in (
        ("unfinished", "refused elections may have had a winner", max_unfinished),
        ("failures", "super-nodes are said to have failed", max_failures),
    ):
        found = {zone: getattr(chain, count) for zone, chain in chains.items()}
        worst = max(found, key=found.get, default=None)
        if found and found[worst] > most:
            raise ElectionError(f"zone {worst}: {found[worst]} {what}; allowed: {most}")
    return chains


def _follow(chain: Chain, number: int, seat: Seat) -> None:
    """Checks one zone's seat in one round."""
    held, failed = 0, ()
    for text in seat.transcripts:
        transcript = Transcript.from_text(text)
        if transcript.call.round_number != number:
            raise ElectionError(
                f"a transcript is of {transcript.call.name(chain.registry.zone)!r}"
            )
        held += chain.follow(transcript) is not None
        failed = transcript.call.failed
    leads = chain.leader
    if chain.registry.policy == "rotate" and chain.standing.round_number != number:
        leads = None  # who won an earlier round's election led that round only
    if leads is None and not seat.transcripts:
        # Else a relay that does not like a winner tells nobody and calls others.
        raise ElectionError("nobody leads, and no transcript says why")
    if seat.super_node != leads:
        raise ElectionError(f"{seat.super_node!r} leads, but {leads!r} was elected")
    if seat.elections != held:
        raise ElectionError(f"{seat.elections} elections, but {held} were held")
    # Who was elected and silent at once is among those that failed as well.
    named = tuple(client for client in failed if client in seat.failed)
    if named != seat.failed:
        raise ElectionError(
            f"{list(seat.failed)} failed, but by the transcripts {failed}"
        )


def _file_of(number: int) -> str:
    return f"round_{number:05d}.json"


def _files(path: pathlib.Path) -> dict[int, pathlib.Path]:
    """Every round's file by its number, in the order of rounds."""
    found = {}
    for file in path.glob("round_*.json"):
        digits = file.stem.removeprefix("round_")
        number = int(digits) if digits.isdecimal() else 0
        if file.name != _file_of(number):
            raise FileError(file, "is named after no round")
        found[number] = file
    return dict(sorted(found.items()))


def _missing(there: Iterable[int], needed: Iterable[int]) -> str:
    """The files of the rounds that are not there, or nothing."""
    return ", ".join(map(_file_of, sorted(set(needed) - set(there))))


def _check_there(
    path: pathlib.Path, there: Iterable[int], released: Iterable[int]
) -> None:
    if missing := _missing(there, released):
        raise FileError(path, f"lacks what rounds released left there: {missing}")


def _read_round(file: pathlib.Path) -> list[Seat]:
    rows = read_json(file)
    # There is a zone at least.
    if not isinstance(rows, list) or not rows or not all(map(_is_seat, rows)):
        raise FileError(file, "holds no list of seats")
    return list(map(_seat_of, rows))


def _is_seat(row: Any) -> bool:
    return isinstance(row, dict) and all(
        name in row and isinstance(row[name], kind) and not isinstance(row[name], bool)
        for name, kind in _KINDS.items()
    )


def _seat_of(row: dict[str, Any]) -> Seat:
    names = [field.name for field in dataclasses.fields(Seat) if field.name in row]
    # JSON has lists for tuples.
    tuples = {name: tuple(row[name]) for name in ("failed", "transcripts")}
    return Seat(**{name: row[name] for name in names} | tuples)


def count_exposure(
    path: pathlib.Path, releases: Mapping[int, int] | None = None
) -> Counter[str]:
    """How many zone aggregates each client saw that saw any.

    Args:
      path: The run folder's `elections`.
      releases: How often each round was released, by its number. Its elections stood,
        so whoever led saw as many aggregates. None takes every round as released once.

    Raises:
      FileNotFoundError: If there are no rounds.
      FileError: If a file holds no list of seats, or a round released has none.
    """
    seen: Counter[str] = Counter()
    for number, seats in read_seats(path, releases or ()).items():
        times = 1 if releases is None else releases.get(number, 0)
        leaders = (seat.super_node for seat in seats)
        seen.update([leader for leader in leaders if leader is not None] * times)
    return seen


def count_tenures(path: pathlib.Path) -> list[int]:
    """How many rounds in a row each super-node led its zone, election by election.

    A round in which nobody led the zone ends the term before it, and whoever is elected
    begins one, even if it led before.
    """
    tenures: list[int] = []
    leads: dict[int, int] = {}
    for seats in read_seats(path).values():
        for seat in seats:
            zone = seat.zone
            if seat.super_node is None:
                leads.pop(zone, None)
                continue
            if seat.elections or zone not in leads:
                leads[zone] = len(tenures)
                tenures.append(0)
            tenures[leads[zone]] += 1
    return tenures


def summary(path: pathlib.Path, releases: Mapping[int, int] | None = None) -> str:
    """Elections, skipped zones, tenure and exposure of a run, in words.

    Args:
      path: The run folder's `elections`.
      releases: As `count_exposure` takes it.
    """
    rounds = read_seats(path).values()
    seen, tenures = count_exposure(path, releases), count_tenures(path)
    held = sum(seat.elections for seats in rounds for seat in seats)
    skipped = sum(seat.super_node is None for seats in rounds for seat in seats)
    mean = sum(tenures) / max(1, len(tenures))
    return (
        f"{held} elections, {skipped} zones skipped in {len(rounds)} rounds; "
        f"{mean:.3g} rounds in power on average, {max(tenures, default=0)} at most; "
        f"{len(seen)} clients saw an aggregate, the most exposed one "
        f"{max(seen.values(), default=0)}"
    )


def report_exposure(folder: pathlib.Path) -> str:
    """Writes `exposure.csv` into a run folder and says what it holds.

    A round that was released again counts each time. Elections of rounds after the last
    one released are taken away: they were held in advance, and nobody led by them.

    Raises:
      FileError: If a round released has no elections there, or they cannot be read.
    """
    journal, path = Journal(folder / "journal.jsonl"), folder / "elections"
    for number, file in _files(path).items():
        if number > journal.last_round:
            file.unlink()
    releases = journal.releases_by_round
    seen = count_exposure(path, releases)
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["client", "aggregates_seen"])
    rows.writerows(sorted(seen.items(), key=lambda pair: (-pair[1], pair[0])))
    write_text(folder / "exposure.csv", table.getvalue())
    return summary(path, releases) + " (exposure.csv)"
