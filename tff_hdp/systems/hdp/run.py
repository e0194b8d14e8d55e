"""HDP as the training loop runs it."""

import functools
import hashlib
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators import round_events
from tff_hdp.clients import training as stacked_work
from tff_hdp.clients.batches import chunk_type
from tff_hdp.clients.client_work import (
    SGD_MOMENTUM,
    build_optimizer,
    model_fn_from_keras,
)
from tff_hdp.clients.stacked_model import is_supported
from tff_hdp.privacy import Ledger, NoisePlan
from tff_hdp.simulation.classifier import build_evaluation, initial_weights
from tff_hdp.simulation.config import ConfigError
from tff_hdp.simulation.loading import load_task
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import Process, RoundInput, System
from tff_hdp.systems.hdp import secure
from tff_hdp.systems.hdp.attendance import Participation
from tff_hdp.systems.hdp.clients import single_clients, stacked_clients
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import (
    Federation,
    build_federation,
)
from tff_hdp.systems.hdp.pilot import find_clipping
from tff_hdp.systems.hdp.process import build_hdp
from tff_hdp.systems.hdp.protocol import ProtocolData, ProtocolHdp
from tff_hdp.systems.hdp.round_data import build_round_data
from tff_hdp.systems.hdp.seats import report_exposure, write_seats
from tff_hdp.systems.hdp.zones import build_elections

OPERATOR_METRICS = (
    "clients, empty_zones, left_out_zones, saturated, rejected, update_norm, "
    "train_loss and train_accuracy in metrics.csv carry no noise: they are for the "
    "operator of the simulation, and releasing them would void the epsilons."
)

SKIPPED_ZONES = (
    "A zone without super-node is skipped for the round, whoever was drawn; its parent "
    "adds its noise in its place. What its clients would have added is not counted."
)
BYZANTINE = (
    "Byzantine clients are taken to know and to leave out their own noise; super-nodes "
    "that deliver are trusted to have added theirs."
)


def build(config: HdpConfig, folder: RunFolder) -> System:
    """Builds HDP for the training loop.

    Args:
      config: The run's settings.
      folder: Remembers what was drawn, measured and calibrated.

    Raises:
      ConfigError: If a flag does not fit the task.
      DataNotFoundError: If the task's data is missing.
    """
    seed = folder.resolved["partition_seed"]
    task = load_task(config, seed)
    federation = build_federation(
        config,
        task,
        partition_seed=seed,
        clipping=find_clipping(config, task, folder, build_plain),
        noise_multiplier=folder.resolved.get(
            "noise_multiplier", config.noise_multiplier
        ),
    )
    _remember_zones(config, folder, federation)
    plan = federation.plan
    folder.resolve(noise_multiplier=_multiplier(plan), task=task.description)
    return build_plain(config, federation, seats_path=folder.path / "elections")


def _remember_zones(
    config: HdpConfig, folder: RunFolder, federation: Federation
) -> None:
    """Refuses to go on with other zones than the run began with."""
    links = (federation.zoning.zone_of, federation.zoning.parents)
    digest = hashlib.sha256(repr(links).encode()).hexdigest()
    if folder.resolved.get("zones", digest) != digest:
        raise ConfigError(
            f"--zoning_file is {config.zoning_file}; allowed: the zones with which the "
            f"run in --out={folder.path} began"
        )
    folder.resolve(zones=digest)


def build_plain(
    config: HdpConfig, federation: Federation, *, seats_path: pathlib.Path | None = None
) -> System:
    """Builds HDP for a federation whose plan is known.

    Args:
      config: The run's settings.
      federation: Who takes part.
      seats_path: Where to keep who led which zone; None keeps nothing.
    """
    task, plan = federation.task, federation.plan
    chunk_size = _chunk_size(config, federation)
    process = _build_process(config, federation, chunk_size)
    evaluate = build_evaluation(task)

    elections = build_elections(config, task)
    round_data = build_round_data(
        config=config, federation=federation, chunk_size=chunk_size
    )

    @functools.lru_cache(maxsize=1)
    def participation(entropy: int) -> Participation:
        return Participation(
            plan=plan,
            zoning=federation.zoning,
            entropy=entropy,
            faults=config.faults,
            elections=elections,
        )

    def prepare(entropy: int, number: int, carried: dict[str, Any]) -> RoundInput:
        parties = participation(entropy)
        present = parties.attend(number, carried)
        if elections is not None and seats_path is not None:
            write_seats(seats_path, number, present.seats, parties.registries())
        rng = parties.sampler.generator(number, stream=1)
        data = round_data(present, rng)
        if isinstance(process, ProtocolHdp):
            data = ProtocolData(data, present.dropped)
        return RoundInput(data, present.carried, present.metrics)

    def initial_state(seed: int | None) -> Any:
        weights = initial_weights(task.build_model, seed)
        return process.set_model_weights(process.initialize(), weights)

    def record(ledger: Ledger, metrics: Any, count: int) -> None:
        if not plan.is_noisy:
            return
        measured = None if metrics is None else metrics["aggregator"]
        delivered = None if measured is None else measured["clients"]
        threat = federation.threat
        if config.may_skip:
            threat = threat_of_round(threat, plan, delivered)
        ledger.record(plan, count, threat=threat, events=round_events(measured))

    return System(
        process=process,
        initial_state=initial_state,
        prepare=prepare,
        new_ledger=Ledger,
        record=record,
        weights_of=lambda state: process.get_model_weights(state).trainable,
        evaluate=lambda state: evaluate(process.get_model_weights(state)),
        measure=_measure,
        notes=_notes(plan, config),
        finish=None if elections is None else report_exposure,
    )


def _build_process(
    config: HdpConfig, federation: Federation, chunk_size: int
) -> Process:
    task, plan = federation.task, federation.plan
    features = task.test_features
    # One step on the whole data at rate 1 makes the update the gradient.
    rate = 1.0 if config.algorithm == "fedsgd" else config.client_learning_rate
    if chunk_size:
        clients = stacked_clients(
            build_model=task.build_model,
            data_type=chunk_type(features.shape[1:], features.dtype),
            client_learning_rate=rate,
            client_momentum=SGD_MOMENTUM[config.client_optimizer],
        )
    else:
        spec = (
            tf.TensorSpec([None, *features.shape[1:]], features.dtype),
            tf.TensorSpec([None], tf.int32),
        )
        clients = single_clients(
            model_fn=model_fn_from_keras(task.build_model, spec),
            client_optimizer=build_optimizer(config.client_optimizer, rate),
        )
    protocol = config.secure_aggregation_protocol
    runs_protocol = plan.encoding is not None and protocol != "intrinsic"
    return build_hdp(
        clients=clients,
        plan=plan,
        server_optimizer=build_optimizer(
            config.server_optimizer, config.server_learning_rate
        ),
        protocol=protocol if runs_protocol else None,
    )


def _chunk_size(config: HdpConfig, federation: Federation) -> int:
    model = federation.task.build_model()
    can_stack = config.client_optimizer in SGD_MOMENTUM and is_supported(model)
    if config.cohort_chunk and not can_stack:
        raise ConfigError(
            f"--cohort_chunk is {config.cohort_chunk}; allowed: 0 with "
            f"--model={federation.task.model_name} and "
            f"--client_optimizer={config.client_optimizer}"
        )
    if config.cohort_chunk is not None:
        return config.cohort_chunk
    return stacked_work.chunk_size(model.count_params()) if can_stack else 0


def _multiplier(plan: NoisePlan) -> float | None:
    """The one z of all parties that add noise."""
    upper = (z for level in plan.upper_levels for z in level.noise_multipliers)
    used = (
        plan.client_noise_multiplier,
        *plan.zone_noise_multipliers,
        *upper,
        plan.server_noise_multiplier,
    )
    return max(used) if plan.is_noisy else None


def _notes(plan: NoisePlan, config: HdpConfig) -> tuple[str, ...]:
    notes = secure.notes(plan, config)
    if not plan.is_noisy:
        return ("No noise was added: no observer is promised anything.", *notes)
    if config.may_skip:
        notes = (*notes, SKIPPED_ZONES)
    if config.byzantine:
        notes = (*notes, BYZANTINE)
    return (
        *notes,
        OPERATOR_METRICS,
        f"Clip norm {plan.clipping.clip_norm:.6g}: {plan.clipping.source}.",
        "Zones draw their cohorts and do not show them to the aggregator. One "
        "process plays all parties here, so this is assumed, not enforced.",
    )


def _measure(metrics: Any) -> dict[str, float]:
    train, measured = metrics["client_work"]["train"], metrics["aggregator"]
    return {
        "train_loss": float(train["loss"]),
        "train_accuracy": float(train["accuracy"]),
        "clients": int(np.sum(measured["clients"])),
        "empty_zones": int(np.sum(np.asarray(measured["clients"]) == 0)),
        "rejected": int(measured["rejected"]),
        "update_norm": float(measured["update_norm"]),
        "clip_norm": float(measured["clip_norm"]),
        **secure.measured(metrics),
    }
