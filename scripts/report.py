"""Table and figure of finished runs side by side.

python scripts/report.py --runs=runs/mnist/none,runs/mnist/hdp --out=runs/mnist
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

RUNS = flags.DEFINE_list("runs", None, "Run folders, in the order of the table.")
OUT = flags.DEFINE_string("out", None, "Folder for table.csv, table.txt, accuracy.png.")


def main(argv: list[str]) -> int:
    """Prints the table and writes it with the figure."""
    cli.refuse_arguments(argv)
    for flag in (RUNS, OUT):
        if not flag.value:
            raise ArgumentError(flag.name, flag.value, "a value, see --help")
    from tff_hdp.simulation import report

    runs = [report.read_run(pathlib.Path(path)) for path in RUNS.value]
    folder = pathlib.Path(OUT.value)
    report.write_comparison(runs, folder)
    print(report.comparison_text(runs))
    print(f"\ntable:  {folder / 'table.txt'}\nfigure: {folder / 'accuracy.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
