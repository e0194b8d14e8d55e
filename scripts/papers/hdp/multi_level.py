"""Epsilon at every level of a tree: the HDP paper's formula beside the sound account.

python scripts/papers/hdp/multi_level.py --figure=docs/figures/levels.png
python scripts/papers/hdp/multi_level.py --fan_ins=20,5,5,2 --noise_multiplier=2
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError


def define_flags() -> None:
    """Defines the arguments of `hierarchy.multi_level`."""
    flags.DEFINE_list(
        "fan_ins",
        ["10", "5", "2"],
        "Clients online in a zone, zones under a node of level 2, and so on.",
    )
    flags.DEFINE_float("q", 0.2, "Sampling probability of a client.")
    flags.DEFINE_float("noise_multiplier", 1.0, "z of every party that adds noise.")
    flags.DEFINE_integer("rounds", 200, "Rounds T.")
    flags.DEFINE_float("delta", 1e-5, "delta of (epsilon, delta).")
    flags.DEFINE_string("figure", None, "Also draw it to this file.")


def main(argv: list[str]) -> int:
    """Prints the table and draws the figure."""
    cli.refuse_arguments(argv)
    values = flags.FLAGS
    figure = values.figure
    if figure and not pathlib.Path(figure).resolve().parent.is_dir():
        raise ArgumentError("figure", figure, "a file in a folder there is")
    from scripts.papers.hdp import figures
    from scripts.papers.hdp import levels as hierarchy

    try:
        fan_ins = tuple(map(int, values.fan_ins))
    except ValueError as error:
        raise ArgumentError("fan_ins", values.fan_ins, "whole numbers") from error
    rows = hierarchy.multi_level(
        fan_ins=fan_ins,
        q=values.q,
        noise_multiplier=values.noise_multiplier,
        rounds=values.rounds,
        delta=values.delta,
    )
    print("noise at  output of  paper     sound (RDP)  seen by")
    for row in rows:
        print(
            f"level {row['noise_at']}   level {row['level']}    "
            f"{row['epsilon_paper']:<9.4g} {row['epsilon_rdp']:<12.4g} "
            f"{row['observer'].replace('_', ' ')}"
        )
    for text in dict.fromkeys(
        f"noise at level {row['noise_at']}, output of level {row['level']}: "
        f"{row['neighbours']} neighbours; {row['sampling']}; {row['assumptions']}."
        for row in rows
    ):
        print(text)
    print(f"All at delta {values.delta:g}, {values.rounds} rounds.")
    if figure:
        figures.draw_levels(rows, fan_ins, figure)
    return 0


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
