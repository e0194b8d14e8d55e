"""All five systems on one task at the same sound epsilon, in one table.

    python scripts/papers/comparison/reproduce.py --what=mnist --seeds=0,1,2

The epsilon is that of the client worst off against whoever gets all that a system
releases. Runs, or resumes, a run folder a system and seed under --out, and writes
docs/results/comparison/<part>.csv with a row a run, its table in docs/comparison.md
and its picture in docs/figures. A setting on the command line counts for all systems;
results then stay in --out. --systems chooses which are run. `mnist_without_noise` is
what the systems reach without noise.
"""

import sys
from collections.abc import Mapping
from typing import Any

from absl import flags

from tff_hdp import cli

PARTS = (
    *("mnist", "mnist_linear", "mnist_coarse", "cifar10"),
    "mnist_without_noise",
)


def define_flags() -> None:
    """Defines a flag for every setting of a comparison."""
    from scripts.papers import program
    from scripts.papers.comparison.config import SYSTEMS, MatchedConfig

    cli.define_choices("systems", SYSTEMS, SYSTEMS)
    program.define_flags(PARTS, MatchedConfig, scale="full", default=PARTS[:1])


def main() -> int:
    """Runs the systems and prints the table."""
    asked = flags.FLAGS
    from scripts.papers import presets, program
    from scripts.papers.comparison import trained
    from scripts.papers.comparison.config import MatchedConfig

    target = presets.given(MatchedConfig).get("target_epsilon")

    def wanted(label: Mapping[str, Any]) -> bool:
        return trained.system_of(label) in asked.systems

    return program.run(
        asked.what,
        MatchedConfig,
        paper="comparison",
        page="comparison.md",
        studies=lambda scale: trained.studies(scale, target),
        draw=trained.draw,
        wanted=wanted,
    )


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
