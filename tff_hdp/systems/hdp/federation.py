"""From a config and a task to zones, plan and per-client facts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.task import Task
from tff_hdp.clients.batches import example_weights
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    NoisePlan,
    ThreatModel,
    calibrate,
)
from tff_hdp.privacy.coalitions import sums_hold
from tff_hdp.privacy.configurations import given_levels, plan_of, sampling_of
from tff_hdp.privacy.secure import DEFAULT_BITS, LEAST_CLIENTS, with_encoding
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.faults import byzantine_counts
from tff_hdp.systems.hdp.planned import (
    check_promises,
    noise_of_plan,
    noising,
    with_plans_levels,
)
from tff_hdp.systems.hdp.zones import build_zoning
from tff_hdp.topology import Zoning


@dataclasses.dataclass(frozen=True)
class Federation:
    """Who takes part, where, and with which weight and noise.

    Attributes:
      task: The clients' data and the model.
      zoning: Clients to zones, in the order of `task.train.client_ids`.
      plan: Who adds which noise.
      threat: What is assumed of the parties.
      weights: [n] float64, w_k in (0, 1].
      carries_noise: [n] bool, who noises its own update.
    """

    task: Task
    zoning: Zoning
    plan: NoisePlan
    threat: ThreatModel
    weights: np.ndarray
    carries_noise: np.ndarray


def build_federation(
    config: HdpConfig,
    task: Task,
    *,
    partition_seed: int,
    clipping: Clipping,
    resolved: Mapping[str, Any] | None = None,
) -> Federation:
    """Deals the task's clients to zones and makes the plan.

    Args:
      config: The run's settings.
      task: The loaded task.
      partition_seed: Decides who belongs to which zone.
      clipping: S and its kind.
      resolved: What an earlier start of the run found out: the `noise_multiplier`
        that `config.target_epsilon` was calibrated to.

    Raises:
      ArgumentError: If a setting does not fit the task's clients.
    """
    n = len(task.train.client_ids)
    if config.clients_per_round > n:
        raise ArgumentError(
            "clients_per_round", config.clients_per_round, f"at most {n} (the clients)"
        )
    rng = np.random.default_rng(partition_seed)
    zoning = with_plans_levels(config, build_zoning(config, task, rng=rng))
    weights = example_weights(config.weighting, task.train.sizes, config.example_cap)
    z = (resolved or {}).get("noise_multiplier", config.noise_multiplier)
    plan = _plan(config, task, zoning, weights, clipping, z)
    costs = plan.clients_carry_noise or plan.secure_server
    if config.target_epsilon is not None and costs and config.may_skip:
        raise ArgumentError(
            "target_epsilon",
            config.target_epsilon,
            "none where a fault may skip a zone and that costs noise: of clients that "
            "carry it, or in a sum that the server does not see without its own",
        )
    threat = _threat(config, plan)
    if config.plan is not None:
        check_promises(config, plan, threat)
    return Federation(
        task=task,
        zoning=zoning,
        plan=plan,
        threat=threat,
        weights=weights,
        carries_noise=_noising_clients(plan, zoning, config),
    )


def resolved_noise(plan: NoisePlan) -> dict[str, float | None]:
    """What a run remembers of its plan's noise: the most that any party adds."""
    most = plan.most_noise.noise_multiplier if plan.is_noisy else None
    return {"noise_multiplier": most}


def threat_of_round(threat: ThreatModel, plan: NoisePlan, skipped: int) -> ThreatModel:
    """What to assume in a round in which faults may have skipped zones.

    A skipped zone's noise is added by its parent in its place: the parent's parent
    and those who get the model see as much noise as planned. Missing is what its
    clients would have added, and all of it to a server that sees a secure sum only
    and so knows what it added itself. The account takes all of it for missing, of as
    many zones as were skipped, whichever they are. A zone to which nobody came is not
    among them: its super-node adds its noise to nothing, and that no client's noise is
    in it, the number of noising participants accounts for.
    """
    if not (plan.clients_carry_noise or plan.secure_server):
        return threat
    return dataclasses.replace(threat, skipped_zones=skipped)


def _threat(config: HdpConfig, plan: NoisePlan) -> ThreatModel:
    bad = byzantine_counts(plan.zone_sizes, config.faults.largest_byzantine_share)
    elected = config.elect_super_nodes != "none"
    return ThreatModel(
        cohort_known=config.cohort_known,
        # Clients exchange keys with each other, under names.
        peers_known=config.runs_protocol and config.zones_are_secure,
        dropout_rate=config.faults.loss_rate,
        elected_super_nodes=elected,
        # A Byzantine client may leave its noise out, and tell what it knows.
        colluding_clients=sum(map(min, bad, plan.noise_carriers)),
        colluding_in_zone=max(bad) or None,
        secure_sums_hold=not config.zones_are_secure
        or sums_hold(
            plan, bad, config.faults.loss_rate, config.most_unmasked, elected=elected
        ),
    )


def _plan(
    config: HdpConfig,
    task: Task,
    zoning: Zoning,
    weights: np.ndarray,
    clipping: Clipping,
    z: float | None,
) -> NoisePlan:
    sizes = zoning.zone_sizes
    sampling = sampling_of(config.sampling, config.clients_per_round, sizes)
    least = min(sampling.sizes if isinstance(sampling, FixedSizeSampling) else sizes)
    require(
        not config.zones_are_secure or least >= LEAST_CLIENTS,
        "secure_aggregation",
        config.secure_aggregation,
        f"none or server where a zone or its fixed cohort has {least} client; or fewer "
        "zones, or more clients_per_round",
    )
    options: dict[str, Any] = {
        "zone_sizes": sizes,
        "sampling": sampling,
        "clipping": clipping,
        "zone_weights": tuple(np.bincount(zoning.zone_of, weights).tolist()),
        "mixing": config.mixing_weights,
        "size": sum(w.shape.num_elements() for w in task.model.trainable_weights),
        **config.secure_plan,
    }
    if config.estimator is not None:
        options["estimator"] = config.estimator
    if config.plan is not None:
        return _encoded(noise_of_plan(config, zoning, options), config)

    def make_plan(z: float | None) -> NoisePlan:
        levels = given_levels(zoning.parents, dict.fromkeys(config.noising_levels, z))
        shares = {"alpha": config.alpha, "beta": config.beta}
        plan = plan_of(config.privacy, z, upper_levels=levels, **shares, **options)
        return _encoded(plan, config)

    if z is not None or config.privacy == "none":
        return make_plan(z)
    return make_plan(
        calibrate(
            make_plan,
            target_epsilon=config.target_epsilon,
            observer=config.target_observer,
            rounds=config.rounds,
            delta=config.delta,
            # Who is there does not depend on the multiplier.
            threat=_threat(config, make_plan(1.0)),
        )
    )


def _noising_clients(plan: NoisePlan, zoning: Zoning, config: HdpConfig) -> np.ndarray:
    """Those that a plan's file names, else the first `noise_carriers[i]` of zone i."""
    carries = np.zeros(zoning.num_clients, bool)
    named = noising(config, plan, zoning)
    if named:
        carries[named] = True
    else:
        for members, count in zip(zoning.members, plan.noise_carriers, strict=True):
            carries[members[:count]] = True
    return carries


def _encoded(plan: NoisePlan, config: HdpConfig) -> NoisePlan:
    """The plan with the fixed point of the run's secure sums, if there are any."""
    if config.secure_aggregation == "none":
        return plan
    return with_encoding(
        plan,
        size=plan.size,
        bits=config.secure_bits or DEFAULT_BITS,
        largest=config.secure_range,
    )
