"""Regenerates UDP-Alg's Figures 2 and 3: sweeps of S and sigma, and Noiseless.

    python scripts/reproduce_udp_hypernet.py --figure=2a \
        --flagfile=scripts/flags/udp_hypernet_2a_small.flags \
        --private_server_learning_rate=0.1

Takes every flag of scripts/udp_hypernet.py; --sigma and --clip_norm come from the
figure. The preset without `_small` is the paper's scale. The same command again
resumes.
"""

import dataclasses
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.simulation.systems.udp_hypernet_config import UdpHypernetConfig

FIGURE = flags.DEFINE_enum(
    "figure", None, ["2a", "2b", "3"], "CIFAR-10, FEMNIST or CelebA."
)
PRIVATE_RATE = flags.DEFINE_float(
    "private_server_learning_rate",
    None,
    "lambda of the curves with noise, whose steps are clipped; default: "
    "--server_learning_rate.",
    lower_bound=0.0,
)
ACCOUNT_ONLY = flags.DEFINE_boolean(
    "account_only", False, "Only print the curves' epsilons after --rounds."
)


def main(argv: list[str]) -> int:
    """Runs the curves of a figure and prints its table."""
    cli.refuse_arguments(argv)
    if FIGURE.value is None:
        raise cli.UsageError("--figure is missing; allowed: 2a, 2b, 3")
    config = cli.config_from_flags(UdpHypernetConfig)
    if flags.FLAGS["out"].value is None:
        config = dataclasses.replace(config, out=f"runs/udp_figure_{FIGURE.value}")
    if ACCOUNT_ONLY.value:
        from tff_hdp.simulation import udp_curves

        print(udp_curves.account_table(config, FIGURE.value).to_string(index=False))
        return 0
    from tff_hdp.simulation import udp_figures

    found = udp_figures.draw(config, FIGURE.value, private_rate=PRIVATE_RATE.value)
    print(found.to_string(index=False))
    print(f"\nfigure: {config.out}/figure.png\ntable:  {config.out}/table.txt")
    return 0


if __name__ == "__main__":
    cli.define_flags(UdpHypernetConfig)
    sys.exit(cli.run(main))
