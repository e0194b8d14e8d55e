"""Where the time of an in-process round goes, by kind of operation.

    python benchmarks/profile_round.py --work=A,B --json=FILE
    python benchmarks/profile_round.py --work=gfl,hfl_dp,fl_top,udp_alg
    ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/profile_round.py --work=cnn_small,lenet

Traces rounds with TensorFlow's profiler. An operation's time is what its thread
spent in it and in nothing beneath it; what the cores' time exceeds them by is idle,
or in Python, or in TensorFlow between operations.
"""

import collections
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

from absl import flags

from tff_hdp import cli

_OUTSIDE = "outside operations"
_SHOWN = 4  # operations named of each kind
_ROUNDS = {
    **{"A": 3, "B": 1, "cnn_small": 1, "lenet": 1},
    **{"gfl": 20, "hfl_dp": 1, "fl_top": 1, "udp_alg": 1},
}
# What TensorFlow's optimizers put before an operation's name.
_REWRITTEN = re.compile("^_(Mkl)?(Native)?(Fused)?")
_OPERATION = re.compile(r"[^:]*:(\w+)")
_KINDS = {
    "matrix products": ("MatMul", "BatchMatMul", "Einsum"),
    "convolutions": ("Conv2D",),
    "pooling": ("MaxPool",),
    "gather and scatter": (
        "Gather",
        "ResourceGather",
        "TensorScatter",
        "UnsortedSegment",
    ),
    "random numbers": ("Random", "Stateless"),
    "transposes and copies": (
        "Transpose",
        "Tile",
        "Concat",
        "Pack",
        "Unpack",
        "StridedSlice",
        "Slice",
        "Pad",
        "TensorList",
        "Split",
    ),
    "datasets": ("Iterator", "Dataset", "Optional"),
}


def define_flags() -> None:
    """Defines the flags of this program."""
    cli.define_choices("work", ("A", "B"), _ROUNDS)
    flags.DEFINE_enum("program", "stacked", ["stacked", "fed_avg"], "Of A to lenet.")
    flags.DEFINE_integer(
        "clients", None, "Cohort of A to lenet; default: their own.", lower_bound=1
    )
    flags.DEFINE_string("json", None, "File for the shares.")


def main() -> int:
    """Traces what the flags name and prints shares of the cores' time."""
    f = flags.FLAGS
    import machine
    import neighbour_works

    machine.hide_gpus()
    result = []
    for name in f.work:
        by_operation = _shares(name)
        by_kind = collections.Counter()
        for operation, share in by_operation.items():
            by_kind[_kind(operation)] += share
        by_kind[_OUTSIDE] = max(0.0, 1.0 - by_kind.total())
        shares = dict(by_kind.most_common())
        program = "stacked" if name in neighbour_works.NEIGHBOURS else f.program
        held_to = os.environ.get("ONEDNN_MAX_CPU_ISA")
        result.append(
            {"work": name, "program": program, "held_to": held_to, "shares": shares}
        )
        print(f"{name}, {program} in process")
        for kind, share in shares.items():
            own = {o: s for o, s in by_operation.items() if _kind(o) == kind}
            largest = collections.Counter(own).most_common(_SHOWN)
            listed = ", ".join(f"{o} {s:.1%}" for o, s in largest)
            print(f"  {share:6.1%}  {kind}" + (f": {listed}" if listed else ""))
    if f.json:
        pathlib.Path(f.json).write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _federation(name: str) -> Any:
    """A work's process, built."""
    import neighbour_works
    import works
    from programs import fed_avg, neighbour, stacked

    f = flags.FLAGS
    if name in neighbour_works.NEIGHBOURS:
        work = neighbour_works.NEIGHBOURS[name]
        return neighbour.builder({"work": work, "program": "stacked"})(noisy=True)
    work = works.WORKS[name]
    if f.clients is not None:
        work = dataclasses.replace(work, clients=f.clients)
    module = fed_avg if f.program == "fed_avg" else stacked
    spec = {"work": work, "runtime": "in_process"}
    return module.builder(spec)(noise_multiplier=1.0)


def _shares(name: str) -> dict[str, float]:
    """By operation, its share of cores times wall time."""
    space, seconds = traced(_federation(name), _ROUNDS[name])
    whole = seconds * len(os.sched_getaffinity(0))
    return {
        operation: own / whole for operation, own in _operation_seconds(space).items()
    }


def traced(federation: Any, rounds: int) -> tuple[Any, float]:
    """Rounds after the first as TensorFlow's `XSpace`, and their seconds."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    federation.round()
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0
        )
        tf.profiler.experimental.start(folder, options)
        start = time.perf_counter()
        for _ in range(rounds):
            federation.round()
        seconds = time.perf_counter() - start
        tf.profiler.experimental.stop()
        (trace,) = pathlib.Path(folder).rglob("*.xplane.pb")
        return xplane_pb2.XSpace.FromString(trace.read_bytes()), seconds


def _operation_seconds(space: Any) -> collections.Counter:
    """Seconds in every type of operation of an `XSpace`, over all threads."""
    spent = collections.Counter()
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        names = {i: metadata.name for i, metadata in plane.event_metadata.items()}
        for line in plane.lines:
            for name, picoseconds in _own_times(line.events, names):
                spent[name] += picoseconds / 1e12
    return spent


def _own_times(
    events: Iterable[Any], names: dict[int, str]
) -> Iterable[tuple[str, int]]:
    """Operation types and picoseconds in them alone, of one thread's events.

    An operation's event is named node:Type; others, such as function calls and the
    executor, count as no operation but their time is not their parent's.
    """
    open_events: list[list] = []  # [end, type or None, own time]
    ordered = sorted(events, key=lambda e: (e.offset_ps, -e.duration_ps))
    for event in ordered:
        while open_events and open_events[-1][0] <= event.offset_ps:
            _, kind, own = open_events.pop()
            if kind is not None:
                yield kind, own
        if open_events:
            open_events[-1][2] -= event.duration_ps
        operation = _OPERATION.fullmatch(names[event.metadata_id])
        kind = operation[1] if operation else None
        end = event.offset_ps + event.duration_ps
        open_events.append([end, kind, event.duration_ps])
    for _, kind, own in open_events:
        if kind is not None:
            yield kind, own


def _kind(operation: str) -> str:
    plain = _REWRITTEN.sub("", operation)
    for kind, prefixes in _KINDS.items():
        if plain.startswith(prefixes):
            return kind
    return "element by element, and the rest"


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
