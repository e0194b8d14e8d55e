"""Checks every election of a run again, as anybody can who has its transcripts.

python scripts/verify_elections.py --run=runs/digits_hdp
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError


def define_flags() -> None:
    """Defines whose elections."""
    flags.DEFINE_string("run", None, "The run folder.")


def main(argv: list[str]) -> int:
    """Prints what was verified and how often which client saw an aggregate."""
    cli.refuse_arguments(argv)
    run = flags.FLAGS.run
    if run is None or not pathlib.Path(run).is_dir():
        raise ArgumentError("run", run, "a run folder")
    from tff_hdp.systems.hdp import seats

    path = pathlib.Path(run) / "elections"
    count = seats.verify_seats(path)
    print(f"{count} transcripts verify; every super-node seated was elected")
    print(seats.summary(path))
    return 0


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
