"""Checks every election of a run again, as anybody can who has its transcripts.

python scripts/verify_elections.py --run=runs/elected --registry=registry.json
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError


def define_flags() -> None:
    """Defines whose elections, and by which keys."""
    flags.DEFINE_string("run", None, "The run folder.")
    flags.DEFINE_string(
        "registry",
        None,
        "The zones' clients and keys as you know them; without it those that the run "
        "wrote down itself, which tells nothing of who made them.",
    )
    flags.DEFINE_integer(
        "rounds",
        None,
        "How many rounds you know of; without it as many as the run says it released.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "max_unfinished",
        0,
        "How many elections of a zone may have been refused by a relay that may have "
        "known the winner: where not all clients are called, any refused one.",
    )
    flags.DEFINE_integer(
        "max_failures",
        0,
        "How many super-nodes of a zone may be said to have failed, or to have left: "
        "a relay that silences one draws anew.",
    )


def main() -> int:
    """Prints what was verified and how often which client saw an aggregate."""
    run = flags.FLAGS.run
    if run is None or not pathlib.Path(run).is_dir():
        raise ArgumentError("run", run, "a run folder")
    from tff_hdp.protocols.elections.electorate import ElectionError
    from tff_hdp.simulation.journal import Journal
    from tff_hdp.simulation.record import refuse_older_journal
    from tff_hdp.systems.hdp import exposure, seats, verification

    path = pathlib.Path(run) / "elections"
    if not path.is_dir():
        raise ArgumentError("run", run, "a run with elections")
    registry = pathlib.Path(flags.FLAGS.registry or path / seats.REGISTRY)
    if not registry.is_file():
        raise ArgumentError("registry", registry, "a file of registries")
    journal = pathlib.Path(run) / "journal.jsonl"
    if not (journal.is_file() or flags.FLAGS.rounds):
        # Transcripts cut off at the end would be missed by nothing else.
        raise ArgumentError("run", run, f"one with its {journal.name}, or --rounds")
    kept = Journal(journal)
    if kept.releases:
        refuse_older_journal(pathlib.Path(run), kept, 0)
    try:
        chains = verification.verify_seats(
            path,
            seats.read_registries(registry),
            rounds=flags.FLAGS.rounds or kept.last_round,
            max_unfinished=flags.FLAGS.max_unfinished,
            max_failures=flags.FLAGS.max_failures,
        ).values()
    except ElectionError as error:
        raise FileError(path, str(error)) from error
    print(
        f"{sum(chain.transcripts for chain in chains)} transcripts verify by the keys "
        f"of {registry}; every super-node seated was elected"
    )
    print(
        f"{sum(chain.refused for chain in chains)} elections refused, "
        f"{sum(chain.unfinished for chain in chains)} of them by a relay that may "
        f"have known the winner; {sum(chain.failures for chain in chains)} super-nodes "
        "said to have failed"
    )
    releases = kept.releases_by_round if journal.is_file() else None
    print(exposure.summary(path, releases))
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
