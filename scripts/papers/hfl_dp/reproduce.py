"""Figures 2 to 6 and table 3 of the HFL-DP paper, and what its text leaves open.

    python scripts/papers/hfl_dp/reproduce.py --what=account
    python scripts/papers/hfl_dp/reproduce.py --scale=reduced --what=figure2,figure4

Runs, or resumes, the presets scripts/papers/hfl_dp/*.flags: a run folder a line and
seed under --out, docs/results/hfl_dp/<part>.csv with a row a run, its table in
docs/hfl_dp.md and its picture in docs/figures. `readings` has the printed points by
other counts of exposures, `per_edge` where n is the clients of one edge, and
`full_batch` with one step on all of a client's examples a local iteration. `account`
trains nothing: what each noise is worth, and each setting's whole run; its CSVs go to
--out/hfl_dp if --out is given. Takes every flag of scripts/hfl_dp.py but those by which
a part's lines differ; it then counts for all runs, and results stay in --out.
"""

import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.systems.hfl_dp.config import HflDpConfig

ACCOUNT = "account"
PARTS = (
    *("figure2", "figure3", "figure4", "figure5", "figure6", "table3"),
    *("readings", "full_batch", "per_edge"),
)


def define_flags() -> None:
    """Defines the program's flags."""
    from scripts.papers import program

    every = (ACCOUNT, *PARTS)
    program.define_flags(every, HflDpConfig, default=every[:-2])


def main() -> int:
    """Runs the parts asked for."""
    from scripts.papers import program
    from scripts.papers.hfl_dp import closed_form, figures, trained
    from tff_hdp.systems.hfl_dp.worth import READING

    trains = [part for part in flags.FLAGS.what if part != ACCOUNT]
    if len(trains) < len(flags.FLAGS.what):
        tables = {"noise": closed_form.noise, "epsilons": closed_form.epsilons}
        program.write_accounts(
            tables,
            HflDpConfig,
            paper="hfl_dp",
            heeded=closed_form.HEEDED,
            alone=not trains,
            notes={"noise": READING, "epsilons": closed_form.READING},
        )
    if not trains:
        return 0
    return program.run(
        trains,
        HflDpConfig,
        paper="hfl_dp",
        page="hfl_dp.md",
        studies=trained.studies,
        draw=figures.draw,
    )


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
