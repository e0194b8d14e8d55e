"""UDP-Alg's Figures 2a, 2b and 3: sweeps of S and sigma, and Noiseless.

    python scripts/papers/udp_alg/reproduce.py --scale=reduced

Runs the presets scripts/papers/udp_alg/*.flags with every sigma and S of the
figure (or resumes them) and leaves, in a folder for each figure under --out, a run
folder a curve, table.txt, table.csv and figure.png. Takes every flag of
scripts/udp_hypernet.py, which then counts for all curves instead of the presets'. A
figure whose data is not at hand is left out, and said to be.
"""

import pathlib
import sys

from absl import flags

from tasks import DataNotFoundError
from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

FIGURES = ("2a", "2b", "3")
PRESETS = {
    "full": {figure: f"udp_alg/{figure}" for figure in FIGURES},
    "reduced": {figure: f"udp_alg/{figure}_small" for figure in FIGURES},
}
# lambda of the curves with noise, where it is not Noiseless's: their steps are
# clipped to a fraction of its.
PRIVATE_RATES = {"udp_alg/2a_small": 0.0125, "udp_alg/2b_small": 1.5}
SWEPT = ("sigma", "clip_norm", "privacy", "noise_multiplier", "target_epsilon")

SCALE = flags.DEFINE_enum("scale", "reduced", list(PRESETS), "How large.")
WHAT = flags.DEFINE_list("what", list(FIGURES), "CIFAR-10, FEMNIST, CelebA.")
PRIVATE_RATE = flags.DEFINE_float(
    "private_server_learning_rate",
    None,
    "lambda of the curves with noise, whose steps are clipped; default: the scale's.",
)
ACCOUNT_ONLY = flags.DEFINE_boolean(
    "account_only", False, "Only print the curves' epsilons after --rounds."
)


def main(argv: list[str]) -> int:
    """Runs the curves of the figures and prints their tables."""
    cli.refuse_arguments(argv)
    cli.check_choices("what", WHAT.value, FIGURES)
    from scripts.papers import presets

    given = presets.given(UdpHypernetConfig)
    for name in SWEPT:
        if name in given:
            raise ArgumentError(name, given[name], "nothing, the figure's are run")
    out = pathlib.Path(given.pop("out", "runs/udp_hypernet"))
    configs = {
        name: presets.read(name, UdpHypernetConfig, **given, out=str(out / figure))
        for figure, name in PRESETS[SCALE.value].items()
        if figure in WHAT.value
    }
    missing = []
    for name, config in configs.items():
        figure = pathlib.Path(config.out).name
        if ACCOUNT_ONLY.value:
            show_account(figure, config)
            continue
        try:
            rate = PRIVATE_RATE.value
            rate = PRIVATE_RATES.get(name) if rate is None else rate
            reproduce(figure, config, rate)
        except DataNotFoundError as error:
            missing.append(f"figure {figure} left out: {error}")
    if len(missing) == len(configs):
        raise DataNotFoundError("; ".join(missing))
    for line in missing:
        print(line)
    return 0


def show_account(figure: str, config: UdpHypernetConfig) -> None:
    """Prints what the curves of a figure are worth after the config's rounds."""
    from scripts.papers.udp_alg import curves as udp_curves

    table = udp_curves.account_table(config, figure)
    print(f"\nfigure {figure}\n{table.to_string(index=False)}")
    print(
        "epsilon of a user with all its data, against whoever gets the hypernetwork; "
        "Poisson sampling, the cohort hidden"
    )


def reproduce(
    figure: str, config: UdpHypernetConfig, private_rate: float | None
) -> None:
    """Runs the curves of a figure, writes and prints its table."""
    from scripts.papers.udp_alg import figures as udp_figures

    udp_figures.draw(config, figure, private_rate=private_rate)
    folder = pathlib.Path(config.out)
    print(f"\nfigure {figure}\n{(folder / 'table.txt').read_text()}")
    print(f"figure: {folder / 'figure.png'}\ntable:  {folder / 'table.txt'}")


if __name__ == "__main__":
    cli.define_flags(UdpHypernetConfig)
    sys.exit(cli.run(main))
