"""One training run from config to run folder."""

import dataclasses
import pathlib
import secrets
from collections.abc import Sequence

from tff_hdp import runtime
from tff_hdp.errors import ArgumentError, check_count, entries, require
from tff_hdp.privacy import AccountRow, RoundLedger
from tff_hdp.simulation import report
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.run_log import logging_to
from tff_hdp.simulation.trackers import Tracker, Tracking, check_tracker
from tff_hdp.simulation.trained_model import ModelKeeper
from tff_hdp.simulation.training import train


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Attributes:
      config: What was asked.
      path: The run folder.
      ledger: Every round that was run.
      accounts: Its account, one row per observer and kind of client.
      metrics: The last round's row of metrics.csv, by column.
      headline: Which of them the system is judged by.
      summary: What the system alone has to show, as text.
      notes: What else must be known of the account.
    """

    config: RunConfig
    path: pathlib.Path
    ledger: RoundLedger
    accounts: list[AccountRow]
    metrics: dict[str, float]
    headline: str
    summary: str
    notes: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round."""
        return self.metrics["accuracy"]


def run(
    config: RunConfig,
    partition_seed: int | None = None,
    *,
    trackers: Sequence[Tracker] = (),
) -> RunResult:
    """Trains as `config` says and leaves metrics, ledger and figure behind.

    Args:
      config: Every setting, of any of the systems.
      partition_seed: Decides which examples go to which client, and who belongs to
        which zone, for runs that are to be compared; None takes the config's
        seed, or draws one. A folder's own, from its first start, prevails.
      trackers: Get every round's metrics once it is released, besides the folder.

    Raises:
      ArgumentError: If a setting does not fit the task or the folder, or an argument
        is of another type.
      FileError: If a file that the run reads does not hold what it should.
      FileNotFoundError: If one is missing, as the task's data; says what to get.
      FloatingPointError: If the model stops being finite.
      NoiseError: If a round's noise is less than its plan says.
      OSError: If a file cannot be read or written.
    """
    is_config = isinstance(config, RunConfig)
    require(is_config, "config", config, "settings of a system, as HdpConfig's")
    if partition_seed is not None:
        # NumPy's numbers would not go into the folder's JSON.
        partition_seed = check_count("partition_seed", partition_seed)
    trackers = entries("trackers", trackers, check_tracker)
    with RunFolder(config) as folder, logging_to(folder.path / "run.log") as log_file:
        runtime.set_context(config.runtime, workers=config.workers, log_file=log_file)
        if "partition_seed" not in folder.resolved:
            if partition_seed is None:
                partition_seed = config.seed
            if partition_seed is None:
                partition_seed = secrets.randbits(32)
            folder.resolve(partition_seed=partition_seed)
        try:
            system = config.build(folder)
            # What its building refuses is refused by the setting's name.
            _ = system.process
        except ArgumentError as error:
            raise error.renamed(config.setting_of) from error
        keeper = ModelKeeper(system, folder.path)
        folder.publish(system.published)
        tracking = [Tracking(tracker, system.published) for tracker in trackers]
        watchers = (keeper, *tracking)
        state, ledger = train(
            config=config, system=system, folder=folder, watchers=watchers
        )
        accounts = folder.write_privacy(
            ledger,
            system.notes,
            last_round=config.rounds,
            promises=system.promises(ledger),
        )
        finished = report.read_run(folder.path)
        metrics = finished.metrics.iloc[-1].to_dict()
        figure = folder.path / "figures" / f"{system.headline}.png"
        report.comparison_figure([finished], figure, system.headline)
        summary = system.finish(folder.path, state)
        # Last: whoever finds the model takes the run for finished.
        scores = finished.metrics.set_index("round")[system.headline]
        keeper.write(scores.to_dict(), state)
        return RunResult(
            config=config,
            path=folder.path,
            ledger=ledger,
            accounts=accounts,
            metrics=metrics,
            headline=system.headline,
            summary=summary,
            notes=tuple(finished.notes),
        )
