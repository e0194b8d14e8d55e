"""S as given, or as a pilot without noise measures it."""

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tasks
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping
from tff_hdp.privacy.parts import NOT_PRIVATE
from tff_hdp.simulation.cohorts import fresh_entropy
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import System
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import Federation, build_federation

_LOG = logging.getLogger(__name__)
Build = Callable[[HdpConfig, Federation], System]


def find_clipping(
    config: HdpConfig, task: tasks.Task, folder: RunFolder, build: Build
) -> Clipping:
    """The run's clipping, with S from a pilot that the folder remembers if `auto`.

    Raises:
      ArgumentError: If the pilot saw no update to measure.
    """
    if config.privacy == "none":
        return Clipping(source="no clipping")
    if config.clip_norm != "auto":
        return Clipping(clip_norm=float(config.clip_norm), kind=config.clipping)
    if "pilot_norms" not in folder.resolved:
        folder.resolve(pilot_norms=_pilot_norms(config, task, folder, build))
    measured = folder.resolved["pilot_norms"]
    source = (
        f"mean update norm of {config.pilot_rounds} rounds without noise or clipping; "
        f"{NOT_PRIVATE}"
    )
    if config.clipping != "per_layer":
        return Clipping(
            clip_norm=measured["update"], kind=config.clipping, source=source
        )
    norms = tuple(measured["tensors"])
    return Clipping(
        clip_norm=math.hypot(*norms), kind="per_layer", layer_norms=norms, source=source
    )


def _pilot_norms(
    config: HdpConfig, task: tasks.Task, folder: RunFolder, build: Build
) -> dict[str, Any]:
    """Mean norms of accepted updates, whole and per tensor, without privacy."""
    _LOG.info(
        "pilot of %d rounds without noise for clip_norm=auto", config.pilot_rounds
    )
    pilot = config.without_privacy()
    federation = build_federation(
        pilot,
        task,
        partition_seed=folder.resolved["partition_seed"],
        clipping=Clipping(),
    )
    system = build(pilot, federation)
    entropy = fresh_entropy() if config.seed is None else config.seed
    state, carried = system.initial_state(config.seed), {}
    accepted, whole, tensors = 0.0, 0.0, 0.0
    for number in range(1, config.pilot_rounds + 1):
        given = system.prepare(entropy, number, carried)
        carried = given.carried
        output = system.process.next(state, given.data)
        state = output.state
        measured = output.metrics["aggregator"]
        count = float(np.sum(measured["clients"]))
        # The aggregator's means count a rejected update as one of norm 0.
        accepted += count - float(np.sum(measured["rejected"]))
        whole += count * float(measured["update_norm"])
        tensors += count * np.asarray(measured["tensor_norms"])
    if not (math.isfinite(whole) and whole > 0.0):
        raise ArgumentError(
            "clip_norm",
            "auto",
            "a number, or a pilot that sees finite updates: this one saw, in "
            f"pilot_rounds={config.pilot_rounds}, {accepted:g} updates that were not "
            f"rejected, of mean norm {whole / max(accepted, 1.0):g}",
        )
    return {"update": whole / accepted, "tensors": (tensors / accepted).tolist()}
