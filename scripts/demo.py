"""The main comparison on real digits: no DP, CDP, HDP and LDP, with epsilons.

    make demo

Trains four models on scikit-learn's bundled digits, prints who is promised
what, and draws accuracy over rounds. Any flag of scripts/train.py can be given.
"""

import pathlib
import sys

import train as train_script
from absl import flags

from tff_hdp import cli

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


def main(argv: list[str]) -> int:
    """Runs the comparison and prints its table."""
    cli.refuse_arguments(argv)
    config = train_script.config_from_flags()
    from tff_hdp.simulation import compare, report

    runs = compare.compare(config)
    folder = pathlib.Path(config.out)
    print(f"\n{report.comparison_text(runs)}")
    print(f"\ntable:  {folder / 'table.txt'}\nfigure: {folder / 'accuracy.png'}")
    return 0


train_script.define_flags()
for name, value in DEMO.items():
    flags.FLAGS.set_default(name, value)

if __name__ == "__main__":
    sys.exit(cli.run(main))
