"""Where the time of a training loop's round goes, part by part.

    python benchmarks/profile_loop.py --rounds=60 --csv=FILE

Median milliseconds of each part over the rounds of whole runs of HDP on digits and
MNIST, with the cohorts and epochs of work F and ten zones, the first five rounds left
out. The next round's data is prepared in a thread beside the round, and the round
before is tested, accounted and released in another. `whole` is the clock from one
round's beginning to the next one's, and `all else` what it has beyond the round.
"""

import collections
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import works
from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

_WARM = 5
_BESIDE = (
    *("evaluation", "measurements", "epsilon", "journal", "privacy.json"),
    *("checkpoint, with the journal", "metrics.csv, TensorBoard"),
)
_BEGINNINGS = "beginnings of rounds, by the clock"


def define_flags() -> None:
    """Defines the flags of this program."""
    cli.define_choices("tasks", works.LOOPS, works.LOOPS)
    flags.DEFINE_integer("rounds", 60, f"Rounds of each run, more than {_WARM}.")
    flags.DEFINE_string("out", None, "Where run folders are made; default: /tmp.")
    flags.DEFINE_string("csv", None, "Also write the rows to this file.")


def main() -> int:
    """Prints a row for each part of the loop, of each task."""
    f = flags.FLAGS
    if f.rounds <= _WARM:
        raise ArgumentError("rounds", f.rounds, f"more than {_WARM}")
    import machine

    machine.hide_gpus()
    spent = watch()
    rows = []
    for task in f.tasks:
        for seconds in spent.values():
            seconds.clear()
        with tempfile.TemporaryDirectory(dir=f.out) as folder:
            _run(task, f.rounds, f"{folder}/run")
        rows += medians(task, spent)
    machine.report(rows, f.csv, key=["task", "part"])
    return 0


def medians(task: str, spent: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each part of the loop.

    Args:
      task: Of the run.
      spent: Seconds of every round of each part, and when rounds began.
    """
    parts = dict(spent)
    began = parts.pop(_BEGINNINGS)
    parts["whole"] = [end - start for start, end in itertools.pairwise(began)]
    found = {name: 1e3 * statistics.median(s[_WARM:]) for name, s in parts.items()}
    found["all else"] = found["whole"] - found["round"]
    return [
        {
            **{"task": task, "part": name, "milliseconds": milliseconds},
            "share_of_round": milliseconds / found["round"],
            "beside_the_next_round": name in _BESIDE,
        }
        for name, milliseconds in found.items()
    ]


def watch() -> dict[str, list[float]]:
    """Has every part of the loop note its seconds, round by round."""
    from tff_hdp.simulation import training
    from tff_hdp.simulation.checkpoints import Checkpoints
    from tff_hdp.simulation.journal import Journal
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.systems.hdp.run import Hdp

    spent: dict[str, list[float]] = collections.defaultdict(list)
    for owner, name, part in (
        (Hdp, "evaluate", "evaluation"),
        (Hdp, "weights_of", "weights, to be finite"),
        (Hdp, "measure", "measurements"),
        (training, "epsilons", "epsilon"),
        (Journal, "announce", "journal"),
        (training._Statement, "cover", "privacy.json"),
        (Checkpoints, "save", "checkpoint, with the journal"),
        (RunFolder, "release_metrics", "metrics.csv, TensorBoard"),
        (training._Releases, "wait", "release before, progress"),
    ):
        setattr(owner, name, timed(getattr(owner, name), spent[part]))
    build = Hdp.__init__

    def timed_build(system: Hdp, *arguments: Any, **options: Any) -> None:
        build(system, *arguments, **options)
        process = system.process
        timed_next = timed(process.next, spent["round"])

        def next_fn(*arguments: Any) -> Any:
            spent[_BEGINNINGS].append(time.perf_counter())
            return timed_next(*arguments)

        system.process = _Watched(process, next_fn)

    Hdp.__init__ = timed_build
    return spent


class _Watched:
    """A process whose `next` is another."""

    def __init__(self, process: Any, next_fn: Callable[..., Any]) -> None:
        self._process, self.next = process, next_fn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


def timed(
    function: Callable[..., Any],
    seconds: list[float],
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[..., Any]:
    """A function that notes how long each of its calls takes."""

    def noting(*arguments: Any, **options: Any) -> Any:
        began = clock()
        try:
            return function(*arguments, **options)
        finally:
            seconds.append(clock() - began)

    return noting


def _run(task: str, rounds: int, out: str) -> None:
    from tff_hdp.simulation import experiment
    from tff_hdp.systems.hdp.config import HdpConfig

    work = works.LOOPS[task]
    config = HdpConfig(
        task=task,
        num_clients=work.registered,
        clients_per_round=work.clients,
        local_epochs=work.epochs,
        zones=10,
        noise_multiplier=1.0,
        clip_norm=0.5,
        rounds=rounds,
        out=out,
        quiet=True,
    )
    experiment.run(config)


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
