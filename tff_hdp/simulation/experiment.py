"""One training run from config to run folder."""

import contextlib
import dataclasses
import logging
import math
import pathlib
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np

import tasks
from tff_hdp import runtime
from tff_hdp.privacy import Clipping, Ledger, NoisePlan
from tff_hdp.simulation import report
from tff_hdp.simulation.cohorts import CohortSampler, fresh_entropy
from tff_hdp.simulation.config import ConfigError, TrainConfig, flag_error
from tff_hdp.simulation.federation import Federation, build_federation
from tff_hdp.simulation.round_data import build_round_data
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import build_system
from tff_hdp.simulation.training import train

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Attributes:
      config: What was asked.
      path: The run folder.
      ledger: Every round's plan.
      accounts: `AccountRow`s, one per observer and kind of client.
      accuracy: Test accuracy after the last round.
    """

    config: TrainConfig
    path: pathlib.Path
    ledger: Ledger
    accounts: list[Any]
    accuracy: float


def run(config: TrainConfig) -> RunResult:
    """Trains as `config` says and leaves metrics, ledger and figure behind.

    Args:
      config: Every setting.

    Raises:
      ConfigError: If a flag does not fit the task or the folder.
      FileNotFoundError: If the task's data is missing; says what to get.
    """
    folder = RunFolder(config)
    with folder.locked(), _logging_to(folder.path / "run.log"):
        return _run(config, folder)


def _run(config: TrainConfig, folder: RunFolder) -> RunResult:
    runtime.set_context(config.runtime, log_file=folder.path / "run.log")
    if "partition_seed" not in folder.resolved:
        drawn = secrets.randbits(32) if config.seed is None else config.seed
        folder.resolve(partition_seed=drawn)
    seed = folder.resolved["partition_seed"]
    task = _load_task(config, seed)
    clipping = _clipping(config, task, folder)
    federation = build_federation(
        config,
        task,
        partition_seed=seed,
        clipping=clipping,
        noise_multiplier=folder.resolved.get(
            "noise_multiplier", config.noise_multiplier
        ),
    )
    folder.resolve(noise_multiplier=_multiplier(federation.plan), task=task.description)
    system = build_system(config, federation)
    _, ledger = train(
        config=config, federation=federation, system=system, folder=folder
    )
    return _finish(config, federation, folder, ledger)


def _load_task(config: TrainConfig, seed: int) -> tasks.Task:
    try:
        return tasks.load(
            config.task,
            model=config.model,
            data_dir=config.data_dir,
            num_clients=config.num_clients,
            partition=config.partition,
            dirichlet_alpha=config.dirichlet_alpha,
            seed=seed,
        )
    except ValueError as error:
        raise flag_error(error, f"--task is {config.task}") from error


@contextlib.contextmanager
def _logging_to(path: pathlib.Path) -> Iterator[None]:
    """Sends the program's log to a file as well."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _clipping(config: TrainConfig, task: tasks.Task, folder: RunFolder) -> Clipping:
    """S as given, or as measured by a pilot that the folder remembers."""
    if config.privacy == "none":
        return Clipping(source="no clipping")
    if config.clip_norm != "auto":
        return Clipping(norm=float(config.clip_norm), kind=config.clipping)
    if "pilot_norms" not in folder.resolved:
        folder.resolve(pilot_norms=_pilot_norms(config, task, folder))
    measured = folder.resolved["pilot_norms"]
    source = (
        f"mean update norm of {config.pilot_rounds} rounds without noise or clipping; "
        "this estimate is itself not private"
    )
    if config.clipping != "per_layer":
        return Clipping(norm=measured["update"], kind=config.clipping, source=source)
    norms = tuple(measured["tensors"])
    return Clipping(
        norm=math.hypot(*norms), kind="per_layer", layer_norms=norms, source=source
    )


def _pilot_norms(
    config: TrainConfig, task: tasks.Task, folder: RunFolder
) -> dict[str, Any]:
    """Mean norms of client updates, whole and per tensor, without privacy."""
    _LOG.info(
        "pilot of %d rounds without noise for --clip_norm=auto", config.pilot_rounds
    )
    pilot = dataclasses.replace(
        config,
        privacy="none",
        alpha=None,
        beta=None,
        clipping="flat",
        noise_multiplier=None,
        target_epsilon=None,
        estimator=None,
    )
    federation = build_federation(
        pilot,
        task,
        partition_seed=folder.resolved["partition_seed"],
        clipping=Clipping(),
        noise_multiplier=None,
    )
    system = build_system(pilot, federation)
    entropy = fresh_entropy() if config.seed is None else config.seed
    sampler = CohortSampler(
        plan=federation.plan, zoning=federation.zoning, entropy=entropy
    )
    round_data = build_round_data(
        config=pilot,
        federation=federation,
        sampler=sampler,
        chunk_size=system.chunk_size,
    )
    state = system.process.initialize()
    clients, whole, tensors = 0.0, 0.0, 0.0
    for number in range(1, config.pilot_rounds + 1):
        output = system.process.next(state, round_data(number))
        state = output.state
        measured = output.metrics["aggregator"]
        count = float(np.sum(measured["clients"]))
        clients += count
        whole += count * float(measured["update_norm"])
        tensors += count * np.asarray(measured["tensor_norms"])
    if not (math.isfinite(whole) and whole > 0.0):
        raise ConfigError(
            f"--clip_norm is auto; the pilot of --pilot_rounds={config.pilot_rounds} "
            f"saw {clients:g} clients with updates of mean norm "
            f"{whole / max(clients, 1.0):g}; allowed: a positive one, or a number"
        )
    return {"update": whole / clients, "tensors": (tensors / clients).tolist()}


def _multiplier(plan: NoisePlan) -> float | None:
    """The one z of a Table I configuration."""
    used = (plan.client_noise, *plan.zone_noise, plan.server_noise)
    return max(used) if plan.is_noisy else None


def _finish(
    config: TrainConfig, federation: Federation, folder: RunFolder, ledger: Ledger
) -> RunResult:
    accounts = folder.write_privacy(config, federation.plan, ledger, config.rounds)
    finished = report.read_run(folder.path)
    report.comparison_figure([finished], folder.path / "figures" / "accuracy.png")
    return RunResult(
        config=config,
        path=folder.path,
        ledger=ledger,
        accounts=accounts,
        accuracy=finished.accuracy,
    )
