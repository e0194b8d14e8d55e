"""FL-TOP and the schemes beside it as the training loop runs them."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_hdp.aggregators import round_events
from tff_hdp.aggregators.vectors import join
from tff_hdp.clients.batches import (
    Participant,
    chunk_type,
    chunks,
    dataset_of_one,
    make_order,
    most_examples,
)
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import chunk_size
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, NoisePlan
from tff_hdp.privacy.secure import DEFAULT_BITS, LEAST_CLIENTS, with_encoding
from tff_hdp.protocols.secagg import PROTOCOLS
from tff_hdp.simulation.classifier import evaluation_of, logits_of
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import Process, RngOf, System, for_the_operator
from tff_hdp.systems import secure_notes
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top import results
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.process import build_fl_top
from tff_hdp.systems.fl_top.setup import load_with_public, set_up
from tff_hdp.systems.secure_sums import ProtocolData, SecureSums
from tff_hdp.topology import one_zone

BEST_ROUND = (
    "The tables take the round of best test accuracy, as the paper does. Choosing it "
    "looks at all rounds, so the sound epsilons are those of the whole run; and at the "
    "test set, which no epsilon protects."
)


class FlTop(System):
    """One of the schemes under one server.

    Args:
      config: The run's settings.
      folder: Remembers what was drawn and measured before round 1.
    """

    def __init__(self, config: FlTopConfig, folder: RunFolder) -> None:
        seed = folder.resolved["partition_seed"]
        self.config = config
        self.task, self.public = load_with_public(config, seed)
        clients = len(self.task.train.client_ids)
        if config.clients_per_round > clients:
            raise ArgumentError(
                "clients_per_round",
                config.clients_per_round,
                f"at most {clients} (the clients)",
            )
        self._initial, self._compressor = set_up(config, self.task, self.public, folder)
        compressor = self._compressor
        self.plan = _plan(
            config, clients, folder.resolved["clip_norm"], compressor.upload_size
        )
        self.zoning, self.sampling = one_zone(self.task.train.client_ids), self.plan
        self._model = StackedModel(self.task.model)
        self.secure_sums = None
        if config.secure_aggregation_protocol in PROTOCOLS:
            self.secure_sums = SecureSums(
                config.secure_aggregation_protocol, signed=config.sign_messages
            )
        self.headline = results.headline(self.task.num_classes)
        folder.resolve(
            task=self.task.description,
            public_data=self.public.source,
            clients=clients,
            weights=compressor.num_weights,
            upload_size=compressor.upload_size,
            download_size=compressor.download_size,
        )

    @functools.cached_property
    def process(self) -> Process:
        """See base class."""
        return build_fl_top(
            build_model=self.config.training_model(self.task),
            data_type=chunk_type(*self.task.train.feature_spec),
            plan=self.plan,
            compressor=self._compressor,
            client_learning_rate=self.config.client_learning_rate,
            secure_sums=self.secure_sums,
        )

    def initial_weights(self) -> tff.learning.models.ModelWeights:
        """w_0 of the set-up, for which the Top-K weights were chosen."""
        new = super().initial_weights()
        trainable = tf.nest.pack_sequence_as(new.trainable, self._initial)
        return tff.learning.models.ModelWeights(trainable, new.non_trainable)

    def round_data(
        self, number: int, cohort: np.ndarray, rng_of: RngOf
    ) -> list[tf.data.Dataset] | ProtocolData:
        """See base class."""
        del number
        train, config = self.task.train, self.config
        batch_size = min(config.batch_size, int(train.sizes.max()))
        order = functools.partial(
            make_order, epochs=config.local_epochs, batch_size=batch_size
        )
        participants = [
            Participant(
                train.examples(client),
                order(int(train.sizes[client]), rng=rng_of(client)),
                carries_noise=self.plan.is_noisy,
            )
            for client in cohort
        ]
        size = config.cohort_chunk or chunk_size(
            self._model, len(cohort), most_examples(participants)
        )
        data = list(map(dataset_of_one, chunks(participants, size)))
        # Nobody drops out.
        return data if self.secure_sums is None else ProtocolData(data, (0,))

    def measure(self, metrics: Any) -> dict[str, float]:
        """See base class."""
        exchanged = metrics["exchanged"]
        return super().measure(metrics) | {
            "downstream_bytes": int(exchanged["downstream_bytes"]),
            "upstream_bytes": int(exchanged["upstream_bytes"]),
            **secure_notes.measured(metrics),
        }

    @functools.cached_property
    def test(self) -> Callable[[Any], dict[str, float]]:
        """See base class."""
        return build_fl_top_evaluation(self.task)

    def accounted(self, metrics: Any) -> dict[str, Any]:
        """See base class."""
        known = self.secure_sums is not None
        threat = dataclasses.replace(fl_top_dp.THREAT, peers_known=known)
        events = round_events(metrics["aggregator"])
        return {"plan": self.plan, "threat": threat, "events": events}

    def notes_on_noise(self) -> tuple[str, ...]:
        """See base class."""
        return (
            for_the_operator(
                "clients, left_out_zones, saturated, rejected, update_norm, train_loss "
                "and train_accuracy"
            ),
            str(self.plan.clipping),
            f"Public data: {self.public.source}. They are not protected.",
            *self._notes_on_sums(),
            "A client that takes part knows the round and its own share of the noise"
            f"{'' if self.secure_sums is None else ', and who else takes part'}: "
            "against it only the epsilon of a fellow client holds.",
            "epsilon_paper is the FL-TOP paper's Theorem 1, which takes cohorts as if "
            "drawn by Poisson sampling and hidden from the server.",
        )

    def _notes_on_sums(self) -> tuple[str, ...]:
        protocol = self.config.secure_aggregation_protocol
        if protocol != "none":
            signed = self.config.sign_messages
            return secure_notes.notes(
                self.plan, protocol, signed=signed, one_server=True
            )
        return (
            "The server sees the sum of a round's clients only, by secure aggregation, "
            "which is assumed here: one process plays all parties.",
        )

    def other_notes(self) -> tuple[str, ...]:
        """See base class."""
        return (BEST_ROUND,)

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """Keeps the final weights; returns the run's row of the paper's table."""
        weights = tf.nest.flatten(self.weights_of(state))
        np.savez(path / results.WEIGHTS_FILE, final=join(weights).numpy())
        return results.table_text(results.table([path]))


def build_fl_top_evaluation(
    task: tasks.Task,
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """As `evaluation_of`; for two classes balanced accuracy and AUROC too."""
    plain = evaluation_of(task)
    if task.num_classes != 2:
        return plain
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    model = task.build_model()

    def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
        weights.assign_weights_to(model)
        logits = logits_of(model, task.test_features)
        guesses = np.argmax(logits, axis=1)
        scores = logits[:, 1] - logits[:, 0]
        # Weights that are still finite may overflow in the model.
        ranked = np.isfinite(scores).all()
        return plain(weights) | {
            "balanced_accuracy": balanced_accuracy_score(task.test_labels, guesses),
            "auroc": roc_auc_score(task.test_labels, scores) if ranked else math.nan,
        }

    return evaluate


def _plan(
    config: FlTopConfig, clients: int, clip_norm: float | None, upload_size: int
) -> NoisePlan:
    per_round = config.clients_per_round
    if not config.is_private:
        return fl_top_dp.plan_without_noise(clients=clients, per_round=per_round)
    source = (
        "norm of the compressed update of one round on public data"
        if config.clip_norm == "auto"
        else "given"
    )
    plan = fl_top_dp.plan(
        clients=clients,
        per_round=per_round,
        sigma=config.noise_multiplier,
        clipping=Clipping(clip_norm=clip_norm, source=source),
    )
    if config.secure_aggregation_protocol == "none":
        return plan
    return with_encoding(
        dataclasses.replace(plan, min_zone_clients=LEAST_CLIENTS),
        size=upload_size,
        bits=config.secure_bits or DEFAULT_BITS,
    )
