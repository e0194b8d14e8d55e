"""GFL as the training loop runs it."""

import collections
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import gfl_logistic
from tff_hdp.privacy import FixedSizeSampling, NoisePlan, RoundLedger
from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks
from tff_hdp.simulation.classifier import (
    build_evaluation,
    initial_weights,
    training_columns,
)
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.config import ConfigError, flag_error
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System
from tff_hdp.systems.gfl.account import account
from tff_hdp.systems.gfl.config import LOGISTIC, GflConfig
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.gfl.process import build_gfl, cohort_type
from tff_hdp.systems.gfl.setup import build_graph, load
from tff_hdp.topology import Zoning, equal_zones
from tff_hdp.topology.mixing import metropolis, spectral_gap

OPERATOR_METRICS = (
    "train_loss, train_accuracy, clipped, rejected, disagreement and msd in "
    "metrics.csv carry no noise: they are for the operator of the simulation."
)


def build(config: GflConfig, folder: RunFolder) -> System:
    """Builds GFL for the training loop.

    Args:
      config: The run's settings.
      folder: Knows the partition seed, which also decides servers and graph.

    Raises:
      ConfigError: If a flag does not fit the task.
      DataNotFoundError: If the task's data is missing.
    """
    seed = folder.resolved["partition_seed"]
    task = load(config, seed)
    clients = task.train.client_ids
    if config.servers > len(clients):
        raise ConfigError(
            f"--servers is {config.servers}; allowed: 1..{len(clients)} (the clients)"
        )
    if config.batch_size > task.train.sizes.min():
        raise ConfigError(
            f"--batch_size is {config.batch_size}; allowed: at most "
            f"{task.train.sizes.min()}, the smallest client's examples"
        )
    zoning = equal_zones(clients, config.servers, rng=np.random.default_rng(seed))
    mixing = metropolis(build_graph(config, seed))
    plan = _plan(config, zoning, task.build_model().count_params())
    folder.resolve(task=task.description, spectral_gap=spectral_gap(mixing))
    process = build_gfl(
        build_model=task.build_model,
        data_type=cohort_type(
            task.test_features.shape[1:],
            task.test_features.dtype,
            plan=plan,
            servers=config.repetitions,
        ),
        plan=plan,
        # Repetitions are networks without a link between them.
        mixing=np.kron(np.eye(config.repetitions), mixing),
        ridge=config.ridge,
    )

    def initial_state(seed: int | None) -> Any:
        weights = initial_weights(task.build_model, seed)
        return process.set_model_weights(process.initialize(), weights)

    def record(ledger: RoundLedger[GflPlan], metrics: Any, count: int) -> None:
        del metrics  # Every iteration is alike.
        if plan.is_noisy:
            ledger.record(plan, count)

    optimum = None
    if config.task == LOGISTIC:
        optimum = gfl_logistic.optimum(task.train, config.ridge)
    return System(
        process=process,
        initial_state=initial_state,
        prepare=_build_prepare(config, task, zoning, plan),
        new_ledger=lambda: RoundLedger(plan_type=GflPlan, account=account),
        record=record,
        weights_of=lambda state: [state.global_model_weights],
        evaluate=_build_evaluate(config, task, optimum),
        measure=training_columns,
        notes=_notes(config, plan),
        headline="accuracy" if optimum is None else "msd",
        finish=_build_finish(config, mixing, optimum),
    )


def _plan(config: GflConfig, zoning: Zoning, dimension: int) -> GflPlan:
    try:
        return GflPlan(
            scheme=config.scheme,
            mu=config.mu,
            B=config.gradient_bound,
            sigma_g=config.sigma_g,
            dimension=dimension,
            clients=min(zoning.zone_sizes),
            per_round=config.per_round,
        )
    except ValueError as error:
        raise flag_error(error, config, f"--scheme is {config.scheme}") from error


def _build_prepare(
    config: GflConfig, task: tasks.Task, zoning: Zoning, plan: GflPlan
) -> Callable[[int, int, dict[str, Any]], RoundInput]:
    """Draws every server's cohort, its clients' batches, and fresh masks.

    The masks are drawn from the operating system, not from the run's secret: they
    cancel exactly, so a round that is run again gives the same sums.
    """
    n, servers = zoning.num_clients, config.servers
    networks = range(config.repetitions)
    tiled = Zoning(
        client_ids=tuple(f"{r}/{c}" for r in networks for c in zoning.client_ids),
        zone_of=tuple(r * servers + p for r in networks for p in zoning.zone_of),
    )
    zone_of = np.asarray(tiled.zone_of)
    sampling = NoisePlan(
        zone_sizes=tiled.zone_sizes,
        sampling=FixedSizeSampling((config.per_round,) * tiled.num_zones),
    )
    keys = [
        PairwiseMasks([str(i) for i in np.flatnonzero(zone_of == zone)])
        for zone in range(tiled.num_zones if plan.masked else 0)
    ]
    train, dimension = task.train, plan.dimension

    def prepare(entropy: int, number: int, carried: dict[str, Any]) -> RoundInput:
        sampler = CohortSampler(plan=sampling, zoning=tiled, entropy=entropy)
        rng = sampler.generator(number, stream=1)
        cohorts = sampler.draw(number).reshape(tiled.num_zones, config.per_round)
        rows = np.stack(
            [
                train.offsets[c]
                + rng.choice(train.sizes[c], config.batch_size, replace=False)
                for c in np.ravel(cohorts) % n
            ]
        ).reshape(*cohorts.shape, config.batch_size)
        data = []
        for p in range(servers):
            # One TFF client is one server's cohort, in all networks at once.
            zones = np.arange(p, tiled.num_zones, servers, dtype=np.int32)
            fields = collections.OrderedDict(
                features=train.features[rows[zones]],
                labels=train.labels[rows[zones]],
                zone=zones,
            )
            if plan.masked:
                masks = [
                    keys[zone].draw(list(map(str, cohorts[zone])), number, dimension)
                    for zone in zones
                ]
                fields["masks"] = np.stack(masks).astype(np.int64)
            data.append(tf.data.Dataset.from_tensors(fields))
        return RoundInput(data, carried)

    return prepare


def _build_evaluate(
    config: GflConfig, task: tasks.Task, optimum: np.ndarray | None
) -> Callable[[Any], dict[str, float]]:
    """Test metrics of the first network's centroid; distances over all networks."""
    shapes = [tuple(w.shape) for w in task.build_model().trainable_weights]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    test = build_evaluation(task)

    def evaluate(state: Any) -> dict[str, float]:
        models = np.asarray(state.global_model_weights, np.float64)
        models = models.reshape(config.repetitions, config.servers, -1)
        centroids = models.mean(1)
        parts = np.split(centroids[0].astype(np.float32), ends)
        weights = [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
        metrics = test(tff.learning.models.ModelWeights(weights, []))
        spread = ((models - centroids[:, np.newaxis]) ** 2).sum(-1)
        metrics["disagreement"] = float(spread.mean())
        if optimum is not None:
            metrics["msd"] = float(((centroids - optimum) ** 2).sum(-1).mean())
            metrics["msd_servers"] = float(((models - optimum) ** 2).sum(-1).mean())
        return metrics

    return evaluate


def _notes(config: GflConfig, plan: GflPlan) -> tuple[str, ...]:
    if not plan.is_noisy:
        return ("No noise was added: no observer is promised anything.",)
    notes = [
        OPERATOR_METRICS,
        "The servers' common average (the centroid) "
        + (
            "carries no noise: whoever gets all servers' models gets what training "
            "without privacy gives."
            if plan.scheme == "hybrid"
            else "carries the clients' noise."
        ),
    ]
    if config.repetitions > 1:
        notes.append(
            f"{config.repetitions} repetitions ran on the same data; the account is "
            "that of one, and holds if no more than one is released."
        )
    return tuple(notes)


def _build_finish(
    config: GflConfig, mixing: np.ndarray, optimum: np.ndarray | None
) -> Callable[[pathlib.Path, Any], str]:
    def finish(path: pathlib.Path, state: Any) -> str:
        del path
        lines = [
            f"{config.servers} servers, {config.graph} graph, spectral gap "
            f"{spectral_gap(mixing):.4f}"
        ]
        if optimum is not None:
            models = np.asarray(state.global_model_weights, np.float64)
            models = models.reshape(config.repetitions, config.servers, -1)
            msd = float(((models.mean(1) - optimum) ** 2).sum(-1).mean())
            lines.append(
                f"optimum {np.array2string(optimum, precision=6)}; MSD of the centroid "
                f"{msd:.3e} ({10 * math.log10(msd):.1f} dB), over "
                f"{config.repetitions} repetitions"
            )
        return "\n".join(lines)

    return finish
