"""HFL-DP as the training loop runs it."""

import collections
import dataclasses
import logging
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

import tasks
from tff_hdp.clients.batches import make_chunk, make_order
from tff_hdp.clients.stacked_model import is_supported
from tff_hdp.clients.training import chunk_size
from tff_hdp.privacy import RoundLedger
from tff_hdp.simulation.classifier import (
    build_evaluation,
    initial_weights,
    training_columns,
)
from tff_hdp.simulation.config import ConfigError
from tff_hdp.simulation.loading import load_task
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System
from tff_hdp.systems.hfl_dp import noise as formulas
from tff_hdp.systems.hfl_dp.account import HflDpRound, account, rounds_of
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.process import CHUNK_FIELDS, build_hfl_dp, chunk_type
from tff_hdp.systems.hfl_dp.worth import READING, noise_table, warnings
from tff_hdp.topology import Zoning, equal_zones

_LOG = logging.getLogger(__name__)
OPERATOR_METRICS = (
    "train_loss, train_accuracy, clipped, rejected and disagreement in metrics.csv "
    "carry no noise: they are for the operator of the simulation, and releasing them "
    "would void the epsilons. accuracy is that of the average of the edges' models, "
    "which between two rounds of the cloud nobody forms."
)


def build(config: HflDpConfig, folder: RunFolder) -> System:
    """Builds HFL-DP for the training loop.

    Args:
      config: The run's settings.
      folder: Remembers the noise of the first start.

    Raises:
      ConfigError: If a flag does not fit the task.
      DataNotFoundError: If the task's data is missing.
    """
    seed = folder.resolved["partition_seed"]
    task = load_task(config, seed)
    clients = task.train.client_ids
    if len(clients) % config.edges:
        raise ConfigError(
            f"--edges is {config.edges}; allowed: a divisor of {len(clients)} (the "
            "clients), since every edge has n"
        )
    if not is_supported(task.build_model()):
        raise ConfigError(
            f"--model is {task.model_name}; allowed: one whose layers can be stacked"
        )
    zoning = equal_zones(clients, config.edges, rng=np.random.default_rng(seed))
    setting = _setting(config, task, zoning)
    if "noise" not in folder.resolved:
        noise = _noise(config, setting)
        folder.resolve(noise=dataclasses.asdict(noise), setting=setting)
    folder.resolve(task=task.description)
    noise = formulas.HflDpNoise(**folder.resolved["noise"])
    stated = (config.eps1, config.eps2) if config.noise == "theorem_1" else (None, None)
    edge_round, cloud_round = rounds_of(
        noise,
        n=setting["n"],
        N=setting["N"],
        C=config.clip_norm,
        paper_epsilons=stated,
    )
    features = task.test_features
    process = build_hfl_dp(
        build_model=task.build_model,
        data_type=chunk_type(features.shape[1:], features.dtype),
        edge_round=edge_round,
        cloud_round=cloud_round,
        k2=config.k2,
        local_steps=config.local_steps,
        learning_rate=config.learning_rate,
        proximal=config.proximal,
    )

    def initial_state(seed: int | None) -> Any:
        weights = initial_weights(task.build_model, seed)
        return process.set_model_weights(process.initialize(), weights)

    def record(ledger: RoundLedger[HflDpRound], metrics: Any, count: int) -> None:
        if not edge_round.is_noisy:
            return
        if metrics is None:
            # Of either kind; both together are more than what happened.
            ledger.record(edge_round, count)
            ledger.record(cloud_round, count)
        else:
            to_cloud = int(metrics["round"]) % config.k2 == 0
            ledger.record(cloud_round if to_cloud else edge_round, count)

    evaluate = build_evaluation(task)

    def test(state: Any) -> dict[str, float]:
        models = np.asarray(state.global_model_weights)
        spread = ((models - models.mean(0)) ** 2).sum(-1)
        return {
            **evaluate(process.get_model_weights(state)),
            "disagreement": float(spread.mean()),
        }

    rows, warned = [], []
    if edge_round.is_noisy:
        rows = noise_table(noise, **folder.resolved["setting"])
        if config.noise == "theorem_1":
            warned = warnings(rows, m=setting["m"])
    for warning in warned:
        _LOG.warning("%s", warning)
    return System(
        process=process,
        initial_state=initial_state,
        prepare=_build_prepare(config, task, zoning),
        new_ledger=lambda: RoundLedger(plan_type=HflDpRound, account=account),
        record=record,
        weights_of=lambda state: [state.global_model_weights],
        evaluate=test,
        measure=training_columns,
        notes=(OPERATOR_METRICS, *warned)
        if rows
        else ("No noise was added: no observer is promised anything.",),
        finish=_build_finish(rows) if rows else None,
    )


def _setting(config: HflDpConfig, task: tasks.Task, zoning: Zoning) -> dict[str, Any]:
    """The arguments of Theorem 1."""
    given = config.exposures or formulas.exposures(config.rounds, config.k2)
    smallest = int(task.train.sizes.min())
    m = config.min_examples or smallest
    if m > smallest:
        # Noise falls as 1/m: it would be too little for the smaller clients.
        raise ConfigError(
            f"--min_examples is {m}; allowed: at most {smallest}, the smallest "
            "client's examples"
        )
    return {
        "n": zoning.num_clients // config.edges,
        "N": config.edges,
        "m": m,
        "C": config.clip_norm,
        "eps1": config.eps1,
        "eps2": config.eps2,
        "delta": config.delta,
        "t": list(given),
    }


def _noise(config: HflDpConfig, setting: dict[str, Any]) -> formulas.HflDpNoise:
    if config.noise == "none":
        return formulas.HflDpNoise()
    if config.noise == "theorem_1":
        return formulas.theorem_1(**setting)
    return formulas.exact_noise(**{k: v for k, v in setting.items() if k != "m"})


def _build_prepare(
    config: HflDpConfig, task: tasks.Task, zoning: Zoning
) -> Callable[[int, int, dict[str, Any]], RoundInput]:
    """Every client's batches of a round, in chunks of one edge's clients."""
    train = task.train
    size = chunk_size(task.build_model().count_params())
    members = [
        np.flatnonzero(np.asarray(zoning.zone_of) == zone)
        for zone in range(zoning.num_zones)
    ]
    steps = config.k1 * config.local_steps
    batch_size = min(config.batch_size, int(train.sizes.max()))

    def order(client: int, rng: np.random.Generator) -> np.ndarray:
        examples = int(train.sizes[client])
        epochs = math.ceil(steps / math.ceil(examples / batch_size))
        whole = make_order(examples, epochs=epochs, batch_size=batch_size, rng=rng)
        return whole[:steps]

    def prepare(entropy: int, number: int, carried: dict[str, Any]) -> RoundInput:
        seed = np.random.SeedSequence(entropy, spawn_key=(number, 1))
        rng = np.random.default_rng(seed)
        data = []
        for zone, clients in enumerate(members):
            for start in range(0, len(clients), size):
                some = clients[start : start + size]
                chunk = make_chunk(
                    [train.examples(c) for c in some],
                    [order(c, rng) for c in some],
                    weights=[1.0] * len(some),
                    carries_noise=[True] * len(some),
                    zone=zone,
                )
                chunk["zone"] = np.array([zone], np.int32)
                fields = collections.OrderedDict((k, chunk[k]) for k in CHUNK_FIELDS)
                data.append(tf.data.Dataset.from_tensors(fields))
        return RoundInput(data, carried)

    return prepare


def _build_finish(rows: list[Any]) -> Callable[[pathlib.Path, Any], str]:
    """Writes what every noise is worth as noise.csv; returns it with its reading."""

    def finish(path: pathlib.Path, state: Any) -> str:
        del state
        frame = pd.DataFrame([dataclasses.asdict(row) for row in rows])
        frame.to_csv(path / "noise.csv", index=False)
        table = frame.to_string(index=False, float_format=lambda x: f"{x:.4g}")
        return f"{table}\n{READING}"

    return finish
