"""Feeds the project what nobody should send it, and counts how it takes that.

    python scripts/torture_inputs.py --what=files,messages,flags,clients --count=2000

Files, protocol messages, flags, and single clients of a round, each mutated at
random. What is refused must be so in one short line, soon, and what is accepted must
be sound; anything else counts as crashed, is shown, and ends in exit code 1.
"""

import collections
import sys
from typing import TYPE_CHECKING

from absl import flags

from tff_hdp import cli

if TYPE_CHECKING:
    from scripts.parts.mutations import Counts

WHAT = ("files", "messages", "flags", "clients")


def define_flags() -> None:
    """Defines what to mutate and how often."""
    cli.define_choices("what", WHAT, WHAT)
    flags.DEFINE_integer("count", 2000, "Mutations of each.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Decides the mutations.", lower_bound=0)


def main() -> int:
    """Prints a table of what was refused, accepted and crashed."""
    from scripts.parts.torture_files import fuzz_files
    from scripts.parts.torture_flags import fuzz_flags
    from scripts.parts.torture_messages import fuzz_messages

    fuzz = {
        "files": fuzz_files,
        "messages": fuzz_messages,
        "flags": fuzz_flags,
        "clients": fuzz_clients,
    }
    counts: Counts = collections.Counter()
    for what in flags.FLAGS.what:
        counts += fuzz[what](flags.FLAGS.count, flags.FLAGS.seed)
    print(table(counts))
    return int(any(outcome == "crashed" for outcome, _ in counts))


def table(counts: "Counts") -> str:
    """A line for each thing that was mutated, and one for each way it crashed."""
    outcomes = ("refused", "accepted", "crashed")
    rows: dict[str, collections.Counter[str]] = {}
    for (outcome, what), count in counts.items():
        rows.setdefault(what.partition(": ")[0], collections.Counter())[outcome] += (
            count
        )
    lines = [f"{'':24}" + "".join(f"{outcome:>10}" for outcome in outcomes)]
    for what, row in rows.items():
        lines.append(f"{what:24}" + "".join(f"{row[o]:>10}" for o in outcomes))
    crashed = sorted(what for outcome, what in counts if outcome == "crashed")
    return "\n".join([*lines, *crashed])


def fuzz_clients(count: int, seed: int) -> "Counts":
    """Rounds of every system with one hostile client. Imports TensorFlow."""
    from scripts.parts import torture_clients, torture_systems
    from tff_hdp import runtime

    runtime.set_context("in_process")
    counts: Counts = collections.Counter()
    built = torture_systems.systems()
    for name, build in built.items():
        share = max(1, count // len(built))
        for outcome, why in torture_clients.torture(build(), share, seed):
            crash = f": {why}" if outcome == "crashed" else ""
            counts[outcome, name + crash] += 1
    return counts


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
