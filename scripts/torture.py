"""Tortures run folders, and counts what came of it.

    python scripts/torture.py --cases=3
    python scripts/torture.py --systems=hdp,gfl --kinds=events --cases=100

Runs of all systems are killed at random times (`kill`), killed before and after writes
to their folder (`events`), meet a full disk there (`full`), find a file damaged,
deleted or replaced by a folder (`damage`), or are started twice at once (`twins`);
then they are resumed. Exit code 1 if a ledger or privacy.json ever counted fewer rounds
than were found released, or a program ended with more than a line.
"""

import collections
import itertools
import pathlib
import shutil
import sys
import tempfile

from absl import flags

from tff_hdp import cli


def define_flags() -> None:
    """Defines what is tortured, and how much."""
    from scripts.parts.torture_folders import KINDS, SYSTEMS

    cli.define_choices("systems", SYSTEMS, SYSTEMS)
    cli.define_choices("kinds", KINDS, KINDS)
    flags.DEFINE_integer("cases", 3, "How many of each; of damage, four times.")


def main() -> int:
    """Prints a row for each system and kind."""
    values = flags.FLAGS
    # For the children, which are forked: each would take seconds over it.
    import tff_hdp.simulation.experiment  # noqa: F401

    bad = 0
    print(
        f"{'system':14}{'kind':8}{'cases':>7}{'finished':>10}{'refused':>9}"
        f"{'exact':>7}{'more':>6}{'understated':>13}{'tracebacks':>12}"
    )
    for system in values.systems:
        for kind in values.kinds:
            with tempfile.TemporaryDirectory() as path:
                counts = _count(system, kind, values.cases, pathlib.Path(path))
            bad += counts["understated"] + counts["tracebacks"]
            print(
                f"{system:14}{kind:8}{counts['cases']:7}{counts['finished']:10}"
                f"{counts['refused']:9}{counts['exact']:7}{counts['more']:6}"
                f"{counts['understated']:13}{counts['tracebacks']:12}",
                flush=True,
            )
    return int(bad > 0)


def _count(system: str, kind: str, cases: int, path: pathlib.Path) -> dict[str, int]:
    from scripts.parts import torture_folders

    counts: dict[str, int] = collections.Counter()
    number = itertools.count()
    for folder in getattr(torture_folders, kind)(
        lambda: torture_folders.Folder(system, path / str(next(number))), cases
    ):
        counts["cases"] += 1
        counts["understated"] += folder.understated
        counts["tracebacks"] += folder.tracebacks
        counts["finished" if folder.is_finished else "refused"] += 1
        counts["exact"] += folder.rounds == torture_folders.ROUNDS
        counts["more"] += folder.rounds > torture_folders.ROUNDS
        shutil.rmtree(folder.path)
    return counts


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
