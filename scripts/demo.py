"""The main comparison on real digits: no DP, CDP, HDP and LDP, with epsilons.

    make demo

Trains four models on scikit-learn's bundled digits, prints who is promised
what, draws accuracy over rounds, and what a super-node sees of its clients' digits.
Takes the flags of scripts/train.py, but for --privacy and what only some of the four
modes take (--alpha, --beta, adaptive clipping); --target_epsilon chooses another
multiplier for every mode. With --plan it trains two: none, and the plan's noise.
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.hdp.config import HdpConfig

DEMO = {
    "task": "digits",
    "zones": 5,
    "clients_per_round": 50,
    "rounds": 60,
    "client_learning_rate": 0.1,
    "noise_multiplier": 1.0,
    "clip_norm": "0.5",
    "out": "runs/demo",
}


def comparison_config() -> HdpConfig:
    """The flags as the settings that the modes share.

    Raises:
      ArgumentError: If a flag is out of range or fits only some of the modes.
    """
    if flags.FLAGS["privacy"].present:
        raise ArgumentError(
            "privacy",
            flags.FLAGS.privacy,
            "nothing with a comparison, which runs none, cdp, hdp and ldp",
        )
    for name in ("plan", "target_epsilon"):
        if flags.FLAGS[name].value is not None:
            if flags.FLAGS["noise_multiplier"].present:
                z = flags.FLAGS.noise_multiplier
                raise ArgumentError("noise_multiplier", z, f"either it or --{name}")
            flags.FLAGS.noise_multiplier = None
    return cli.config_from_flags(HdpConfig)


def main() -> int:
    """Runs the comparison and prints its table."""
    config = comparison_config()
    from tff_hdp.simulation import report
    from tff_hdp.systems.hdp import modes as compare

    runs = compare.compare(config)
    folder = pathlib.Path(config.out)
    print(f"\n{report.comparison_text(runs)}")
    print(f"\ntable:  {folder / 'table.txt'}\nfigure: {folder / 'accuracy.png'}")
    from tff_hdp.attacks import figures

    seen = folder / "seen_by_super_node.png"
    figures.digits_seen_by_super_node(str(seen))
    print(f"what a super-node sees of a digit, each mode at z = 1: {seen}")
    return 0


cli.define_flags(HdpConfig)
for name, value in DEMO.items():
    flags.FLAGS.set_default(name, value)

if __name__ == "__main__":
    sys.exit(cli.run(main))
