"""UDP-Alg's Figures 2a, 2b and 3: sweeps of S and sigma, and Noiseless.

    python scripts/papers/udp_alg/reproduce.py --what=figure2a --scale=reduced
    python scripts/papers/udp_alg/reproduce.py --what=account

Runs, or resumes, the presets scripts/papers/udp_alg/*.flags with every sigma and S of
the figure: a run folder a curve and seed under --out, docs/results/udp_alg/<part>.csv
with a row a run, its table in docs/udp_hypernet.md and its picture in docs/figures.
`account` trains nothing; its CSV goes to --out/udp_alg if --out is given. Takes every
flag of scripts/udp_hypernet.py but those by which curves differ; it then counts for
all, and results stay in --out. A part whose data is not at hand is left out, and said
to be.
"""

import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError, check_positive
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

ACCOUNT = "account"
PARTS = (
    *("figure2a", "descriptors", "figure2b", "figure3"),
    *("figure2a_eps10", "figure2a_wide", "figure2b_mnist"),
)
SWEPT = ("sigma", "clip_norm", "privacy", "noise_multiplier", "target_epsilon")


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_float(
        "private_server_learning_rate",
        None,
        "lambda of the curves with noise, whose steps are clipped; default: the "
        "scale's.",
    )
    from scripts.papers import program

    every = (ACCOUNT, *PARTS)
    program.define_flags(every, UdpHypernetConfig, default=PARTS[:4])


def main() -> int:
    """Runs the parts asked for."""
    from scripts.papers import presets, program
    from scripts.papers.udp_alg import closed_form, figures, trained

    rate = flags.FLAGS.private_server_learning_rate
    if rate is not None:
        check_positive("private_server_learning_rate", rate)
    given = presets.given(UdpHypernetConfig)
    for name in SWEPT:
        if name in given:
            raise ArgumentError(name, given[name], "nothing, the figure's are run")
    trains = [part for part in flags.FLAGS.what if part != ACCOUNT]
    if not trains:
        program.refuse_of_training(["private_server_learning_rate"])
    if len(trains) < len(flags.FLAGS.what):
        program.write_accounts(
            {ACCOUNT: closed_form.table},
            UdpHypernetConfig,
            paper="udp_alg",
            heeded=closed_form.HEEDED,
            alone=not trains,
            notes={ACCOUNT: closed_form.READING},
        )
    if not trains:
        return 0
    return program.run(
        trains,
        UdpHypernetConfig,
        paper="udp_alg",
        page="udp_hypernet.md",
        studies=lambda scale: trained.studies(scale, rate),
        draw=figures.draw,
        own=rate is not None,
    )


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
