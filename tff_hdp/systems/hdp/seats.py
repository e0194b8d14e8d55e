"""Who led which zone in every round of a run, as it is kept in the run folder.

`<run folder>/elections/round_00012.json` holds a list with a `Seat` per zone.
`registry.json` beside it holds the zones' clients and keys. Who does not trust the run
brings a registry of its own.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from tff_hdp.errors import FileError
from tff_hdp.files import sync_names, write_json
from tff_hdp.protocols.elections.electorate import ElectionError, Registry
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


def forget_seats(path: pathlib.Path, last: int) -> None:
    """Takes away the seats of rounds after the last one."""
    for number, file in _files(path).items():
        if number > last:
            file.unlink()


def missing_files(there: Iterable[int], needed: Iterable[int]) -> str:
    """The names of the rounds' files that are needed and not there, or nothing."""
    return ", ".join(map(_file_of, sorted(set(needed) - set(there))))


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


def _check_there(
    path: pathlib.Path, there: Iterable[int], released: Iterable[int]
) -> None:
    if missing := missing_files(there, released):
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
