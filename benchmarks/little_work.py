"""Times rounds of little work with all clients in one chunk, beside a chunk a core.

    python benchmarks/little_work.py --csv=docs/results/benchmarks/little_work.csv

Up to how much work `tff_hdp.clients.training.chunk_size` has clients train together
rests on this. Both processes are in one program and take turns round by round, on the
same cohorts, with noise at the server; seconds are of the process's `next`, medians,
and their ratio round by round, its median and quartiles.
"""

import contextlib
import dataclasses
import math
import os
import re
import sys
import tempfile
import time

import numpy as np
from absl import flags

from tff_hdp import cli
from tff_hdp.errors import require

# Two rounds compile.
_WARM_UP = 2


@dataclasses.dataclass(frozen=True)
class Case:
    """What clients train, and how many of them.

    Attributes:
      task: Of whose data 400 clients have equal parts.
      model: Which of its models.
      clients: Of every round.
      passes: Over a client's examples.
    """

    task: str
    model: str
    clients: int
    passes: int

    @classmethod
    def read(cls, text: str) -> "Case":
        """From "task:model:clients:passes".

        Raises:
          ArgumentError: If it is something else.
        """
        found = re.fullmatch(r"(\w+):(\w+):([1-9]\d*):([1-9]\d*)", text)
        require(found is not None, "cases", text, "task:model:clients:passes")
        task, model, clients, passes = found.groups()
        return cls(task, model, int(clients), int(passes))


def define_flags() -> None:
    """Defines the cases, and how often each is timed."""
    default = "digits:dnn:10:1,digits:dnn:25:1,digits:dnn:200:1,digits:dnn:25:40"
    default += ",mnist:softmax:10:1,mnist:softmax:25:1,mnist:softmax:100:1"
    flags.DEFINE_list("cases", default.split(","), "Of task:model:clients:passes.")
    flags.DEFINE_string("data_dir", None, "Where local data packs lie.")
    flags.DEFINE_integer("rounds", 60, "Timed of each, after warm-up.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Prints a row for each case."""
    import machine

    from tff_hdp import runtime

    machine.hide_gpus()
    runtime.set_context("in_process")
    f = flags.FLAGS
    rows = [timed(Case.read(text), f.rounds) for text in f.cases]
    machine.report(rows, f.csv, key=["task", "model", "clients", "passes"])
    return 0


def timed(case: Case, rounds: int) -> dict[str, object]:
    """Seconds a round both ways, and how much work it is.

    Args:
      case: Of which.
      rounds: How many of each, after warm-up.
    """
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.systems.hdp.config import HdpConfig

    apart = math.ceil(case.clients / len(os.sched_getaffinity(0)))
    chunks = {"together": case.clients, "apart": apart}
    seconds = {name: [] for name in chunks}
    with contextlib.ExitStack() as stack:
        systems, states = {}, {}
        for name, chunk in chunks.items():
            out = stack.enter_context(tempfile.TemporaryDirectory())
            config = HdpConfig(
                task=case.task,
                model=case.model,
                num_clients=400,
                partition="iid",
                local_epochs=case.passes,
                zones=1,
                sampling="fixed",
                clients_per_round=case.clients,
                privacy="cdp",
                noise_multiplier=1.0,
                clip_norm=1.0,
                data_dir=flags.FLAGS.data_dir,
                cohort_chunk=chunk,
                out=out,
            )
            folder = stack.enter_context(RunFolder(config))
            folder.resolve(partition_seed=0)
            systems[name] = config.build(folder)
            states[name] = systems[name].initial_state(0)
        for number in range(1, rounds + _WARM_UP + 1):
            for name in list(chunks)[:: 1 if number % 2 else -1]:
                given = systems[name].prepare(0, number, {})
                began = time.perf_counter()
                output = systems[name].process.next(states[name], given.data)
                seconds[name].append(time.perf_counter() - began)
                states[name] = output.state
        # [clients, steps, batch], as `chunk_size` counts them.
        (chunk,), _ = systems["together"].prepare(0, 1, {}).data
        examples = chunk.get_single_element()["order"].shape.num_elements()
        size = systems["together"].plan.size
    found = {name: np.array(each[_WARM_UP:]) for name, each in seconds.items()}
    ratio = found["together"] / found["apart"]
    return {
        **dataclasses.asdict(case),
        "examples times weights": size * examples,
        "seconds apart": np.median(found["apart"]),
        "seconds together": np.median(found["together"]),
        "together / apart": np.median(ratio),
        "quarter": np.quantile(ratio, 0.25),
        "three quarters": np.quantile(ratio, 0.75),
    }


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
