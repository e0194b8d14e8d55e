"""The comparison over several seeds: mean accuracy of every mode, with its spread.

    python scripts/repeat.py --seeds=1,2,3,4,5 --out=runs/repeat

Takes every flag of scripts/demo.py. Seeds fix partition, cohorts and initial
weights, not the noise; seeded runs are for studies like this one.
"""

import dataclasses
import pathlib
import sys

import demo  # defines the flags
from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3", "4", "5"], "One comparison each.")


def main(argv: list[str]) -> int:
    """Runs one comparison a seed and prints accuracy by mode."""
    cli.refuse_arguments(argv)
    distinct = len(set(SEEDS.value)) == len(SEEDS.value)
    if not (distinct and all(seed.isdigit() for seed in SEEDS.value)):
        raise ArgumentError("seeds", SEEDS.value, "different whole numbers")
    config = demo.comparison_config()
    import pandas as pd

    from tff_hdp.systems.hdp import modes as compare

    folder = pathlib.Path(config.out)
    rows = []
    for seed in SEEDS.value:
        seeded = dataclasses.replace(
            config, seed=int(seed), out=str(folder / f"seed_{seed}")
        )
        for run in compare.compare(seeded):
            rows.append({"mode": run.flags["privacy"], "accuracy": run.accuracy})
    frame = pd.DataFrame(rows).groupby("mode", sort=False)["accuracy"]
    table = frame.agg(["mean", "std", "min", "max", "count"]).round(3)
    table.to_csv(folder / "table.csv")
    print(
        f"\naccuracy after {config.rounds} rounds, over seeds {','.join(SEEDS.value)}"
    )
    print(table.to_string())
    print(f"table: {folder / 'table.csv'}")
    return 0


if __name__ == "__main__":
    flags.FLAGS.set_default("out", demo.DEMO["out"].replace("demo", "repeat"))
    sys.exit(cli.run(main))
