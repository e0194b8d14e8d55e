"""Who led which zone in every round of a run: records, transcripts, exposure.

`<run folder>/elections/round_00012.json` holds a list with a seat per zone: the
super-node that delivered the zone's aggregate (null if the zone was skipped),
those that failed before, why an election was refused, what it cost, and the
transcripts of all elections held.
"""

import csv
import json
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tff_hdp.errors import FileError
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.simulation.files import write_json


def write_seats(path: pathlib.Path, number: int, seats: Sequence[dict]) -> None:
    """Keeps a round's seats; a round prepared again overwrites them by the same."""
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / f"round_{number:05d}.json", list(seats))


def read_seats(path: pathlib.Path) -> list[list[dict[str, Any]]]:
    """The seats of every round, in the order of rounds.

    Raises:
      FileNotFoundError: If there are none.
    """
    files = sorted(path.glob("round_*.json"))
    if not files:
        raise FileNotFoundError(f"{path} holds no round_*.json of elections")
    return [json.loads(file.read_text()) for file in files]


def verify_seats(path: pathlib.Path) -> int:
    """Checks every transcript of a run, as anybody can, and who sits where.

    Args:
      path: The run folder's `elections`.

    Returns:
      How many transcripts there are; all hold.

    Raises:
      FileNotFoundError: If no elections were held.
      FileError: If a transcript does not verify, is not of that zone and round,
        or the super-node seated is neither its winner nor the one before.
    """
    count = 0
    seated: dict[int, str | None] = {}
    for number, seats in enumerate(read_seats(path), start=1):
        for seat in seats:
            zone = seat["zone"]
            try:
                _verify_seat(seat, number, seated.get(zone))
            except ValueError as error:
                file = path / f"round_{number:05d}.json"
                raise FileError(file, f"zone {zone}: {error}") from error
            seated[zone] = seat["super_node"]
            count += len(seat["transcripts"])
    return count


def _verify_seat(seat: dict[str, Any], number: int, before: str | None) -> None:
    winner = before
    for text in seat["transcripts"]:
        transcript = Transcript.from_json(text)
        winner = transcript.verify()
        session = transcript.setup.session
        if not session.startswith(f"zone {seat['zone']}, round {number},"):
            raise ValueError(f"a transcript is of {session!r}")
    if seat["super_node"] not in (None, winner):
        raise ValueError(f"{seat['super_node']!r} leads, but {winner!r} was elected")


def count_exposure(path: pathlib.Path) -> Counter[str]:
    """How many zone aggregates each client saw that saw any."""
    return Counter(
        seat["super_node"]
        for seats in read_seats(path)
        for seat in seats
        if seat["super_node"] is not None
    )


def summary(path: pathlib.Path) -> str:
    """Elections, skipped zones and exposure of a run, in words."""
    rounds = read_seats(path)
    seen = count_exposure(path)
    held = sum(seat["elections"] for seats in rounds for seat in seats)
    skipped = sum(seat["super_node"] is None for seats in rounds for seat in seats)
    return (
        f"{held} elections, {skipped} zones skipped in {len(rounds)} rounds; "
        f"{len(seen)} clients saw an aggregate, the most exposed one "
        f"{max(seen.values(), default=0)}"
    )


def report_exposure(folder: pathlib.Path) -> str:
    """Writes `exposure.csv` into a run folder and says what it holds."""
    seen = count_exposure(folder / "elections")
    with (folder / "exposure.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["client", "aggregates_seen"])
        rows.writerows(sorted(seen.items(), key=lambda pair: (-pair[1], pair[0])))
    return summary(folder / "elections") + " (exposure.csv)"
