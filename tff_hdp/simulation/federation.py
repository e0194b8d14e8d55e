"""From a config and a task to zones, plan and per-client facts."""

import dataclasses
from typing import Any

import numpy as np

from tasks.task import Task
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    NoisePlan,
    PoissonSampling,
    calibrate,
    configurations,
)
from tff_hdp.privacy.rounding import largest_remainder
from tff_hdp.simulation.config import ConfigError, flag_error
from tff_hdp.simulation.systems.hdp_config import HdpConfig
from tff_hdp.topology import Zoning, equal_zones


@dataclasses.dataclass(frozen=True)
class Federation:
    """Who takes part, where, and with which weight and noise.

    Attributes:
      task: The clients' data and the model.
      zoning: Clients to zones, in the order of `task.train.client_ids`.
      plan: Who adds which noise.
      weights: [n] float64, w_k in (0, 1].
      carries_noise: [n] bool, who noises its own update.
    """

    task: Task
    zoning: Zoning
    plan: NoisePlan
    weights: np.ndarray
    carries_noise: np.ndarray


def build_federation(
    config: HdpConfig,
    task: Task,
    *,
    partition_seed: int,
    clipping: Clipping,
    noise_multiplier: float | None,
) -> Federation:
    """Deals the task's clients to zones and makes the plan.

    Args:
      config: The run's settings.
      task: The loaded task.
      partition_seed: Decides who belongs to which zone.
      clipping: S and its kind.
      noise_multiplier: z; None for no privacy, or to calibrate it to
        `config.target_epsilon`.

    Raises:
      ConfigError: If a flag does not fit the task's number of clients.
    """
    n = len(task.train.client_ids)
    if config.zones > n:
        raise ConfigError(f"--zones is {config.zones}; allowed: 1..{n} (the clients)")
    if config.clients_per_round > n:
        raise ConfigError(
            f"--clients_per_round is {config.clients_per_round:g}; "
            f"allowed: at most {n} (the clients)"
        )
    rng = np.random.default_rng(partition_seed)
    zoning = equal_zones(task.train.client_ids, config.zones, rng=rng)
    weights = _example_weights(config, task.train.sizes)
    zone_of = np.asarray(zoning.zone_of)

    options: dict[str, Any] = {
        "zone_sizes": zoning.zone_sizes,
        "sampling": _sampling(config, zoning.zone_sizes),
        "clipping": clipping,
        "zone_weights": tuple(np.bincount(zone_of, weights).tolist()),
    }
    if config.estimator is not None:
        options["estimator"] = config.estimator
    options |= {
        k: v for k in ("alpha", "beta") if (v := getattr(config, k)) is not None
    }
    constructor = configurations.CONFIGURATIONS[config.privacy]

    def make_plan(z: float) -> NoisePlan:
        return constructor(noise_multiplier=z, **options)

    try:
        if config.privacy == "none":
            plan = constructor(**options)
        elif noise_multiplier is not None:
            plan = make_plan(noise_multiplier)
        else:
            z = calibrate(
                make_plan,
                target_epsilon=config.target_epsilon,
                observer=config.target_observer,
                rounds=config.rounds,
                delta=config.delta,
            )
            plan = make_plan(z)
    except ValueError as error:
        raise flag_error(error, config, f"--privacy is {config.privacy}") from error
    return Federation(
        task=task,
        zoning=zoning,
        plan=plan,
        weights=weights,
        carries_noise=_noising_clients(plan, zone_of),
    )


def _sampling(
    config: HdpConfig, zone_sizes: tuple[int, ...]
) -> PoissonSampling | FixedSizeSampling:
    share = config.clients_per_round / sum(zone_sizes)
    if config.sampling == "poisson":
        return PoissonSampling((share,) * len(zone_sizes))
    sizes = largest_remainder([share * n for n in zone_sizes])
    if min(sizes) < 1:
        raise ConfigError(
            f"--clients_per_round is {config.clients_per_round:g}; allowed: enough for "
            f"one client in each of {len(zone_sizes)} zones with --sampling=fixed"
        )
    return FixedSizeSampling(sizes)


def _example_weights(config: HdpConfig, sizes: np.ndarray) -> np.ndarray:
    if config.weighting == "uniform":
        return np.ones(len(sizes))
    return np.minimum(sizes / (config.example_cap or sizes.max()), 1.0)


def _noising_clients(plan: NoisePlan, zone_of: np.ndarray) -> np.ndarray:
    """The first `noising_clients[i]` clients of every zone i."""
    carries = np.zeros(len(zone_of), bool)
    if plan.client_noise > 0:
        for zone, count in enumerate(plan.noising_clients):
            carries[np.flatnonzero(zone_of == zone)[:count]] = True
    return carries
