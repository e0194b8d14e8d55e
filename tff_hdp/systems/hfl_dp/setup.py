"""What a run of HFL-DP settles before round 1: edges and noise."""

from typing import Any

import numpy as np

import tasks
from tff_hdp.clients.stacked_model import is_supported
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.hfl_dp import noise as formulas
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.plan import HflDpNoise
from tff_hdp.topology import Zoning, equal_zones


def build_edges(config: HflDpConfig, task: tasks.Task, seed: int) -> Zoning:
    """Deals the clients evenly to the edges.

    Raises:
      ArgumentError: If they do not divide, or the model cannot be trained here.
    """
    clients = task.train.client_ids
    if len(clients) % config.edges:
        raise ArgumentError(
            "edges",
            config.edges,
            f"a divisor of {len(clients)} (the clients), since every edge has n",
        )
    if not is_supported(task.build_model()):
        raise ArgumentError("model", task.model_name, "one whose layers can be stacked")
    return equal_zones(clients, config.edges, rng=np.random.default_rng(seed))


def theorem_setting(config: HflDpConfig, task: tasks.Task) -> dict[str, Any]:
    """The arguments of Theorem 1.

    Raises:
      ArgumentError: If `min_examples` is more than the smallest client has.
    """
    smallest = int(task.train.sizes.min())
    m = config.min_examples or smallest
    if m > smallest:
        # Noise falls as 1/m: it would be too little for the smaller clients.
        raise ArgumentError(
            "min_examples", m, f"at most {smallest}, the smallest client's examples"
        )
    given = config.exposures or formulas.exposures(config.rounds, config.k2)
    return {
        "n": len(task.train.client_ids) // config.edges,
        "N": config.edges,
        "m": m,
        "C": config.clip_norm,
        "eps1": config.eps1,
        "eps2": config.eps2,
        "delta": config.delta,
        "t": list(given),
    }


def build_noise(config: HflDpConfig, setting: dict[str, Any]) -> HflDpNoise:
    """The noise that the run asks for, given `theorem_setting`."""
    if config.noise == "none":
        return HflDpNoise()
    if config.noise == "theorem_1":
        return formulas.theorem_1(**setting)
    return formulas.exact_noise(**{k: v for k, v in setting.items() if k != "m"})
