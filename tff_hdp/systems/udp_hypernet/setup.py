"""What a run of UDP-Alg settles before round 1: its plan, and users at once."""

import dataclasses
import functools
import math
import os

import numpy as np

from tff_hdp.privacy import (
    Clipping,
    NoisePlan,
    PoissonSampling,
    calibrate,
    configurations,
)
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

# Users' examples stand side by side, each as long as the longest.
_MOST_AT_ONCE = 20


def build_plan(
    config: UdpHypernetConfig, weights: np.ndarray, noise_multiplier: float | None
) -> NoisePlan:
    """The plan of a run.

    Args:
      config: z itself, or sigma or an epsilon that decides it.
      weights: w_u of every user.
      noise_multiplier: z where it is known already; None finds it.

    Raises:
      ArgumentError: If the setting makes no plan.
    """
    users, q, S = len(weights), config.sampling_rate, config.clip_norm
    W = float(weights.sum())
    if config.privacy == "none":
        return configurations.none(
            zone_sizes=(users,),
            sampling=PoissonSampling((q,)),
            clipping=Clipping(source="no clipping"),
        )

    of_sigma = functools.partial(udp_alg.plan, users=users, q=q, S=S, W=W)

    def plan(z: float) -> NoisePlan:
        # Not by way of sigma and back: a resumed run must find the very same plan.
        return dataclasses.replace(of_sigma(sigma=1.0), server_noise_multiplier=z)

    if noise_multiplier is not None:
        return plan(noise_multiplier)
    if config.sigma is not None:
        return of_sigma(sigma=config.sigma)
    if config.noise_multiplier is not None:
        return plan(config.noise_multiplier)
    z = calibrate(
        plan,
        target_epsilon=config.target_epsilon,
        observer="released_model",
        rounds=config.rounds,
        delta=config.delta,
    )
    return plan(z)


def users_at_once(expected: float) -> int:
    """How many users one computation may train, of so many expected in a round.

    Half as many again as a core's share, since cohorts vary.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(math.ceil(1.5 * expected / cores), _MOST_AT_ONCE))


def evenly(cohort: np.ndarray, most: int) -> list[np.ndarray]:
    """The cohort in parts of at most so many users, as many parts for every core."""
    cores = len(os.sched_getaffinity(0))
    parts = cores * math.ceil(len(cohort) / (cores * most))
    return [part for part in np.array_split(cohort, max(parts, 1)) if len(part)]
