"""Times this project's rounds against native TFF and peers, in one run.

    python benchmarks/run.py --work=A --runtimes=native,in_process --json=FILE
    python benchmarks/run.py --work=A,B --peers=flower,fedjax,pfl --json=FILE
    python benchmarks/run.py --work=A,B --devices=gpu --json=FILE
    python benchmarks/run.py --work=F --peers=flower,fedjax,pfl --json=FILE

Every subject is a process of its own and computes the same rounds on the same data,
which is checked before it is timed; they take turns round by round. Prints a line
for each, and writes all of them to --json. A subject that computes something else
fails the run.
"""

import dataclasses
import functools
import json
import logging
import pathlib
import signal
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime import RUNTIMES

_LOOPS = ("digits", "mnist")
_PEERS = ("flower", "fedjax", "pfl")
_WORKS = ("A", "B", "cnn_small", "lenet", "C", "D", "E", "F", "G")
_NEIGHBOURS = ("gfl", "hfl_dp", "fl_top", "udp_alg")


def define_flags() -> None:
    """Defines the flags of this program."""
    several = cli.define_choices
    integer = functools.partial(flags.DEFINE_integer, lower_bound=1)
    several("work", ("A",), _WORKS + _NEIGHBOURS)
    several("runtimes", ("native", "in_process"), RUNTIMES)
    flags.DEFINE_enum("devices", "cpu", ["cpu", "gpu"], "Of every subject and peer.")
    several("peers", (), _PEERS, "Not run with C, D, E and G.")
    integer("rounds", 5, "Rounds measured of each subject, after warm-up.")
    integer("clients", None, "Cohort of A, B and C; default: the work's own.")
    cohorts = ["10", "30", "100", "300", "1000"]
    flags.DEFINE_list("cohorts", cohorts, "Cohorts of D.")
    integer("training_rounds", 20, "Rounds of a run of E.")
    # Of 24 runs the mean was 0.830, the standard deviation 0.013: by noise alone.
    flags.DEFINE_float("accuracy", 0.77, "What a run of E must reach.")
    integer("runs", 3, "Runs of E and F measured of each subject.")
    several("tasks", _LOOPS, _LOOPS, "Of F.")
    integer("loop_rounds", 30, "Rounds measured of a run of F, after warm-up.")
    flags.DEFINE_string("json", None, "File for the measurements.")


def main() -> int:
    """Measures what the flags name."""
    f = flags.FLAGS
    if "cluster" in f.runtimes and {"E", "F"} & set(f.work):
        allowed = "native, in_process with --work=E and with --work=F"
        raise ArgumentError("runtimes", f.runtimes, allowed)
    logging.getLogger("tff_hdp_bench").setLevel(logging.INFO)
    if not all(c.isdecimal() and int(c) > 0 for c in f.cohorts) or not f.cohorts:
        raise ArgumentError("cohorts", f.cohorts, "whole numbers >= 1")
    import children
    import machine
    import measure

    if f.devices == "cpu":
        machine.hide_gpus()
    elif not machine.gpus():
        raise ArgumentError("devices", "gpu", "cpu, where nvidia-smi finds no GPU")
    # So that children end with this program: their owners' finally clauses run.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    result = []
    try:
        for name in f.work:
            result += _measure(name)
    except (measure.CheckError, children.ProgramError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if f.json:
            made_on = {"machine": machine.described(f.devices)}
            objects = [dataclasses.asdict(row) | made_on for row in result]
            pathlib.Path(f.json).write_text(json.dumps(objects, indent=2) + "\n")
    return 0


def _measure(name: str) -> list:
    import loops
    import neighbour_works
    import neighbours
    import rounds
    import scaling
    import training
    import works

    f = flags.FLAGS
    if name == "E":
        return training.whole_runs(
            f.runtimes,
            training_rounds=f.training_rounds,
            accuracy=f.accuracy,
            runs=f.runs,
        )
    if name == "F":
        return loops.training_loops(
            f.tasks, f.runtimes, f.peers, rounds=f.loop_rounds, runs=f.runs
        )
    if name == "G":
        return scaling.registered_clients(f.rounds)
    if name in _NEIGHBOURS:
        return neighbours.measured(neighbour_works.NEIGHBOURS[name], f.rounds)
    work = works.WORKS[name]
    if name == "D":
        cohorts = [int(c) for c in f.cohorts]
        return rounds.cohort_sizes(work, f.runtimes, cohorts, f.rounds)
    if f.clients is not None:
        if f.clients % work.zones:
            raise ArgumentError(
                "clients", f.clients, f"a multiple of {work.zones} with --work={name}"
            )
        work = dataclasses.replace(work, clients=f.clients)
    if name == "C":
        return rounds.privacy_modes(work, f.runtimes, f.rounds)
    return rounds.one_cohort(work, f.runtimes, f.peers, f.rounds)


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
