"""Times secure sums of clients' updates beside `tff.learning.secure_aggregator`.

    python benchmarks/secure_aggregators.py --csv=FILE

The same clients' updates, clipped and summed: by TFF's aggregator, which its simulation
computes in the clear; by this project's with TFF's secure modular sums, likewise in the
clear; and by the protocols, every party's masks, shares and unmasking for real. The
last three sum in zones. Seconds by the clock in one process, methods in turns, after a
turn that is not counted.
"""

import collections
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from absl import flags

from tff_hdp import cli

# The HDP paper's models: EMNIST's dense one, CIFAR's convolving one.
SIZES = (159_010, 96_418)


def define_flags() -> None:
    """Defines how many parties, and how often."""
    flags.DEFINE_list("sizes", list(map(str, SIZES)), "Coordinates of an update.")
    flags.DEFINE_integer("clients", 100, "Clients k of all zones.", lower_bound=2)
    flags.DEFINE_integer("zones", 10, "Zones s.", lower_bound=1)
    flags.DEFINE_integer("turns", 7, "How often each is timed.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Times every method at every size, and prints a row for each."""
    import machine
    import pandas as pd

    from tff_hdp import runtime

    machine.hide_gpus()
    runtime.set_context("in_process")
    f = flags.FLAGS
    rows = []
    for size in map(int, f.sizes):
        seconds = timed(methods(size, f.clients, f.zones), f.turns)
        for name, found in seconds.items():
            quarters = pd.Series(found).quantile([0.25, 0.5, 0.75])
            rows.append(
                {
                    "coordinates": size,
                    "secure sum": name,
                    "clients": f.clients,
                    "zones": 1 if name.startswith("tff.") else f.zones,
                    "turns": f.turns,
                    "seconds": quarters[0.5],
                    "quarter": quarters[0.25],
                    "three quarters": quarters[0.75],
                }
            )
    machine.report(rows, f.csv, key=["coordinates", "secure sum", "clients", "zones"])
    return 0


def methods(size: int, clients: int, zones: int) -> dict[str, Callable[[], Any]]:
    """By name, what sums the same updates once.

    Args:
      size: Coordinates of an update.
      clients: k, the first k/s of them in the first zone and so on.
      zones: s.
    """
    import numpy as np
    import tensorflow_federated as tff

    from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory
    from tff_hdp.aggregators.secure_protocol import Share, protocol_sums
    from tff_hdp.privacy import Clipping, PoissonSampling, configurations
    from tff_hdp.privacy.secure import with_encoding

    updates = np.random.default_rng(0).normal(size=(clients, size)).astype(np.float32)
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    zone_of = np.sort(np.arange(clients) % zones)
    plan = with_encoding(
        configurations.none(
            zone_sizes=tuple(np.bincount(zone_of).tolist()),
            sampling=PoissonSampling((1.0,) * zones),
            clipping=Clipping(clip_norm=1.0),
            secure_aggregation=True,
            min_zone_clients=2,
        ),
        size=size,
    )
    record = tff.TensorType(np.float32, [size])
    theirs = tff.learning.secure_aggregator(weighted=False).create(record)
    ours = HierarchicalMeanFactory(plan).create(record, WEIGHT_TYPE)
    profiles = [
        collections.OrderedDict(weight=1.0, zone=int(zone), carries_noise=False)
        for zone in zone_of
    ]
    integers = np.rint(updates / plan.encoding.step).astype(np.int64)
    shares: list[list[Share]] = [[] for _ in range(zones)]
    for zone, vector in zip(zone_of, integers, strict=True):
        shares[zone].append(Share(np.append(vector, 1)))
    states = theirs.initialize(), ours.initialize()
    protocol = functools.partial(
        protocol_sums, plan, shares, round_number=1, size=size + 1
    )
    return {
        "tff.learning.secure_aggregator, in the clear": lambda: theirs.next(
            states[0], list(updates)
        ),
        "intrinsic, in the clear": lambda: ours.next(
            states[1], list(updates), profiles
        ),
        "bonawitz": lambda: protocol(protocol="bonawitz"),
        "graph": lambda: protocol(protocol="graph"),
    }


def timed(calls: dict[str, Callable[[], Any]], turns: int) -> dict[str, list[float]]:
    """Seconds of every call, all in turns, after one that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if turn:
                found[name].append(time.perf_counter() - began)
    return found


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
