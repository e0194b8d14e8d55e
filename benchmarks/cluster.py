"""Times rounds on a cluster: one worker against several, and data sent once or anew.

    python benchmarks/cluster.py --csv=FILE

`workers`: work B on one worker, and on a worker a core, each pinned to its own; all on
this machine, whose cores the calling process shares with them. `data`: work A with
cohorts drawn at random, by workers that keep the examples they had and by workers that
keep nothing. Seconds by the clock, cases in turns, after a turn that is not counted;
megabytes of values that the calling process sent.
"""

import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from tff_hdp import cli

if TYPE_CHECKING:
    import works

PARTS = ("workers", "data")
# All that take part in `data`, a cohort's worth of them in every round.
REGISTERED = 300


@dataclasses.dataclass
class Case:
    """Rounds on one cluster.

    Attributes:
      label: What tells it from the other cases.
      context: The cluster.
      cohorts: The clients of every round.
      seconds: Of every round that counts.
      megabytes: Sent in every round that counts.
    """

    label: dict[str, Any]
    context: Any
    cohorts: Iterator[Sequence[int]]
    seconds: list[float] = dataclasses.field(default_factory=list)
    megabytes: list[float] = dataclasses.field(default_factory=list)


def define_flags() -> None:
    """Defines what is measured, and how often."""
    cli.define_choices("what", PARTS, PARTS)
    flags.DEFINE_integer("clients", None, "A cohort; the work's own.", lower_bound=2)
    flags.DEFINE_integer("turns", 7, "How often each is timed.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Times every case, and prints a row for each."""
    import machine
    import pandas as pd
    import works

    machine.hide_gpus()
    f = flags.FLAGS
    rows = []
    for part in f.what:
        work = works.WORKS["B" if part == "workers" else "A"]
        work = dataclasses.replace(work, clients=f.clients or work.clients)
        cases = (by_workers if part == "workers" else by_data)(work)
        run(work, cases, f.turns)
        for case in cases:
            case.context.close()
            quarters = pd.Series(case.seconds).quantile([0.25, 0.5, 0.75])
            rows.append(
                {
                    "work": work.name,
                    "clients": work.clients,
                    **case.label,
                    "turns": f.turns,
                    "seconds": quarters[0.5],
                    "quarter": quarters[0.25],
                    "three quarters": quarters[0.75],
                    "first MB": case.megabytes[0],
                    "last MB": case.megabytes[-1],
                }
            )
    machine.report(rows, f.csv, key=["work", "clients", "workers", "kept"])
    return 0


def by_workers(work: "works.Work") -> list[Case]:
    """One worker on one core, and one on each core."""
    import itertools

    from programs import tensorflow_model

    cores = sorted(os.sched_getaffinity(0))
    addresses = [tensorflow_model.start_worker(core) for core in [cores[0], *cores]]
    return [
        Case(
            {"workers": len(chosen), "kept": "yes"},
            _cluster(chosen),
            itertools.repeat(range(work.clients)),
        )
        for chosen in (addresses[:1], addresses[1:])
    ]


def by_data(work: "works.Work") -> list[Case]:
    """Workers that keep what they had, and workers that do not."""
    from programs import tensorflow_model

    cases = []
    for kept, options in (("yes", {}), ("no", {"bytes_kept": 0})):
        cores = os.sched_getaffinity(0)
        addresses = [tensorflow_model.start_worker() for _ in cores]
        label = {"workers": len(addresses), "kept": kept}
        cases.append(Case(label, _cluster(addresses, **options), _drawn(work)))
    return cases


def run(work: "works.Work", cases: Sequence[Case], turns: int) -> None:
    """Runs every case's rounds in turns; each goes on from its own last one."""
    import tensorflow_federated as tff
    from programs import stacked

    chunk = stacked.clients_at_once(work)
    plan = stacked.noise_plan(work, "cdp", 1.0)
    federations: dict[int, Any] = {}
    for turn in range(turns + 1):
        for number, case in enumerate(cases):
            cohort = list(next(case.cohorts))
            data = [
                stacked.make_data(work, plan, cohort[start : start + chunk])
                for start in range(0, len(cohort), chunk)
            ]
            with tff.framework.get_context_stack().install(case.context):
                if number not in federations:
                    federations[number] = stacked.federation(work, plan, data)
                federations[number].data = data
                sent, began = _sent(case), time.perf_counter()
                federations[number].round()
                if turn:
                    case.seconds.append(time.perf_counter() - began)
                    case.megabytes.append((_sent(case) - sent) / 1e6)
                else:
                    case.megabytes = [(_sent(case) - sent) / 1e6]


def _drawn(work: "works.Work") -> Iterator[Sequence[int]]:
    import numpy as np

    rng = np.random.default_rng(0)
    registered = max(REGISTERED, work.clients)
    while True:
        yield rng.choice(registered, work.clients, replace=False).tolist()


def _cluster(addresses: Sequence[str], **options: Any) -> Any:
    from tff_hdp.runtime.cluster import ClusterContext

    return ClusterContext(addresses, **options)


def _sent(case: Case) -> int:
    return sum(member.connection.bytes_sent for member in case.context.members)


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
