"""What the levels' queries emitted, held against the plan."""

from collections.abc import Mapping
from typing import Any

import dp_accounting

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.plan import NoisePlan

_FLOAT32 = 1e-6  # events may have passed through float32


def check_events(plan: NoisePlan, events: Mapping[str, Any]) -> None:
    """Refuses events with less noise than `plan` has at the same place.

    Args:
      plan: The plan that was run.
      events: As `Ledger.record` takes them.

    Raises:
      ArgumentError: If the plan tops up, which no event shows, or a level is unknown.
      ValueError: If a level emitted less noise than the plan says, or an event that
        cannot be accounted.
    """
    if plan.top_up and plan.client_noise_multiplier > 0:
        raise ArgumentError(
            "plan.top_up",
            True,
            "False with events: none is emitted of topping up, so they cannot show "
            "that it was done; record without events if it was",
        )
    client = plan.client_noise_multiplier if plan.clients_carry_noise else 0.0
    expected: dict[str, Any] = {
        "client": client,
        "zone": list(plan.zone_noise_multipliers),
        "upper": [list(level.noise_multipliers) for level in plan.upper_levels],
        "server": plan.server_noise_multiplier,
    }
    if unknown := sorted(set(events) - set(expected)):
        raise ArgumentError("events", unknown, ", ".join(expected))
    for level, planned in expected.items():
        _check_level(level, planned, events.get(level))


def _check_level(level: str, planned: Any, emitted: Any) -> None:
    if isinstance(planned, list):
        if emitted is None:
            emitted = [None] * len(planned)
        if len(emitted) != len(planned):
            raise ValueError(
                f"events[{level!r}] has {len(emitted)} entries for {len(planned)} nodes"
            )
        for i, pair in enumerate(zip(planned, emitted, strict=True)):
            _check_level(f"{level}[{i}]", *pair)
        return
    silent = emitted is None or isinstance(emitted, dp_accounting.NoOpDpEvent)
    found = 0.0 if silent else event_multiplier(level, emitted)
    if found < planned * (1 - _FLOAT32):
        raise ValueError(
            f"events: level {level!r} emitted a noise multiplier of {found:.9g}, but "
            f"the plan has {planned:.9g}"
        )


def event_multiplier(level: str, event: dp_accounting.DpEvent) -> float:
    """The noise multiplier of Gaussian events released together.

    Args:
      level: Named in errors.
      event: A `GaussianDpEvent`, or such events composed, as adaptive clipping
        and per-layer clipping emit them.

    Returns:
      (sum z^-2)^-1/2; 0 for an event without privacy.

    Raises:
      ValueError: If the event is of another kind, naming why.
    """
    if isinstance(event, dp_accounting.NoOpDpEvent):
        return float("inf")
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        return 0.0
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return float(event.noise_multiplier)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        parts = [event_multiplier(level, e) for e in event.events]
        if any(z == 0 for z in parts):
            return 0.0
        total = sum(z**-2 for z in parts)
        return total**-0.5 if total else float("inf")
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return event_multiplier(level, event.event) / float(event.count) ** 0.5
    if isinstance(event, dp_accounting.SingleEpochTreeAggregationDpEvent):
        raise ValueError(
            f"events: level {level!r} used tree aggregation, whose account needs every "
            "client at most once between restarts; this sampling does not give that"
        )
    raise ValueError(
        f"events: level {level!r} emitted {type(event).__name__}, which is not "
        "Gaussian and cannot be accounted here (tensorflow-privacy's tree, discrete "
        "Gaussian and Skellam queries emit UnsupportedDpEvent)"
    )
