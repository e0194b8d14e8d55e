"""What an aggregator measured of a round, as a ledger takes it."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import dp_accounting
import numpy as np
import tensorflow_federated as tff

from tff_hdp.errors import require


def round_events(measurements: Any) -> dict[str, Any] | None:
    """The levels' `DpEvent`s of a round, for `tff_hdp.privacy.Ledger.record`.

    Args:
      measurements: Of a factory's process: `metrics["aggregator"]` of a round.

    Returns:
      Events by level, and with them the levels' `clip_norms`, how many `clients` of
      each zone took part and were `noising`, and which `plan` it is of; None where
      nobody measured.

    Raises:
      ArgumentError: If these are not an aggregator's measurements, or clients sent
        updates but none a profile.

    Warns:
      UserWarning: If an aggregation factory's process rejected all clients' updates
        though they have a zone, or some for a zone that the plan has not or a weight
        beyond 1.
    """
    if measurements is None:
        return None
    has = isinstance(measurements, Mapping) and "clients" in measurements
    allowed = 'metrics["aggregator"] of a round of an aggregator of ours'
    require(has, "measurements", type(measurements).__name__, allowed)
    waits = isinstance(
        measurements["clients"], tff.program.MaterializableValueReference
    )
    allowed = "what tff.program.materialize_value gives of them"
    require(not waits, "measurements", "not materialised", allowed)
    zones = np.size(measurements["clients"])
    came, lost = np.sum(measurements["clients"]), measurements.get("lost", 0)
    # Of clients that are lost by themselves TFF sends zeros.
    unknown = 0 < lost == came and measurements["strays"] > 0
    allowed = f"fewer than all {came} clients; they sent updates without a zone, which "
    allowed += "those of build_weighted_fed_avg and build_unweighted_fed_avg have"
    require(not unknown, "lost", lost, allowed)
    _warn_of_rejected(measurements, came)
    restore = dp_accounting.DpEvent.from_named_tuple
    events = _by_level(measurements.get("events") or {}, restore, zones)
    if "clip_norms" in measurements:
        events["clip_norms"] = _by_level(measurements["clip_norms"], float, zones)
    for name, measured in (("clients", "counted"), ("noising", "noising")):
        if measured in measurements:
            events[name] = np.ravel(measurements[measured]).tolist()
    if "plan" in measurements:
        events["plan"] = int(measurements["plan"])
    return events


def _warn_of_rejected(measurements: Mapping[str, Any], came: int) -> None:
    """Warns the caller's caller of updates that a setting, or all, are rejected for."""
    zones, lost = np.size(measurements["clients"]), measurements.get("lost", 0)
    if "strangers" in measurements and lost < came == np.sum(measurements["rejected"]):
        warnings.warn(
            f"all {came} updates of a round were rejected, so that it released noise "
            "alone: they are not finite, their weights are beyond 1 (example_cap), or "
            "their zones are none of the plan's",
            stacklevel=3,
        )
    for name, why in (
        ("strangers", f"their clients' zones are none of the plan's 0..{zones - 1}"),
        (
            "overweight",
            "their weights are beyond 1; example_cap caps those that TFF gives",
        ),
    ):
        if count := measurements.get(name, 0):
            words = f"{count} of {came} updates of a round were rejected: {why}"
            warnings.warn(words, stacklevel=3)


def _by_level(
    measured: Mapping[str, Any], restore: Callable[[Any], Any], zones: int
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for level, value in measured.items():
        if level == "zones":
            own = [restore(each) for each in value]
            # One stands for all zones where they noise alike.
            found["zone"] = own * zones if len(own) == 1 else own
        elif level == "upper":
            found["upper"] = [[restore(each) for each in nodes] for nodes in value]
        else:
            found[level] = restore(value)
    return found
