"""Checks a run's elections again from their transcripts, as anybody can."""

import pathlib
from collections.abc import Mapping

from tff_hdp.protocols.elections.chain import Chain
from tff_hdp.protocols.elections.electorate import ElectionError, Registry
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.systems.hdp.seats import Seat, missing_files, read_seats


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
    if missing := missing_files(held, range(1, rounds + 1)):
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
