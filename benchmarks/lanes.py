"""What one thread within an operation saves, where clients fill the cores.

    python benchmarks/lanes.py --csv=docs/results/benchmarks/lanes.csv

Rounds of the stacked process in process: with one thread an operation, as
`runtime.set_context` has it on CPUs, and with a thread a core, as TensorFlow has it by
itself. Both are running at the same time and take turns. Wall-clock and processor
seconds a round, medians.
"""

import contextlib
import dataclasses
import os
import pathlib
import statistics
import sys

import works
from absl import flags

from tff_hdp import cli


def define_flags() -> None:
    """Defines the flags of this program."""
    cli.define_choices("work", works.COHORT_WORKS, works.COHORT_WORKS)
    flags.DEFINE_integer("rounds", 9, "Measured of each, after warm-up.", lower_bound=1)
    flags.DEFINE_integer("clients", None, "Cohort; default: the work's.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Prints two rows for each work."""
    f = flags.FLAGS
    import machine

    machine.hide_gpus()
    rows = []
    for name in f.work:
        work = works.WORKS[name]
        if f.clients is not None:
            work = dataclasses.replace(work, clients=f.clients)
        rows += timed(work, f.rounds)
    machine.report(rows, f.csv, key=["work", "clients", "threads"])
    return 0


def timed(work: works.Work, rounds: int) -> list[dict[str, object]]:
    """A row for each number of threads.

    Args:
      work: Of which.
      rounds: How many of each, after the first.
    """
    import children

    with contextlib.ExitStack() as stack:
        started = {}
        for threads in (1, len(os.sched_getaffinity(0))):
            os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
            child = children.Child("programs.stacked", work, runtime="in_process")
            stack.callback(child.close)
            started[threads] = child
        del os.environ["TF_NUM_INTRAOP_THREADS"]
        found = {threads: [] for threads in started}
        for child in started.values():
            child.build(noise_multiplier=0.01)
            child.round()
        for _ in range(rounds):
            for threads, child in started.items():
                before = processor_seconds(child.pid)
                wall = child.round()
                found[threads].append((wall, processor_seconds(child.pid) - before))
    rows = []
    for threads, pairs in found.items():
        wall, spent = (statistics.median(column) for column in zip(*pairs, strict=True))
        row = {"work": work.name, "clients": work.clients, "threads": threads}
        row |= {"rounds": rounds, "seconds": wall, "processor seconds": spent}
        rows.append(row)
    return rows


def processor_seconds(pid: int) -> float:
    """What a process has used of all cores, in its threads and in the system for it."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
