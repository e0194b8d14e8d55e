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
      ArgumentError: If the model cannot be trained here.
    """
    if not is_supported(task.model):
        raise ArgumentError("model", task.model_name, "one whose layers can be stacked")
    clients = task.train.client_ids
    return equal_zones(clients, config.edges, rng=np.random.default_rng(seed))


def build_noise(config: HflDpConfig, setting: dict[str, Any]) -> HflDpNoise:
    """The noise that the run asks for, given `noise.setting_of` it."""
    if config.noise == "none":
        return HflDpNoise()
    if config.noise == "theorem_1":
        return formulas.theorem_1(**setting)
    return formulas.exact_noise(**{k: v for k, v in setting.items() if k != "m"})
