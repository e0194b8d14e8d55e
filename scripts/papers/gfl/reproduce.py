"""Figure 2 of the GFL paper, its theorem's rates, and the schemes on MNIST by writer.

    python scripts/papers/gfl/reproduce.py --what=figure2 --seeds=0,1,2 --jobs=2

Runs, or resumes, the presets scripts/papers/gfl/*.flags: a run folder a line and seed
under --out, docs/results/gfl/<part>.csv with a row a run, its table in docs/gfl.md and
its pictures in docs/figures. A seed decides data, graph and cohorts, for all schemes
alike. Takes every flag of scripts/gfl.py but those by which lines differ; it then
counts for all runs, and results stay in --out.
"""

import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.systems.gfl.config import GflConfig

PARTS = ("figure2", "mnist")


def define_flags() -> None:
    """Defines the program's flags."""
    from scripts.papers import program

    program.define_flags(PARTS, GflConfig, scale="full")


def main() -> int:
    """Runs the parts asked for."""
    from scripts.papers import program
    from scripts.papers.gfl import figures, trained

    return program.run(
        *(flags.FLAGS.what, GflConfig),
        paper="gfl",
        page="gfl.md",
        studies=trained.studies,
        draw=figures.draw,
    )


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
