"""What a GPU does in an in-process round, and how long it waits.

    python benchmarks/gpu_profile.py --csv=docs/results/benchmarks/gpu_profile.csv

Traces rounds with TensorFlow's profiler. A row is a kind of operation, or copies: its
share of the rounds' seconds, on all streams together, and how many of its kernels a
round has. What the shares lack of 1 is a GPU that waits for the host.
"""

import collections
import sys
from typing import Any

import works
from absl import flags
from profile_round import traced

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

_COPIES = "copies from and to the host"
_REST = "all others"
_LEAST = 0.005  # share of the rounds' seconds of an operation that has a row


def define_flags() -> None:
    """Defines the flags of this program."""
    cli.define_choices("work", ("A", "B"), works.COHORT_WORKS)
    flags.DEFINE_integer("rounds", 3, "Traced, after the first.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Prints a row for each work and kind of operation."""
    f = flags.FLAGS
    import machine

    if not machine.gpus():
        raise ArgumentError("work", f.work, "on a machine where nvidia-smi finds a GPU")
    from programs import stacked

    rows = []
    for name in f.work:
        spec = {"work": works.WORKS[name], "runtime": "in_process"}
        federation = stacked.builder(spec)(noise_multiplier=1.0)
        space, seconds = traced(federation, f.rounds)
        rows += operations(space, name, seconds=seconds, rounds=f.rounds)
    machine.report(rows, f.csv, key=["work", "operation"], devices="gpu")
    return 0


def operations(
    space: Any, name: str, *, seconds: float, rounds: int
) -> list[dict[str, object]]:
    """Rows of a trace.

    Args:
      space: An `XSpace`.
      name: Of the work.
      seconds: That the rounds took.
      rounds: In the trace.
    """
    spent, count = collections.Counter(), collections.Counter()
    for plane in space.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):  # others say it again, by step
                continue
            for event in line.events:
                operation = _operation(plane, event)
                spent[operation] += event.duration_ps / 1e12
                count[operation] += 1
    for operation in [o for o in spent if spent[o] < _LEAST * seconds]:
        spent[_REST] += spent.pop(operation)
        count[_REST] += count.pop(operation)
    ordered = [*sorted(spent, key=lambda o: (o == _REST, -spent[o])), "the round"]
    spent["the round"] = seconds
    return [
        {
            "work": name,
            "operation": operation,
            "share": spent[operation] / seconds,
            "milliseconds": 1e3 * spent[operation] / rounds,
            "kernels": count[operation] / rounds or None,
        }
        for operation in ordered
    ]


def _operation(plane: Any, event: Any) -> str:
    """The type of TensorFlow's operation that an event on a GPU is of."""
    kernel = plane.event_metadata[event.metadata_id].name
    if kernel in ("MemcpyH2D", "MemcpyD2H"):
        return _COPIES
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "tf_op":
            said = stat.str_value or plane.stat_metadata[stat.ref_value].name
            return said.rpartition(":")[2]
    return kernel


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
