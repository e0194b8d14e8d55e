"""All five systems on one task at the same sound epsilon, in one table.

    python scripts/papers/comparison/reproduce.py --task=mnist --num_clients=500 \
        --target_epsilon=8

The epsilon is that of the client worst off against whoever gets all that a system
releases. Leaves one run folder a system, table.csv and table.txt in --out; the
same command again resumes.
"""

import sys

from tff_hdp import cli


def define_flags() -> None:
    """Defines a flag for every setting of a comparison."""
    from scripts.papers.comparison.config import MatchedConfig

    cli.define_flags(MatchedConfig)


def main(argv: list[str]) -> int:
    """Runs the systems and prints the table."""
    cli.refuse_arguments(argv)
    from scripts.papers.comparison import runs as matched
    from scripts.papers.comparison.config import MatchedConfig

    config = cli.config_from_flags(MatchedConfig)
    print(matched.compare(config).to_string(index=False))
    print(f"\nwhat each epsilon rests on: {config.out}/table.txt")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
