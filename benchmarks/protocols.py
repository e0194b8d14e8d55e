"""Measures what elections and secure aggregation cost a round.

    python benchmarks/protocols.py --protocol=bonawitz --clients=100 --zones=10
    python benchmarks/protocols.py --full --out=docs/figures

One cell is printed; --full runs the whole grid, one zone of each size for all
like it, and leaves protocols_costs.csv and protocols_costs.png in --out.
Processor seconds of each party's own work, without a network.
"""

import csv
import json
import logging
import sys
from pathlib import Path

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

_LOG = logging.getLogger("tff_hdp.bench_protocols")


def define_flags() -> None:
    """Defines the flags; ranges are checked by the library."""
    from benchmarks.protocol_costs import PROTOCOLS

    flags.DEFINE_enum("protocol", "bonawitz", list(PROTOCOLS), "What to run.")
    flags.DEFINE_integer("clients", 100, "Clients k of all zones together.")
    flags.DEFINE_integer("zones", 10, "Zones s.")
    flags.DEFINE_integer("model_size", 100_000, "Coordinates of an update.")
    flags.DEFINE_float("dropout", 0.0, "Share of clients that drop out.")
    flags.DEFINE_enum(
        "fault_model", "byzantine", ["crash", "byzantine"], "For elections."
    )
    flags.DEFINE_boolean("json", False, "Print one JSON object.")
    flags.DEFINE_boolean("full", False, "Run the grid; write a CSV and a figure.")
    flags.DEFINE_string("out", "docs/figures", "Folder for --full.")


def main() -> int:
    """Runs one cell, or the grid."""
    if flags.FLAGS.full:
        return run_grid(Path(flags.FLAGS.out))
    return run_cell()


def run_cell() -> int:
    """Measures the cell of the flags and prints it."""
    from benchmarks import protocol_costs
    from tff_hdp.protocols.elections.electorate import BeyondThresholdError
    from tff_hdp.protocols.secagg.errors import BelowThresholdError

    names = ("protocol", "clients", "zones", "model_size", "dropout", "fault_model")
    cell = protocol_costs.Cell(**{name: flags.FLAGS[name].value for name in names})
    try:
        row = protocol_costs.measure(cell)
    except (BelowThresholdError, BeyondThresholdError) as error:
        raise ArgumentError(
            "dropout",
            cell.dropout,
            f"what leaves each of --zones={cell.zones} its threshold with "
            f"--clients={cell.clients} ({error})",
        ) from error
    if flags.FLAGS.json:
        print(json.dumps(row))
    else:
        for name, value in row.items():
            print(f"{name:24} {value:.4f}" if _is_time(name) else f"{name:24} {value}")
    return 0


def run_grid(out: Path) -> int:
    """Measures every cell of the grid, writing each row as it is known."""
    import pandas as pd

    from benchmarks import cost_figures, protocol_costs

    out.mkdir(parents=True, exist_ok=True)
    table = out / "protocols_costs.csv"
    left_out = 0
    with table.open("w", newline="") as file:
        writer = None
        for cell, row in protocol_costs.measure_all(protocol_costs.grid()):
            if row is None:
                left_out += 1
                continue
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(
                {k: f"{v:.6f}" if _is_time(k) else v for k, v in row.items()}
            )
            file.flush()
            _LOG.info("%s: %.3f s critical, %.2f s in all", cell, *map(row.get, _TIMES))
    cost_figures.draw_costs(pd.read_csv(table), out / "protocols_costs.png")
    print(f"{table}: {left_out} cells left out, their zones below the threshold")
    return 0


_TIMES = ("critical_path_seconds", "total_seconds")


def _is_time(name: str) -> bool:
    return name.endswith("_seconds")


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
