"""The run folder: what a run was asked, where it stands, what came of it.

    <out>/config.json      every flag, what was resolved from them, versions
    <out>/journal.jsonl    what the run began with, and a line for every release
    <out>/checkpoints/     the last rounds' state and the run's secret, from which all
                           cohorts follow; for its owner's eyes only (0700, 0600)
    <out>/metrics.csv      one row a round
    <out>/plan.json        the noise plan of a run with --plan
    <out>/privacy.json     the ledger and the account per observer
    <out>/tensorboard/     the metrics again
    <out>/figures/
    <out>/run.log

A round is released once anything made from it is outside the process, and that is its
checkpoint first. It is in the journal before that file has its name; what the journal
says is what the ledger counts, whatever becomes of the other files.
"""

import asyncio
import concurrent.futures
import contextlib
import fcntl
import functools
import io
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.files import write_bytes, write_json
from tff_hdp.privacy import AccountRow, RoundLedger
from tff_hdp.privacy.accountant import METHODS, Method
from tff_hdp.simulation import record
from tff_hdp.simulation.checkpoints import Checkpoint, Checkpoints
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.journal import Journal
from tff_hdp.simulation.trackers import Board, CsvRows

# What ends a run that must be asked for otherwise: a setting or file that does not do,
# workers that do not answer, learning rates under which the model is infinite.
_REFUSALS = (
    *(ArgumentError, FileError, FileNotFoundError),
    *(ConnectionError, FloatingPointError),
)


class RunFolder:
    """Reads and writes one run folder, which it keeps others from meanwhile.

    Two runs that resume together would release a round twice and count it once.

    Args:
      config: The run's settings. If the folder holds a run already, it must have
        been started with the same ones, save for `runtime`, paths and, unless the
        noise was chosen for them, `rounds`.

    Raises:
      ArgumentError: If the folder is in use, or holds a run with other settings, one of
        which nobody can tell what it released, or what is no run's.
      FileError: If a file of the folder is not as the run wrote it.
      OSError: If one cannot be read or written.
    """

    def __init__(self, config: RunConfig) -> None:
        self.path, self._config = pathlib.Path(config.out), config
        self._made, self._refused = not self.path.exists(), False
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ArgumentError("out", config.out, "a folder, or none yet") from error
        record.refuse_foreign(self.path)
        with contextlib.ExitStack() as opened:
            opened.push(self._say_where)
            # Before anything is written: what is there may be another run's.
            self._lock = opened.enter_context(_locked(self.path))
            # After all else is closed, and before another may have the folder.
            opened.callback(self._remove_if_refused)
            self.journal = Journal(self.path / "journal.jsonl")
            resolved: dict[str, Any] = {}
            if self.journal.began:
                record.check_same(config, self.journal.began)
                record.check_repeats(self._config_path, self.journal.began)
                resolved = self.journal.began["resolved"]
            else:
                record.refuse_uncounted(self.path)
            self._record = record.record_of(config, resolved)
            self.checkpoints = Checkpoints(self.path / "checkpoints", self.journal)
            opened.callback(self.checkpoints.close)
            rows = CsvRows(self.path / "metrics.csv")
            record.refuse_older_journal(self.path, self.journal, rows.last_round)
            # Of the run as it was, whatever comes of what is asked now.
            self.checkpoints.take_up()
            opened.push(self._put_back())
            write_json(self._config_path, self._record)
            self._board = Board(self.path / "tensorboard")
            self._managers: tuple[tff.program.ReleaseManager, ...] = (rows, self._board)
            self._published: tuple[str, ...] = ()
            # In a thread, for where an event loop runs already: notebooks.
            self._thread = opened.enter_context(
                concurrent.futures.ThreadPoolExecutor(1)
            )
            self._loop = asyncio.Runner()
            opened.callback(lambda: self._thread.submit(self._loop.close).result())
            self._opened = opened.pop_all()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: object
    ) -> None:
        self._refused = isinstance(error, _REFUSALS)
        self._opened.__exit__(kind, error, trace)

    def _say_where(self, kind: type | None, error: object, trace: object) -> None:
        # Writing to a full disk does not say where; errors of our own say it in words.
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(self.path)

    def keep(self) -> Callable[[], None]:
        """Keeps others from the folder, also once this has ended.

        For a thread that writes on where a run was interrupted.

        Returns:
          What ends it; without, the folder is kept for as long as the process lives.
        """
        # A lock is there until every descriptor of the file that has it is closed.
        return functools.partial(os.close, os.dup(self._lock.fileno()))

    def _put_back(self) -> Callable[..., None]:
        """Gives config.json back what it says if an error ends what is asked now.

        Not where a round was released under it.
        """
        path, releases = self._config_path, self.journal.releases
        before = path.read_bytes() if self.journal.began and path.exists() else None

        def put_back(kind: type | None, *_: object) -> None:
            if kind and before and releases == self.journal.releases:
                # The error that ended the run is the one to tell of.
                with contextlib.suppress(OSError):
                    write_bytes(path, before)

        return put_back

    def publish(self, columns: Sequence[str]) -> None:
        """Says which columns of metrics.csv are for others than the operator too."""
        self._board.tests = self._published = tuple(columns)

    def _remove_if_refused(self) -> None:
        """Leaves nothing of a run that was refused before it released a round."""
        if self._refused and self._made and not self.journal.releases:
            shutil.rmtree(self.path)

    @property
    def resolved(self) -> dict[str, Any]:
        """What was drawn, measured or calibrated at the start of the run."""
        return self._record["resolved"]

    @property
    def most_rounds(self) -> float:
        """For how many rounds the noise was chosen; any number where for none.

        Of a run that has begun.
        """
        bound = self.journal.began["flags"]["rounds"]
        return bound if self._config.bounds_rounds else math.inf

    def resolve(self, **values: Any) -> None:
        """Adds to `resolved`, on disk too.

        Raises:
          ArgumentError: If the run began with other values.
        """
        values = record.as_json(values)
        if not self.journal.began:
            self.resolved.update(values)
            write_json(self._config_path, self._record)
        elif name := record.difference(values, self.resolved, values):
            raise ArgumentError(
                "out",
                self.path,
                f"a new folder; the run in this one began with {name} "
                f"{self.resolved.get(name)}, which is now {values[name]}",
            )

    def begin(self) -> None:
        """Opens the journal: from now on the folder's settings are fixed."""
        kept = ("layout", "system", "flags", "resolved")
        self.journal.begin({name: self._record[name] for name in kept})

    def load_latest(self, like: Any) -> Checkpoint | None:
        """The newest checkpoint that can be read; None for a new run.

        Args:
          like: A state of the structure to restore.

        Raises:
          ArgumentError: If rounds were released but no checkpoint can be read.
          FileError: If the journal is not the one that a checkpoint knows of.
        """
        found = self.checkpoints.load_latest(like)
        if found is None and self.journal.releases:
            raise ArgumentError(
                "out",
                self.path,
                "a new folder, or one whose run can be resumed; of this one's "
                "checkpoints none can be read",
            )
        return found

    def release_metrics(self, round_number: int, metrics: dict[str, float]) -> None:
        """Writes a round's row; rows of later rounds, now undone, are dropped."""

        async def release() -> None:
            for manager in self._managers:
                await manager.release(metrics, round_number)

        self._thread.submit(self._loop.run, release()).result()

    def write_privacy(
        self,
        ledger: RoundLedger[Any],
        notes: Sequence[str],
        *,
        last_round: int,
        methods: Sequence[Method] = METHODS,
        promises: Sequence[Mapping[str, Any]] = (),
    ) -> list[AccountRow]:
        """Writes privacy.json for the rounds of a ledger and returns its rows.

        The disk has it when this returns.
        """
        config, releases = self._config, self.journal.releases
        accounts = (
            ledger.account(config.delta, methods=methods) if ledger.rounds else []
        )
        notes = [*notes, *map(_promise_note, promises)]
        if config.seed is not None:
            notes.append(record.SEEDED.format(seed=config.seed))
        value = {
            "system": config.system,
            "privacy": config.label,
            "last_round": last_round,
            "rounds": ledger.rounds,
            "delta": config.delta,
            "seed": config.seed,
            "notes": notes,
            "promises": list(promises),
            "accounts": [row.to_dict() for row in accounts],
            "ledger": ledger.state_dict(),
            "published": list(self._published),
            "journal": [releases, self.journal.head(releases)],
        }
        write_json(self.path / "privacy.json", value, durable=True)
        return accounts

    @property
    def _config_path(self) -> pathlib.Path:
        return self.path / "config.json"


def _promise_note(promise: Mapping[str, Any]) -> str:
    """Whether a promise was kept, in words."""
    words = "kept" if promise["kept"] else "NOT KEPT"
    epsilon = promise["epsilon"]
    reached = "no guarantee" if epsilon is None else f"epsilon {epsilon:.6g}"
    return (
        f"Promised {promise['promise']}: {words}, {reached} by "
        f"{promise['method'].upper()} at delta {promise['delta']:g}, for "
        f"{', or of other clients '.join(promise['rests_on'])}."
    )


def _locked(path: pathlib.Path) -> io.TextIOWrapper:
    lock = (path / ".lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise ArgumentError("out", path, "a folder no other run is using") from error
    return lock
