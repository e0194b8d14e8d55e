"""What a run's elections came to: who saw how many aggregates, terms of office."""

import csv
import io
import pathlib
from collections import Counter
from collections.abc import Mapping

from tff_hdp.files import write_text
from tff_hdp.simulation.journal import Journal
from tff_hdp.systems.hdp.seats import forget_seats, read_seats


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
    forget_seats(path, journal.last_round)
    releases = journal.releases_by_round
    seen = count_exposure(path, releases)
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["client", "aggregates_seen"])
    rows.writerows(sorted(seen.items(), key=lambda pair: (-pair[1], pair[0])))
    write_text(folder / "exposure.csv", table.getvalue())
    return summary(path, releases) + " (exposure.csv)"
