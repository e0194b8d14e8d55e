"""The training loop of all systems: resumable, accounted round by round."""

import concurrent.futures
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.book import RoundBook
from tff_hdp.simulation.cohorts import fresh_entropy
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.run_folder import Checkpoint, RunFolder
from tff_hdp.simulation.system import RoundInput, System

_LOG = logging.getLogger(__name__)
# Sees a round: its number, its row of metrics.csv, and the state after it.
Watcher = Callable[[int, Mapping[str, float], Any], None]


def train(
    *,
    config: RunConfig,
    system: System,
    folder: RunFolder,
    watchers: Sequence[Watcher] = (),
) -> tuple[Any, RoundBook]:
    """Runs rounds up to `config.rounds`, from the folder's last checkpoint on.

    A round's checkpoint is the point of no return: a run killed before it is
    written repeats the round with the same cohort and fresh noise, and the
    ledger counts it once, since nothing of the first attempt left the process. A
    round whose checkpoint was written and then broken is run again too, and
    counted twice. privacy.json follows every round, by RDP.

    Args:
      config: The run's settings.
      system: What runs a round.
      folder: Where checkpoints and metrics go.
      watchers: Called once a round is released, and again where a run resumes.

    Returns:
      The final state of the process and the ledger.

    Raises:
      ArgumentError: If the folder's run is past `config.rounds` already.
      FloatingPointError: If the model stops being finite; nothing is then
        written for that round.
    """
    start = _initial_or_latest(config, system, folder)
    ledger = system.new_ledger()
    ledger.load_state_dict(start.ledger)
    if start.lost_rounds:
        system.record(ledger, None, start.lost_rounds)
    if start.round_number > config.rounds:
        raise ArgumentError(
            "rounds",
            config.rounds,
            f"at least {start.round_number}, which the run in out={folder.path} has",
        )
    state = start.state
    if start.round_number:
        # A kill may have come between that round's release and its watchers.
        for watch in watchers:
            watch(start.round_number, start.metrics, state)
    with tqdm.tqdm(
        total=config.rounds,
        initial=start.round_number,
        unit="round",
        desc=config.label,
    ) as progress:
        for number, given in _prepared(system, start, config.rounds):
            began = time.monotonic()
            output = system.process.next(state, given.data)
            state = output.state
            if not all(np.isfinite(w).all() for w in system.weights_of(state)):
                raise FloatingPointError(
                    f"the model is not finite after round {number}; lower the "
                    "learning rates"
                )
            system.record(ledger, output.metrics, 1)
            seconds = time.monotonic() - began
            metrics = {
                **system.evaluate(state),
                **system.measure(output.metrics),
                **given.metrics,
                "round_seconds": seconds,
                "epsilon": _shown_epsilon(ledger, config.delta),
            }
            folder.save(
                Checkpoint(
                    round_number=number,
                    state=state,
                    entropy=start.entropy,
                    carried=given.carried,
                    ledger=ledger.state_dict(),
                    metrics=metrics,
                )
            )
            folder.write_privacy(
                config, ledger, system.notes, last_round=number, methods=("rdp",)
            )
            folder.release_metrics(number, metrics)
            for watch in watchers:
                watch(number, metrics, state)
            progress.update()
            progress.set_postfix(
                {system.headline: f"{metrics[system.headline]:.3g}"},
                epsilon=f"{metrics['epsilon']:.3g}",
            )
    return state, ledger


def _prepared(
    system: System, start: Checkpoint, rounds: int
) -> Iterator[tuple[int, RoundInput]]:
    """Every round's number and input, the next one prepared meanwhile."""
    carried = start.carried
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        coming = None
        for number in range(start.round_number + 1, rounds + 1):
            if coming is None:
                coming = thread.submit(system.prepare, start.entropy, number, carried)
            given = coming.result()
            coming = None
            if number < rounds:
                coming = thread.submit(
                    system.prepare, start.entropy, number + 1, given.carried
                )
            yield number, given


def _initial_or_latest(
    config: RunConfig, system: System, folder: RunFolder
) -> Checkpoint:
    blank = system.process.initialize()
    found = folder.load_latest(like=blank)
    if found is not None:
        if found.round_number:
            _LOG.info("resuming %s after round %d", folder.path, found.round_number)
            # The run may have been killed between its checkpoint and this row.
            folder.release_metrics(found.round_number, found.metrics)
        if found.lost_rounds:
            _LOG.warning(
                "%d released rounds are lost; they are run again and accounted twice",
                found.lost_rounds,
            )
        return found
    first = Checkpoint(
        round_number=0,
        state=system.initial_state(config.seed),
        entropy=fresh_entropy() if config.seed is None else config.seed,
        carried={},
        ledger=system.new_ledger().state_dict(),
        metrics={},
    )
    folder.save(first)
    return first


def _shown_epsilon(ledger: RoundBook, delta: float) -> float:
    """The worst client's epsilon against those who only get the model, by RDP."""
    if not ledger.rounds:
        return float("inf")
    rows = ledger.account(delta, methods=("rdp",))
    released = [r.epsilon_rdp for r in rows if r.observer == "released_model"]
    return max(
        (float("inf") if e is None else e for e in released), default=float("inf")
    )
