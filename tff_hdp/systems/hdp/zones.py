"""From settings and a task to zones."""

import numpy as np

from tasks.task import Task
from tff_hdp.errors import ArgumentError, require
from tff_hdp.systems.hdp.attendance import Elections
from tff_hdp.systems.hdp.zones_config import DEFAULT_ZONES, OWN_NUMBER, ZonesConfig
from tff_hdp.topology import (
    Zoning,
    dominant_labels,
    equal_zones,
    load_zones,
    with_levels,
    zones_by_capability,
    zones_by_key,
    zones_by_overlay,
    zones_of_sizes,
)
from tff_hdp.topology.attributes import (
    load_attribute,
    load_numbers,
    load_overlay,
    small_world,
)


def build_zoning(
    config: ZonesConfig, task: Task, *, rng: np.random.Generator
) -> Zoning:
    """Puts the task's clients into zones, and zones under further levels.

    Returns:
      The zoning, in the order of `task.train.client_ids`.

    Raises:
      ArgumentError: If a setting does not fit the task's clients.
      FileError: If a file does not; it names the offender.
      FileNotFoundError: If a file is missing.
    """
    ids = task.train.client_ids
    if config.zones is not None and config.zones > len(ids):
        raise ArgumentError("zones", config.zones, f"1..{len(ids)} (the clients)")
    try:
        zoning = _zones(config, task, rng)
    except ArgumentError as error:
        raise error.renamed({"num_zones": "zones", "path": "zoning_file"}) from error
    if config.zoning in OWN_NUMBER and config.zones not in (None, zoning.num_zones):
        raise ArgumentError(
            "zones",
            config.zones,
            f"{zoning.num_zones}, as many as zoning={config.zoning} brings",
        )
    if config.levels and zoning.parents:
        raise ArgumentError(
            "levels",
            config.levels,
            f"none, since zoning_file={config.zoning_file} has levels of its own",
        )
    zoning = with_levels(zoning, config.levels, rng=rng)
    if any(not 2 <= level <= zoning.num_levels for level in config.noising_levels):
        between = f"2..{zoning.num_levels}, the levels between zones and server"
        allowed = between if zoning.parents else "none without levels"
        raise ArgumentError("noising_levels", config.noising_levels, allowed)
    return zoning


def _capability_of(config: ZonesConfig, task: Task) -> dict[str, float]:
    """Every client's capability: as a file says, or the examples it holds."""
    ids = task.train.client_ids
    if config.capability_file is None:
        return dict(zip(ids, map(float, task.train.sizes), strict=True))
    return load_numbers(config.capability_file, "capability", client_ids=ids)


def build_elections(
    config: ZonesConfig, task: Task, zoning: Zoning
) -> Elections | None:
    """How the run's zones elect; None where super-nodes are given.

    Raises:
      ArgumentError: If a zone has nobody whom it may elect, so that every round would
        go without it.
      FileError: If the capability_file does not fit the clients.
    """
    if config.elect_super_nodes == "none":
        return None
    capability, least = None, config.min_capability
    if least is not None:
        capability = _capability_of(config, task)
        best = min(
            max(capability[client] for client in zoning.clients_in(zone))
            for zone in range(zoning.num_zones)
        )
        allowed = f"at most {best:g}, which a client of every zone has"
        require(least <= best, "min_capability", least, allowed)
    return Elections(
        policy=config.elect_super_nodes,
        fault_model=config.election_fault_model,
        run_protocol=config.election_protocol == "pvss",
        call_size=config.voters,
        capability=capability,
        min_capability=least,
    )


def _zones(config: ZonesConfig, task: Task, rng: np.random.Generator) -> Zoning:
    ids, file = task.train.client_ids, config.zoning_file
    number = min(config.zones or DEFAULT_ZONES, len(ids))
    if config.zoning == "iid":
        if config.zone_sizes:
            return zones_of_sizes(ids, config.zone_sizes, rng=rng)
        return equal_zones(ids, number, rng=rng)
    if config.zoning == "label":
        labels = {c: task.train.examples(i)[1] for i, c in enumerate(ids)}
        return zones_by_key(ids, keys=dominant_labels(labels))
    if config.zoning == "key":
        keys = load_attribute(file, config.zone_key, client_ids=ids)
        return zones_by_key(ids, keys=keys)
    if config.zoning == "capability":
        return zones_by_capability(
            ids, capability=_capability_of(config, task), num_zones=number
        )
    if config.zoning == "overlay":
        overlay = (
            load_overlay(file, client_ids=ids) if file else small_world(ids, rng=rng)
        )
        return zones_by_overlay(ids, overlay=overlay, num_zones=config.zones)
    return load_zones(file, client_ids=ids)
