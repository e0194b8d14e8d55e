"""What promises cost in accuracy: a training for each plan on the way to the last.

Promises are kept from the clients up: the first plan adds no noise, each keeps one
promise more than the one before. Trainings run side by side, and resume.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from scripts.parts import sweep_runs, sweep_tables
from tff_hdp.errors import ArgumentError
from tff_hdp.files import write_text

if TYPE_CHECKING:
    from scripts.plan import PlanConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reached:
    """What trainings with a plan reached.

    Attributes:
      promise: The last that the plan keeps, beside those before it.
      accuracy: On test data after the last round, the mean over seeds.
      spread: Its standard deviation; None for one seed.
      rounds: Of each training.
      plan: The file of the plan, for any clients; None without noise.
    """

    promise: str
    accuracy: float
    spread: float | None
    rounds: int
    plan: str | None


def train(config: "PlanConfig", given: Sequence[str]) -> list[Reached]:
    """Trains without noise, then with the promises one after the other.

    Args:
      config: The federation, what its clients are promised, and the task.
      given: More flags of scripts/train.py; they win.

    Raises:
      ArgumentError: If training does not take them, or the federation, or it fails.
    """
    if config.zoning is not None and config.zoning.parents:
        allowed = "one without levels above its zones with task: give --levels"
        raise ArgumentError("zoning_file", config.zoning_file, allowed)
    folder = pathlib.Path(config.task_out)
    folder.mkdir(parents=True, exist_ok=True)
    fixed = [
        *config.train_flags(stand_in=True),
        f"--task={config.task}",
        f"--rounds={min(config.rounds, config.task_rounds)}",
        *given,
    ]
    # The denominators of the first are the noisy runs'.
    plans = {"no promise": ("--privacy=none", "--estimator=fixed")}
    files: dict[str, str] = {}
    for first in range(1, len(config.promises) + 1):
        # Stand-ins have other names: of them it does not matter who carries noise.
        planned = dataclasses.replace(config.planned(first), noising=())
        file = folder / f"{_digest(planned.to_dict()['plan'])}.json"
        planned.write(file)
        promise = str(planned.kept[-1].promise)
        plans[promise] = (f"--plan={file}",)
        files[promise] = str(file)
    # A promise that others' noise keeps needs no training of its own.
    jobs = [
        sweep_runs.job_of(
            "train",
            [*fixed, *noise, f"--seed={seed}"],
            {"noise": noise[0], "seed": seed},
            folder / _digest([*fixed, *noise]) / f"seed={seed}",
        )
        for noise in dict.fromkeys(plans.values())
        for seed in config.seeds
    ]
    if sweep_runs.run_jobs(jobs, config.jobs):
        raise ArgumentError("task", config.task, "one that these flags train")
    metric = sweep_tables.headline(jobs)
    summed = sweep_tables.summary(sweep_tables.table(jobs), ["noise"], metric)
    found = summed.set_index("noise")
    reached = [
        Reached(
            promise=promise,
            accuracy=found["mean"][noise[0]],
            spread=found["std"][noise[0]] if len(config.seeds) > 1 else None,
            rounds=jobs[0].config.rounds,
            plan=files.get(promise),
        )
        for promise, noise in plans.items()
    ]
    _write(reached, len(config.seeds), folder / "accuracy.csv")
    return reached


def _write(reached: Sequence[Reached], runs: int, path: pathlib.Path) -> None:
    """A row for each plan: mean and spread over runs, what its last promise took."""
    accuracy = pd.Series([each.accuracy for each in reached])
    columns = {
        "kept": [each.promise for each in reached],
        "runs": runs,
        "accuracy": accuracy,
        "sd": [each.spread for each in reached],
        "this one costs": accuracy.shift() - accuracy,
    }
    table = pd.DataFrame(columns).to_csv(index=False, float_format="%.3f")
    write_text(path, table)


def _digest(value: Any) -> str:
    """Tells plans and trainings apart in a folder's names."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]
