"""FL-TOP and the schemes beside it as the training loop runs them."""

import functools
import pathlib
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_hdp.clients import training as stacked_work
from tff_hdp.clients.batches import make_order
from tff_hdp.clients.training import make_chunk
from tff_hdp.privacy import Clipping, NoisePlan
from tff_hdp.simulation.classifier import build_evaluation
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.config import ConfigError
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top import public as top_k
from tff_hdp.systems.fl_top import results
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.process import build_fl_top
from tff_hdp.systems.fl_top.setup import PublicBatch, Setup, load_with_public, set_up
from tff_hdp.systems.hdp.clients import chunk_type
from tff_hdp.topology import Zoning

BEST_ROUND = (
    "The tables take the round of best test accuracy, as the paper does. Choosing it "
    "looks at all rounds, so the sound epsilons are those of the whole run; and at the "
    "test set, which no epsilon protects."
)


def build(config: FlTopConfig, folder: RunFolder) -> System:
    """Builds one scheme for the training loop.

    Args:
      config: The run's settings.
      folder: Remembers what was drawn and measured before round 1.

    Raises:
      ConfigError: If a flag does not fit the task.
      DataNotFoundError: If the task's data is missing.
    """
    task, public = load_with_public(config, folder.resolved["partition_seed"])
    clients = len(task.train.client_ids)
    if config.clients_per_round > clients:
        raise ConfigError(
            f"--clients_per_round is {config.clients_per_round}; allowed: at most "
            f"{clients} (the clients)"
        )
    setup = set_up(config, task, public, folder)
    plan = _plan(config, clients, folder.resolved["clip_norm"])
    process = build_fl_top(
        build_model=task.build_model,
        data_type=chunk_type(task.test_features.shape[1:], task.test_features.dtype),
        plan=plan,
        compressor=setup.compressor,
        client_learning_rate=config.client_learning_rate,
    )
    folder.resolve(
        task=task.description,
        public_data=public.source,
        clients=clients,
        weights=setup.compressor.num_weights,
        upload_size=setup.compressor.upload_size,
        download_size=setup.compressor.download_size,
    )
    evaluate = _build_evaluation(task)

    def initial_state(seed: int | None) -> Any:
        del seed  # w_0 is of the set-up, for which the Top-K weights were chosen.
        state = process.initialize()
        like = process.get_model_weights(state)
        trainable = tf.nest.pack_sequence_as(like.trainable, setup.initial)
        weights = tff.learning.models.ModelWeights(trainable, like.non_trainable)
        return process.set_model_weights(state, weights)

    def record(ledger: fl_top_dp.FlTopLedger, metrics: Any, count: int) -> None:
        if not plan.is_noisy:
            return
        if metrics is None:
            ledger.record(plan, count)
            return
        emitted = metrics["aggregator"]["events"]["client"]
        event = dp_accounting.DpEvent.from_named_tuple(emitted)
        ledger.record(plan, count, events={"client": event})

    return System(
        process=process,
        initial_state=initial_state,
        prepare=_build_prepare(config, task, plan, setup),
        new_ledger=fl_top_dp.FlTopLedger,
        record=record,
        weights_of=lambda state: process.get_model_weights(state).trainable,
        evaluate=lambda state: evaluate(process.get_model_weights(state)),
        measure=_measure,
        notes=_notes(plan, public),
        headline=results.headline(task.num_classes),
        finish=functools.partial(_finish, process),
    )


def _plan(config: FlTopConfig, clients: int, clip_norm: float | None) -> NoisePlan:
    per_round = config.clients_per_round
    if not config.is_private:
        return fl_top_dp.plan_without_noise(clients=clients, per_round=per_round)
    source = (
        "norm of the compressed update of one round on public data"
        if config.clip_norm == "auto"
        else "given"
    )
    return fl_top_dp.plan(
        clients=clients,
        per_round=per_round,
        sigma=config.noise_multiplier,
        clipping=Clipping(clip_norm=clip_norm, source=source),
    )


def _build_prepare(
    config: FlTopConfig, task: tasks.Task, plan: NoisePlan, setup: Setup
) -> Any:
    train = task.train
    zoning = Zoning(train.client_ids, (0,) * len(train.client_ids))
    chunk_size = config.cohort_chunk or stacked_work.chunk_size(
        setup.compressor.num_weights
    )
    batch_size = min(config.batch_size, int(train.sizes.max()))

    def prepare(entropy: int, number: int, carried: dict[str, Any]) -> RoundInput:
        sampler = CohortSampler(plan=plan, zoning=zoning, entropy=entropy)
        rng = sampler.generator(number, stream=1)
        cohort = sampler.draw(number)
        orders = [
            make_order(
                int(train.sizes[client]),
                epochs=config.local_epochs,
                batch_size=batch_size,
                rng=rng,
            )
            for client in cohort
        ]
        chunks = []
        for start in range(0, len(cohort), chunk_size):
            members = cohort[start : start + chunk_size]
            chunk = make_chunk(
                [train.examples(client) for client in members],
                orders[start : start + chunk_size],
                weights=np.ones(len(members)),
                carries_noise=np.full(len(members), plan.is_noisy),
                zone=0,
            )
            chunks.append(tf.data.Dataset.from_tensors(chunk))
        return RoundInput(chunks, carried)

    return prepare


def _build_evaluation(task: tasks.Task) -> Any:
    """Test accuracy and loss; for two classes balanced accuracy and AUROC too."""
    plain = build_evaluation(task)
    if task.num_classes != 2:
        return plain
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    model = task.build_model()

    def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
        weights.assign_weights_to(model)
        logits = model(task.test_features, training=False).numpy()
        guesses = np.argmax(logits, axis=1)
        return plain(weights) | {
            "balanced_accuracy": balanced_accuracy_score(task.test_labels, guesses),
            "auroc": roc_auc_score(task.test_labels, logits[:, 1] - logits[:, 0]),
        }

    return evaluate


def _measure(metrics: Any) -> dict[str, float]:
    train, measured = metrics["client_work"]["train"], metrics["aggregator"]
    return {
        "train_loss": float(train["loss"]),
        "train_accuracy": float(train["accuracy"]),
        "clients": int(np.sum(measured["clients"])),
        "rejected": int(measured["rejected"]),
        "update_norm": float(measured["update_norm"]),
        "clip_norm": float(measured["clip_norm"]),
        "downstream_bytes": int(metrics["exchanged"]["downstream_bytes"]),
        "upstream_bytes": int(metrics["exchanged"]["upstream_bytes"]),
    }


def _notes(plan: NoisePlan, public: PublicBatch) -> tuple[str, ...]:
    if not plan.is_noisy:
        return ("No noise was added: no observer is promised anything.", BEST_ROUND)
    return (
        "clients, rejected, update_norm, train_loss and train_accuracy in metrics.csv "
        "carry no noise: they are for the operator of the simulation, and releasing "
        "them would void the epsilons.",
        f"Clip norm {plan.clipping.clip_norm:.6g}: {plan.clipping.source}.",
        f"Public data: {public.source}. They are not protected.",
        "The server sees the sum of a round's clients only, by secure aggregation, "
        "which is assumed here: one process plays all parties.",
        "A client that takes part knows the round and its own share of the noise: no "
        "epsilon here holds against it; a plan with colluding_clients=1 accounts for "
        "it.",
        "epsilon_paper is the FL-TOP paper's Theorem 1, which takes cohorts as if "
        "drawn by Poisson sampling and hidden from the server.",
        BEST_ROUND,
    )


def _finish(
    process: tff.learning.templates.LearningProcess, path: pathlib.Path, state: Any
) -> str:
    weights = process.get_model_weights(state).trainable
    flat = top_k.flatten([np.asarray(w) for w in tf.nest.flatten(weights)])
    np.savez(path / results.WEIGHTS_FILE, final=flat)
    return results.table_text(results.table([path]))
