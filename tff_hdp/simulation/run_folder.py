"""The run folder: what a run was asked, where it stands, what came of it.

    <out>/config.json      every flag, what was resolved from them, versions
    <out>/metrics.csv      one row a round
    <out>/privacy.json     the ledger and the account per observer
    <out>/checkpoints/     the last rounds' state, cohort secret and ledger
    <out>/tensorboard/     the metrics again
    <out>/figures/
    <out>/run.log

Every write is atomic: a file or checkpoint is whole or not there.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import importlib.metadata
import json
import logging
import os
import pathlib
import subprocess
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.accountant import METHODS, Method
from tff_hdp.simulation import report
from tff_hdp.simulation.book import RoundBook
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.files import write_json
from tff_hdp.simulation.trackers import grouped

_LOG = logging.getLogger(__name__)

_PACKAGES = (
    *("tff_hdp", "tensorflow", "tensorflow-federated", "tensorflow-privacy"),
    *("dp-accounting", "numpy"),
)
# Of checkpoints and of what is resolved: a run of another one is not resumed.
LAYOUT = 2
# Extending a run or moving it is no new run.
_MAY_CHANGE = {"rounds", "out", "runtime", "workers", "data_dir"}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run stands after a round.

    Attributes:
      round_number: The last completed round; 0 before the first.
      state: The learning process's state.
      entropy: The run's secret, from which its cohorts are drawn.
      carried: What the next round's `System.prepare` is given.
      ledger: The ledger's `state_dict()`.
      metrics: The round's row of metrics.csv; empty before the first.
      lost_rounds: Rounds after this one that were released but whose checkpoints
        cannot be read: they will be run again and must be accounted twice.
    """

    round_number: int
    state: Any
    entropy: int
    carried: dict[str, Any]
    ledger: dict[str, Any]
    metrics: dict[str, float]
    lost_rounds: int = 0


class RunFolder:
    """Reads and writes one run folder.

    Args:
      config: The run's settings. If the folder holds a run already, it must have
        been started with the same ones, save for `runtime`, paths and, unless the
        noise was chosen for them, `rounds`.

    Raises:
      ArgumentError: If the folder holds a run with other settings.
    """

    def __init__(self, config: RunConfig) -> None:
        self.path = pathlib.Path(config.out)
        self.path.mkdir(parents=True, exist_ok=True)
        self._record: dict[str, Any] = {}
        if any((self.path / "checkpoints").glob("program_state_*")):
            self._record = json.loads(self._config_path.read_text())
            self._check_same(config)
        self._record |= {
            "system": config.system,
            "layout": LAYOUT,
            "flags": config.to_dict(),
            "versions": {p: _version(p) for p in _PACKAGES},
            "git_commit": _git_commit(),
        }
        self._record.setdefault("resolved", {})
        write_json(self._config_path, self._record)
        self._states = tff.program.FileProgramStateManager(
            str(self.path / "checkpoints"), keep_total=3, keep_first=False
        )
        self._csv = tff.program.CSVFileReleaseManager(
            str(self.path / "metrics.csv"),
            save_mode=tff.program.CSVSaveMode.WRITE,
            key_fieldname="round",
        )
        self._board = tff.program.TensorBoardReleaseManager(
            str(self.path / "tensorboard")
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from running in this folder meanwhile.

        Two runs that resume together would release a round twice and count it once.

        Raises:
          ArgumentError: If another run holds the folder.
        """
        with open(self.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ArgumentError(
                    "out", self.path, "a folder no other run is using"
                ) from error
            yield

    @property
    def resolved(self) -> dict[str, Any]:
        """What was drawn, measured or calibrated at the start of the run."""
        return self._record["resolved"]

    def resolve(self, **values: Any) -> None:
        """Adds to `resolved`, on disk too."""
        self._record["resolved"] |= values
        write_json(self._config_path, self._record)

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint and forgets all but the last three."""
        value = {
            "state": tf.nest.flatten(checkpoint.state),
            "entropy": str(checkpoint.entropy),
            "carried": json.dumps(checkpoint.carried),
            "ledger": json.dumps(checkpoint.ledger),
            "metrics": json.dumps(checkpoint.metrics),
        }
        _wait_for(self._states.save(value, checkpoint.round_number))

    def load_latest(self, like: Any) -> Checkpoint | None:
        """The newest checkpoint that can be read; None for a new run.

        Broken checkpoints newer than that one are renamed out of the way, and
        reported in `lost_rounds`.

        Args:
          like: A state of the structure to restore.

        Raises:
          ArgumentError: If there was a run but no checkpoint can be read. Starting
            over would lose the ledger of what was already released.
        """
        versions = _wait_for(self._states.get_versions()) or []
        broken = []
        for version in reversed(versions):
            try:
                found = self._load(version, like)
            except Exception as error:  # whatever TensorFlow makes of broken files
                broken.append(version)
                _LOG.warning(
                    "checkpoint of round %d in %s cannot be read (%s); "
                    "falling back to the one before",
                    version,
                    self.path,
                    error,
                )
                continue
            for newer in broken:
                self._set_aside(newer)
            return dataclasses.replace(
                found, lost_rounds=self._broken_after(found.round_number)
            )
        if broken or self._has_metrics():
            raise ArgumentError(
                "out",
                self.path,
                "a new folder, or one whose run can be resumed; of this one's "
                "checkpoints none can be read, and starting over would forget what it "
                "released",
            )
        return None

    def release_metrics(self, round_number: int, metrics: dict[str, float]) -> None:
        """Writes a round's row; rows of later rounds, now undone, are dropped."""
        _wait_for(self._csv.release(metrics, round_number))
        _wait_for(self._board.release(grouped(metrics), round_number))

    def write_privacy(
        self,
        config: RunConfig,
        ledger: RoundBook,
        notes: Sequence[str],
        *,
        last_round: int,
        methods: Sequence[Method] = METHODS,
    ) -> list[AccountRow]:
        """Writes privacy.json for the rounds so far and returns its rows."""
        accounts = (
            ledger.account(config.delta, methods=methods) if ledger.rounds else []
        )
        value = report.privacy_report(
            config=config,
            ledger=ledger,
            notes=notes,
            accounts=accounts,
            last_round=last_round,
        )
        write_json(self.path / "privacy.json", value)
        return accounts

    def _load(self, version: int, like: Any) -> Checkpoint:
        expected = tf.nest.flatten(like)
        structure = {
            "state": [0] * len(expected),
            "entropy": "",
            "carried": "",
            "ledger": "",
            "metrics": "",
        }
        value = _wait_for(self._states.load(version, structure))
        leaves = [
            np.asarray(leaf).astype(np.asarray(e).dtype)
            for leaf, e in zip(value["state"], expected, strict=True)
        ]
        return Checkpoint(
            round_number=version,
            state=tf.nest.pack_sequence_as(like, leaves),
            entropy=int(value["entropy"]),
            carried=json.loads(value["carried"]),
            ledger=json.loads(value["ledger"]),
            metrics=json.loads(value["metrics"]),
        )

    def _has_metrics(self) -> bool:
        metrics = self.path / "metrics.csv"
        return metrics.exists() and len(metrics.read_text().splitlines()) > 1

    def _broken_after(self, round_number: int) -> int:
        names = (self.path / "checkpoints").glob("corrupt_program_state_*")
        rounds = {int(path.name.split("_")[3]) for path in names}
        return sum(number > round_number for number in rounds)

    def _set_aside(self, version: int) -> None:
        folder = self.path / "checkpoints"
        name = f"program_state_{version}"
        (folder / name).rename(folder / f"corrupt_{name}_{os.getpid()}")

    @property
    def _config_path(self) -> pathlib.Path:
        return self.path / "config.json"

    def _check_same(self, config: RunConfig) -> None:
        # More rounds would overrun the epsilon that the noise was chosen for.
        fixed = {"rounds"} if config.fixes_rounds else set()
        if self._record["system"] != config.system:
            raise ArgumentError(
                "out", config.out, f"a folder without a run of {self._record['system']}"
            )
        if self._record.get("layout") != LAYOUT:
            raise ArgumentError(
                "out",
                config.out,
                "a new folder; the run in this one was started by another version, "
                "whose checkpoints cannot be resumed",
            )
        for name, value in json.loads(json.dumps(config.to_dict())).items():
            before = self._record["flags"].get(name)
            if name not in _MAY_CHANGE - fixed and value != before:
                raise ArgumentError(
                    name,
                    value,
                    f"{before}, with which the run in out={config.out} was started",
                )


def _wait_for(task: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine to its end, also where an event loop runs (notebooks)."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, task).result()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git_commit() -> str:
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return result.stdout.strip()
