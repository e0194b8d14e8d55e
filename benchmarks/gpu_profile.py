"""What a GPU does in an in-process round, and how long it waits.

    python benchmarks/gpu_profile.py --csv=docs/results/benchmarks/gpu_profile.csv

Traces rounds with TensorFlow's profiler. A row is a kind of kernel or copy: its share
of the rounds' seconds, on all streams together, how many of it a round has, and which
one of it took longest. What the shares lack of 1 is a GPU that waits for the host.
"""

import collections
import pathlib
import re
import sys
import tempfile
import time
from typing import Any

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

_WORKS = ("A", "B", "cnn_small", "lenet")
# By what CUDA's and cuDNN's kernels are called; the first that fits.
_KINDS = (
    ("copies from and to the host", "memcpy(h2d|d2h)|memcpyhtod|memcpydtoh"),
    ("copies on the device", "memcpy|memset"),
    ("convolutions", "conv|fprop|dgrad|wgrad|winograd|cudnn|nchw|nhwc"),
    ("matrix products", "gemm|gemv|cutlass|splitk"),
    ("pooling", "pool"),
    ("gather and scatter", "gather|scatter|segment"),
    ("transposes", "transpose|swapdim|tensor3index|shuffle"),
    ("sums", "reduc|sum"),
)
_REST = "element by element, and the rest"


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_list("work", ["A", "B"], f"Some of {', '.join(_WORKS)}.")
    flags.DEFINE_integer("rounds", 3, "Traced, after the first.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main(argv: list[str]) -> int:
    """Prints a row for each work and kind."""
    cli.refuse_arguments(argv)
    f = flags.FLAGS
    if not f.work or not set(f.work) <= set(_WORKS):
        raise ArgumentError("work", f.work, f"some of {', '.join(_WORKS)}")
    import machine

    if not machine.gpus():
        raise ArgumentError("work", f.work, "a machine where nvidia-smi finds a GPU")
    rows = []
    for name in f.work:
        space, seconds = traced(name, f.rounds)
        rows += kinds(space, name, seconds=seconds, rounds=f.rounds)
    machine.report(rows, f.csv, key=["work", "kind"], devices="gpu")
    return 0


def traced(name: str, rounds: int) -> tuple[Any, float]:
    """A work's rounds as TensorFlow's `XSpace`, and their seconds."""
    import tensorflow as tf
    import works
    from programs import stacked
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    spec = {"work": works.WORKS[name], "runtime": "in_process"}
    federation = stacked.builder(spec)(noise_multiplier=1.0)
    federation.round()
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
        tf.profiler.experimental.start(folder, options)
        start = time.perf_counter()
        for _ in range(rounds):
            federation.round()
        seconds = time.perf_counter() - start
        tf.profiler.experimental.stop()
        (trace,) = pathlib.Path(folder).rglob("*.xplane.pb")
        return xplane_pb2.XSpace.FromString(trace.read_bytes()), seconds


def kinds(
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
    longest: dict[str, collections.Counter] = collections.defaultdict(
        collections.Counter
    )
    for plane in space.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):  # others repeat these, by step
                continue
            for event in line.events:
                kernel = plane.event_metadata[event.metadata_id].name
                kind = kind_of(kernel)
                spent[kind] += event.duration_ps / 1e12
                count[kind] += 1
                longest[kind][kernel] += event.duration_ps
    rows = []
    for kind, own in spent.most_common():
        ((kernel, picoseconds),) = longest[kind].most_common(1)
        row = {"work": name, "kind": kind, "share": own / seconds}
        row |= {"events a round": count[kind] / rounds}
        row["milliseconds a round"] = 1e3 * own / rounds
        row["longest"] = f"{kernel[:80]} ({picoseconds / 1e12 / own:.0%})"
        rows.append(row)
    whole = {"work": name, "kind": "the round", "share": 1.0, "events a round": None}
    return [*rows, whole | {"milliseconds a round": 1e3 * seconds / rounds}]


def kind_of(kernel: str) -> str:
    """Which kind a kernel is, by its name."""
    named = re.sub("[^a-z0-9]", "", kernel.lower())
    for kind, pattern in _KINDS:
        if re.search(pattern, named):
            return kind
    return _REST


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
