"""The main comparison on real digits: no DP, CDP, HDP and LDP, with epsilons.

    make demo

Trains four models on scikit-learn's bundled digits, prints who is promised
what, and draws accuracy over rounds. Any flag of scripts/train.py can be given.
"""

import sys

import train as train_script
from absl import flags

from tff_hdp import cli

DEMO = {
    "task": "digits",
    "zones": 5,
    "clients_per_round": 50,
    "rounds": 40,
    "client_learning_rate": 0.1,
    "noise_multiplier": 1.0,
    "clip_norm": "1.0",
    "out": "runs/demo",
}


def main(argv: list[str]) -> int:
    """Runs the comparison and prints its table."""
    cli.refuse_arguments(argv)
    config = train_script.config_from_flags()
    from tff_hdp.simulation.compare import compare

    comparison = compare(config)
    print(f"\n{comparison.table.to_string(index=False)}")
    print("\nEpsilon is for one client (all its data), at the delta shown. none: no")
    print("guarantee against that observer. What each epsilon rests on:\n")
    print(comparison.assumptions)
    print(f"\ntable:   {comparison.folder / 'table.txt'}")
    print(f"figure:  {comparison.folder / 'accuracy.png'}")
    return 0


if __name__ == "__main__":
    train_script.define_flags()
    for name, value in DEMO.items():
        flags.FLAGS.set_default(name, value)
    sys.exit(cli.run(main))
