"""Times a round of HDP with elections and secure sums, by clients and by cohort.

    python benchmarks/hierarchy.py --data_dir=FOLDER --csv=FILE

Section VIII of the HDP paper asks for "run-times of the overall scheme, highlighting
time taken for both elections and secure aggregation, as a function of both n and k".
MNIST is dealt to n clients in zones; every zone elects its super-node anew in every
round, sums are taken by the protocol of Bonawitz et al., signed, and everything is run
for real among parties in one process, one part after the other. Critical paths are
processor seconds, in which zones and clients work side by side; the rest is by the
clock. Medians over rounds, and the whole's quartiles.
"""

import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from absl import flags

from tff_hdp import cli

if TYPE_CHECKING:
    from tff_hdp.systems.hdp.config import HdpConfig


def define_flags() -> None:
    """Defines the grid, and how often each of its cells is timed."""
    flags.DEFINE_string("task", "mnist", "Whose examples and model.")
    flags.DEFINE_string("data_dir", None, "Where local data packs lie.")
    flags.DEFINE_list("clients", ["500", "2000"], "n.")
    flags.DEFINE_list("cohorts", ["50", "100", "200"], "k, in expectation.")
    flags.DEFINE_integer("zones", 10, "Zones s.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Timed rounds of each.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Times every n and k, and prints a row for each."""
    import machine
    import pandas as pd

    machine.hide_gpus()
    f = flags.FLAGS
    rows = []
    for n in map(int, f.clients):
        for k in map(float, f.cohorts):
            rounds = pd.DataFrame(timed(config_of(n, k), f.rounds))
            quarters = rounds["seconds"].quantile([0.25, 0.75])
            row = {
                **{"n": n, "k": f"{k:g}", "rounds": f.rounds, **rounds.median()},
                **{"quarter": quarters[0.25], "three quarters": quarters[0.75]},
            }
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    machine.report(rows, f.csv, key=["n", "k"])
    return 0


def config_of(clients: int, cohort: float) -> "HdpConfig":
    """A run's settings."""
    from tff_hdp.systems.hdp.config import HdpConfig

    f = flags.FLAGS
    return HdpConfig(
        task=f.task,
        data_dir=f.data_dir,
        partition="iid",
        num_clients=clients,
        clients_per_round=cohort,
        zones=f.zones,
        privacy="hdp",
        noise_multiplier=1.0,
        clip_norm=1.0,
        elect_super_nodes="rotate",
        secure_aggregation="zone",
        secure_aggregation_protocol="bonawitz",
        runtime="in_process",
    )


def timed(config: "HdpConfig", rounds: int) -> list[dict[str, float]]:
    """Every round's seconds, after one that compiles.

    Args:
      config: Of a run whose super-nodes are elected and whose sums are secure.
      rounds: How many.

    Returns:
      `seconds` of the whole, and of it `elections`, `secure sums` and `training`, which
      is all else; `elections, critical path` and `secure sums, critical path`.
    """
    import dataclasses

    from tff_hdp import runtime
    from tff_hdp.simulation.run_folder import RunFolder

    runtime.set_context(config.runtime)
    found = []
    with (
        tempfile.TemporaryDirectory() as out,
        RunFolder(dataclasses.replace(config, out=out)) as folder,
    ):
        folder.resolve(partition_seed=0)
        system = config.build(folder)
        state, carried = system.initial_state(0), {}
        for number in range(1, rounds + 2):
            began = time.perf_counter()
            given = system.prepare(0, number, carried)
            prepared = time.perf_counter()
            output = system.process.next(state, given.data)
            ended = time.perf_counter()
            state, carried = output.state, given.carried
            if number > 1:
                found.append(
                    parts(prepared - began, ended - prepared, given.metrics, output)
                )
    return found


def parts(
    elected: float, trained: float, attendance: dict[str, float], output: Any
) -> dict[str, float]:
    """What a round's seconds went into.

    Args:
      elected: Seconds before the process's round, nearly all of them elections'.
      trained: Of the process's round.
      attendance: The columns of metrics.csv that say who took part.
      output: Of the process.
    """
    sums = output.metrics["secagg"]
    return {
        "seconds": elected + trained,
        "elections": elected,
        "secure sums": sums["secagg_total_seconds"],
        "training": trained - sums["secagg_total_seconds"],
        "elections, critical path": attendance["election_seconds"],
        "secure sums, critical path": sums["secagg_seconds"],
    }


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
