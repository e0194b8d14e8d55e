"""A whole run over many registered clients on a synthetic task.

    python -m programs.scale CLIENTS COHORT ROUNDS FOLDER

Trains in FOLDER and prints one line of JSON, in seconds of processor time: from the
start of the run to its first release, of every round from one release to the next, of
a round's sampling and data alone, and of the final account; the peak resident memory
in MB, and how much of it by the end are files mapped since the start, the examples.
"""

import dataclasses
import json
import pathlib
import resource
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
from clock import Clock
from profile_loop import timed

import tasks
from tff_hdp.simulation import experiment, training
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.run import Hdp

ZONES = 1000
_EXAMPLES, _FEATURES, _CLASSES = 5, 64, 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleConfig(HdpConfig):
    """HDP on a task made up on the spot, its examples mapped from a file."""

    def load_task(self, partition_seed: int) -> tasks.Task:
        """See base class."""
        rng = np.random.default_rng(partition_seed)
        count = self.num_clients * _EXAMPLES
        path = pathlib.Path(self.out).with_suffix(".npy")
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, _FEATURES)}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, count, 100_000):
                rows = min(100_000, count - start)
                file.write(rng.bytes(rows * _FEATURES))
        return tasks.Task(
            name="synthetic",
            train=tasks.ClientData(
                client_ids=tuple(f"c{i}" for i in range(self.num_clients)),
                features=np.load(path, mmap_mode="r"),
                labels=rng.integers(_CLASSES, size=count, dtype=np.int32),
                offsets=np.arange(0, count + 1, _EXAMPLES),
            ),
            test_features=rng.integers(256, size=(500, _FEATURES), dtype=np.uint8),
            test_labels=rng.integers(_CLASSES, size=500, dtype=np.int32),
            num_classes=_CLASSES,
            build_model=_build_model,
            model_name="linear",
            description=f"{_EXAMPLES} random examples a client",
        )


def _build_model() -> tf.keras.Sequential:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer((_FEATURES,)),
            layers.Rescaling(1 / 255),
            layers.Dense(_CLASSES),
        ]
    )


def _mapped_mb() -> float:
    """Resident pages of files, which the system can have back at any time."""
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) / 1024


def main(clients: int, cohort: int, rounds: int, folder: str) -> dict[str, Any]:
    """Runs it; the findings that the module names."""
    prepared: list[float] = []
    accounted: list[float] = []
    # Of their own threads: the next round is prepared while one trains.
    Hdp.prepare = timed(Hdp.prepare, prepared, time.thread_time)
    training.epsilons = timed(training.epsilons, accounted, time.thread_time)
    clock = Clock(time.process_time)
    mapped = _mapped_mb()
    config = ScaleConfig(
        num_clients=clients,
        zones=ZONES,
        clients_per_round=cohort,
        rounds=rounds + 1,
        local_epochs=1,
        noise_multiplier=1.0,
        out=f"{folder}/run",
        seed=1,
        quiet=True,
    )
    began = time.process_time()
    experiment.run(config, trackers=[clock])
    first, *others = np.diff([began, *clock.times]).tolist()
    return {
        "first": first,
        "rounds": others,
        "prepared": float(np.median(prepared)),
        "account": accounted[-1],
        "mapped_mb": _mapped_mb() - mapped,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    numbers = (int(word) for word in sys.argv[1:4])
    print(json.dumps(main(*numbers, sys.argv[4])))
