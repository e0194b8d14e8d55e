"""The training loop: resumable, accounted round by round."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from tff_hdp.privacy import Ledger
from tff_hdp.simulation.cohorts import CohortSampler, fresh_entropy
from tff_hdp.simulation.config import ConfigError, TrainConfig
from tff_hdp.simulation.federation import Federation
from tff_hdp.simulation.round_data import build_round_data
from tff_hdp.simulation.run_folder import Checkpoint, RunFolder
from tff_hdp.simulation.system import System

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How good a model is on the test set.

    Attributes:
      accuracy: Share of test examples classified rightly.
      loss: Mean cross-entropy in nats.
    """

    accuracy: float
    loss: float


def train(
    *,
    config: TrainConfig,
    federation: Federation,
    system: System,
    folder: RunFolder,
) -> tuple[Any, Ledger]:
    """Runs rounds up to `config.rounds`, from the folder's last checkpoint on.

    A round's checkpoint is the point of no return: a run killed before it is
    written repeats the round with the same cohort and fresh noise, and the
    ledger counts it once, since nothing of the first attempt left the process. A
    round whose checkpoint was written and then broken is run again too, and
    counted twice. privacy.json follows every round, by RDP.

    Args:
      config: The run's settings.
      federation: Who takes part.
      system: What runs a round.
      folder: Where checkpoints and metrics go.

    Returns:
      The final state of the process and the ledger.

    Raises:
      ConfigError: If the folder's run is past `config.rounds` already.
      FloatingPointError: If the model stops being finite; nothing is then
        written for that round.
    """
    evaluate = build_evaluation(federation)
    process = system.process
    start = _initial_or_latest(config, federation, process, folder)
    sampler = CohortSampler(
        plan=federation.plan, zoning=federation.zoning, entropy=start.entropy
    )
    round_data = build_round_data(
        config=config,
        federation=federation,
        sampler=sampler,
        chunk_size=system.chunk_size,
    )
    ledger = Ledger()
    ledger.load_state_dict(start.ledger)
    if start.lost_rounds and federation.plan.is_noisy:
        ledger.record(federation.plan, start.lost_rounds)
    state = start.state
    if start.round_number > config.rounds:
        raise ConfigError(
            f"--rounds is {config.rounds}; allowed: at least {start.round_number}, "
            f"which the run in --out={folder.path} has"
        )
    rounds = range(start.round_number + 1, config.rounds + 1)
    with tqdm.tqdm(
        total=config.rounds,
        initial=start.round_number,
        unit="round",
        desc=config.privacy,
    ) as progress:
        for number in rounds:
            began = time.monotonic()
            output = process.next(state, round_data(number))
            state = output.state
            weights = process.get_model_weights(state)
            if not all(np.isfinite(w).all() for w in weights.trainable):
                raise FloatingPointError(
                    f"the model is not finite after round {number}; lower "
                    "--client_learning_rate or --server_learning_rate"
                )
            measured = output.metrics["aggregator"]
            if federation.plan.is_noisy:
                ledger.record(federation.plan, events=_events(measured.get("events")))
            seconds = time.monotonic() - began
            metrics = _metrics(evaluate(weights), measured, output.metrics, seconds)
            metrics["epsilon"] = _shown_epsilon(ledger, config.delta)
            folder.save(
                Checkpoint(number, state, start.entropy, ledger.state_dict(), metrics)
            )
            folder.write_privacy(
                config, federation.plan, ledger, number, methods=("rdp",)
            )
            folder.release_metrics(number, metrics)
            progress.update()
            progress.set_postfix(
                accuracy=f"{metrics['accuracy']:.3f}",
                epsilon=f"{metrics['epsilon']:.3g}",
            )
    return state, ledger


def build_evaluation(
    federation: Federation, batch_size: int = 512
) -> Callable[[tff.learning.models.ModelWeights], Evaluation]:
    """Returns a function from model weights to test accuracy and loss."""
    task = federation.task
    model = task.build_model()
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    batches = tf.data.Dataset.from_tensor_slices(
        (task.test_features, task.test_labels)
    ).batch(batch_size)

    @tf.function
    def sums() -> tuple[tf.Tensor, tf.Tensor]:
        right, loss = tf.constant(0, tf.int64), tf.constant(0.0)
        for x, y in batches:
            logits = model(x, training=False)
            hits = tf.argmax(logits, 1) == tf.cast(y, tf.int64)
            right += tf.math.count_nonzero(hits)
            loss += tf.reduce_sum(loss_fn(y, logits))
        return right, loss

    def evaluate(weights: tff.learning.models.ModelWeights) -> Evaluation:
        weights.assign_weights_to(model)
        right, loss = sums()
        count = len(task.test_labels)
        return Evaluation(accuracy=float(right) / count, loss=float(loss) / count)

    return evaluate


def _initial_or_latest(
    config: TrainConfig,
    federation: Federation,
    process: tff.learning.templates.LearningProcess,
    folder: RunFolder,
) -> Checkpoint:
    blank = process.initialize()
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
    weights = _initial_weights(federation, config.seed)
    first = Checkpoint(
        round_number=0,
        state=process.set_model_weights(blank, weights),
        entropy=fresh_entropy() if config.seed is None else config.seed,
        ledger=Ledger().state_dict(),
        metrics={},
    )
    folder.save(first)
    return first


def _initial_weights(
    federation: Federation, seed: int | None
) -> tff.learning.models.ModelWeights:
    if seed is not None:
        tf.keras.utils.set_random_seed(seed)
    weights = tff.learning.models.ModelWeights.from_model(federation.task.build_model())
    if seed is not None:
        # Graphs traced from here on must not inherit the seed: they draw noise.
        tf.random.set_seed(None)
    return tf.nest.map_structure(lambda v: v.numpy(), weights)


def _events(measured: Any) -> dict[str, Any]:
    """The levels' events, from named tuples back to `DpEvent`s."""
    restore = dp_accounting.DpEvent.from_named_tuple
    events: dict[str, Any] = {}
    for level, value in (measured or {}).items():
        if level == "zones":
            events["zone"] = [restore(event) for event in value]
        elif level == "upper":
            events["upper"] = [[restore(e) for e in nodes] for nodes in value]
        else:
            events[level] = restore(value)
    return events


def _metrics(
    evaluation: Evaluation, measured: Any, metrics: Any, seconds: float
) -> dict[str, float]:
    train = metrics["client_work"]["train"]
    return {
        "accuracy": evaluation.accuracy,
        "loss": evaluation.loss,
        "train_loss": float(train["loss"]),
        "train_accuracy": float(train["accuracy"]),
        "round_seconds": seconds,
        "clients": int(np.sum(measured["clients"])),
        "empty_zones": int(np.sum(np.asarray(measured["clients"]) == 0)),
        "rejected": int(measured["rejected"]),
        "update_norm": float(measured["update_norm"]),
        "clip_norm": float(measured["clip_norm"]),
    }


def _shown_epsilon(ledger: Ledger, delta: float) -> float:
    """The worst client's epsilon against those who only get the model, by RDP."""
    if not ledger.rounds:
        return float("inf")
    rows = ledger.account(delta, methods=("rdp",))
    released = [r.epsilon_rdp for r in rows if r.observer == "released_model"]
    return max(float("inf") if e is None else e for e in released)
