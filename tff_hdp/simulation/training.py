"""The training loop of all systems: resumable, accounted round by round."""

import concurrent.futures
import copy
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import RoundLedger
from tff_hdp.simulation.checkpoints import Checkpoint
from tff_hdp.simulation.cohorts import fresh_entropy
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.journal import RELEASING_THREAD, Journal
from tff_hdp.simulation.progress import Progress, epsilons
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System

_LOG = logging.getLogger(__name__)
# Sees a round: its number, its row of metrics.csv, and the state after it.
Watcher = Callable[[int, Mapping[str, float], Any], None]
# privacy.json is written for so many rounds in advance.
_AHEAD = 10
AHEAD = (
    f"Written before a round is released, and for up to {_AHEAD} rounds in advance: "
    "last_round and rounds say what is counted, not what has been run."
)


def train(
    *,
    config: RunConfig,
    system: System,
    folder: RunFolder,
    watchers: Sequence[Watcher] = (),
) -> tuple[Any, RoundLedger[Any]]:
    """Runs rounds up to `config.rounds`, from the folder's last checkpoint on.

    A whole checkpoint is the point of no return: a run that is killed from then on puts
    the round in the journal, if it is not there, and goes on after it. One that is
    killed before repeats the round with the same cohort and fresh noise. Either way it
    counts once. A round that is run again since its checkpoint is gone is counted
    again, and has another cohort: two sums over one cohort are more than two rounds
    with a cohort each. privacy.json states at any
    time at least the rounds that were released. A round is tested, accounted and
    released while the next one is computed, and before anything of that one is.

    Args:
      config: The run's settings.
      system: What runs a round.
      folder: Where journal, checkpoints and metrics go.
      watchers: Called once a round is released, before the next one is recorded, and
        again where a run resumes.

    Returns:
      The final state of the process and the ledger.

    Raises:
      ArgumentError: If the folder's run is past `config.rounds` already, or rounds
        whose checkpoints are gone make it more than what is promised is for.
      FloatingPointError: If the model stops being finite; nothing is then
        written for that round.
      OSError: If a file cannot be written; the run can be resumed.
    """
    start = _initial_or_latest(config, system, folder)
    if start.round_number > config.rounds:
        raise ArgumentError(
            "rounds",
            config.rounds,
            f"at least {start.round_number}, which the run in out={folder.path} has",
        )
    ledger = system.new_ledger()
    folder.journal.recall(ledger)
    most = min(system.most_rounds, folder.most_rounds)
    _check_rounds(config, start.round_number, ledger.rounds, most)
    statement = _Statement(config, system, folder)
    if 0 < start.round_number == config.rounds:
        start = _as_the_last(start, config, system, folder, ledger)
    state = start.state
    if start.round_number:
        # A kill may have come between that round's release and its watchers.
        for watch in watchers:
            watch(start.round_number, start.metrics, state)
    progress = Progress(config, system.headline, ledger, done=start.round_number)

    def release(number: int, given: RoundInput, ran: Any, seconds: float) -> Checkpoint:
        one = system.new_ledger()
        system.record(one, ran.metrics)
        ledger.extend(one)
        metrics = {"round_seconds": seconds}
        if number % config.evaluate_every == 0 or number == config.rounds:
            metrics |= system.evaluate(ran.state)
        metrics |= system.measure(ran.metrics) | given.metrics
        metrics |= epsilons(config, ledger, number)
        done = Checkpoint(
            round_number=number,
            state=ran.state,
            entropy=start.entropy,
            carried=given.carried,
            metrics=metrics,
        )
        statement.cover(number, ledger, one)
        folder.checkpoints.save(done, one.state_dict())
        folder.release_metrics(number, metrics)
        return done

    def tell(done: Checkpoint) -> None:
        for watch in watchers:
            watch(done.round_number, done.metrics, done.state)
        progress.show(done.round_number, done.metrics)

    with progress, _Releases(release, tell, folder.keep) as releases:
        for number, given in _prepared(system, start, config.rounds, folder.journal):
            began = time.monotonic()
            ran = system.process.next(state, given.data)
            seconds = time.monotonic() - began
            releases.wait()
            state = ran.state
            if not all(np.isfinite(w).all() for w in system.weights_of(state)):
                raise FloatingPointError(
                    f"the model is not finite after round {number}; lower the "
                    "learning rates"
                )
            releases.begin(number, given, ran, seconds)
    return state, ledger


def _check_rounds(config: RunConfig, start: int, released: int, most: float) -> None:
    """Refuses if rounds still to run and rounds released exceed `most`."""
    left = max(0, most - released)
    if config.rounds - start > left:
        raise ArgumentError(
            "rounds",
            config.rounds,
            f"at most {start + left}: what is promised of the run in out={config.out} "
            f"is for {most} rounds, and {released - start} more were released whose "
            "checkpoints are gone",
        )


def _as_the_last(
    done: Checkpoint,
    config: RunConfig,
    system: System,
    folder: RunFolder,
    ledger: RoundLedger[Any],
) -> Checkpoint:
    """Gives a round the test and epsilon of a run's last one, where it lacks them.

    So it does where the run was meant to go on when it ran the round.
    """
    number, metrics = done.round_number, dict(done.metrics)
    if system.headline not in metrics:
        metrics |= system.evaluate(done.state)
    if "epsilon" not in metrics:
        metrics |= epsilons(config, ledger, number)
    whole = dataclasses.replace(done, metrics=metrics)
    if metrics != done.metrics:
        # A run that is extended after all takes its row from here.
        folder.checkpoints.save(whole)
        folder.release_metrics(number, metrics)
    return whole


class _Releases:
    """Releases a round while the next one is computed, which need not wait for it.

    Args:
      release: Called in a thread, one round after the other; gives the checkpoint.
      tell: Called with a released round by whoever waits for it.
      keep: Keeps the folder until what it returns is called: whoever interrupts the
        wait for a release does not end it.
    """

    def __init__(
        self,
        release: Callable[..., Checkpoint],
        tell: Callable[[Checkpoint], None],
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        self._release, self._tell, self._keep = release, tell, keep
        self._thread = concurrent.futures.ThreadPoolExecutor(1, RELEASING_THREAD)
        self._begun: concurrent.futures.Future[Checkpoint] | None = None

    def __enter__(self) -> "_Releases":
        return self

    def __exit__(self, *error: object) -> None:
        with self._thread:
            self.wait()

    def begin(self, *ran: Any) -> None:
        """Begins to release a round; the one before has been waited for."""
        give_back = self._keep()
        # A thread does not have the TFF context of the one that started it.
        contexts = tff.framework.get_context_stack()
        context = contexts.current

        def release() -> Checkpoint:
            try:
                with contexts.install(context):
                    return self._release(*ran)
            finally:
                give_back()

        self._begun = self._thread.submit(release)

    def wait(self) -> None:
        """Waits until the round that was begun is released, and tells of it."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self._tell(begun.result())


class _Statement:
    """Keeps privacy.json at or ahead of what is released."""

    def __init__(self, config: RunConfig, system: System, folder: RunFolder) -> None:
        self._config, self._system, self._folder = config, system, folder
        self._left, self._like = 0, None

    def cover(
        self, number: int, ledger: RoundLedger[Any], one: RoundLedger[Any]
    ) -> None:
        """Makes privacy.json cover a round, and rounds like it in advance.

        Args:
          number: The round's.
          ledger: All rounds with this one.
          one: This one alone.
        """
        if self._left and one == self._like:
            self._left -= 1
            return
        self._left = min(_AHEAD, self._config.rounds - number)
        self._like = one
        covered = copy.deepcopy(ledger, {id(plan): plan for plan, _ in ledger.history})
        for _ in range(self._left):
            covered.extend(one)
        self._folder.write_privacy(
            covered,
            (*self._system.notes, AHEAD),
            last_round=number + self._left,
            methods=("rdp",),
        )


def _prepared(
    system: System, start: Checkpoint, rounds: int, journal: Journal
) -> Iterator[tuple[int, RoundInput]]:
    """Every round's number and input, the next one prepared meanwhile."""
    carried = start.carried
    # Before this process; it releases none twice.
    earlier = journal.releases_by_round
    with concurrent.futures.ThreadPoolExecutor(1) as thread:

        def submit(number: int, carried: Any) -> concurrent.futures.Future[RoundInput]:
            times = earlier[number]
            return thread.submit(
                system.prepare, start.entropy, number, carried, earlier=times
            )

        coming = None
        for number in range(start.round_number + 1, rounds + 1):
            given = (coming or submit(number, carried)).result()
            coming = submit(number + 1, given.carried) if number < rounds else None
            yield number, given


def _initial_or_latest(
    config: RunConfig, system: System, folder: RunFolder
) -> Checkpoint:
    found = folder.load_latest(like=system.process.initialize())
    if found is not None:
        if found.round_number:
            _LOG.info("resuming %s after round %d", folder.path, found.round_number)
            # The run may have been killed between its checkpoint and this row.
            folder.release_metrics(found.round_number, found.metrics)
        return found
    first = Checkpoint(
        round_number=0,
        state=system.initial_state(config.seed),
        entropy=fresh_entropy() if config.seed is None else config.seed,
        carried={},
        metrics={},
    )
    folder.begin()
    folder.checkpoints.save(first)
    return first
