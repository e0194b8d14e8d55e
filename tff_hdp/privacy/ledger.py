"""The ledger of noise plans, checked against what the rounds' events say."""

from collections.abc import Mapping
from typing import Any

import dp_accounting

from tff_hdp.privacy.accountant import account_history, check_same_zones
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.rounds import RoundLedger
from tff_hdp.privacy.serialisation import plan_from_dict, plan_to_dict
from tff_hdp.privacy.views import ClientKind, Observer, client_kind, observers, view

_FLOAT32 = 1e-6  # events may have passed through float32


class Ledger(RoundLedger[NoisePlan]):
    """Composes rounds, also across resumed runs and changes of plan.

    Its account is that of `tff_hdp.privacy.account`; a client's kind is the one it
    has under the last plan.
    """

    def __init__(self) -> None:
        super().__init__(
            plan_type=NoisePlan,
            account=account_history,
            to_dict=plan_to_dict,
            from_dict=plan_from_dict,
        )

    def record(
        self,
        plan: NoisePlan,
        count: int = 1,
        *,
        events: Mapping[str, Any] | None = None,
    ) -> None:
        """Records `count` rounds of `plan`.

        Args:
          plan: The plan that was run.
          count: How many rounds.
          events: What the levels' queries emitted in these rounds: `client` and
            `server` a `DpEvent`, `zone` one per zone, `upper` one list per upper
            level. A level may be missing, unless the plan has noise there and
            other levels are given.

        Raises:
          ValueError: If a level emitted less noise than the plan says or an
            event that cannot be accounted, or the plan has other zones than the
            rounds before. Nothing is recorded then.
        """
        if events is not None:
            _check_events(plan, events)
        check_same_zones([*(p for p, _ in self._history), plan])
        super().record(plan, count)

    def events(
        self, observer: Observer, kind: ClientKind, zone: int
    ) -> dp_accounting.DpEvent | None:
        """The rounds as one dp_accounting event, wrapped with the zone's sampling.

        Args:
          observer: Who looks; a super-node is the zone's own.
          kind: The client's kind, the same in every round.
          zone: The client's zone.

        Returns:
          The event; None where some rounds have none (participation revealed, a
          random number of noising participants). `NonPrivateDpEvent` stands for
          rounds that guarantee nothing.

        Raises:
          ValueError: If a plan has no client of that kind in the zone.
        """
        composed: list[dp_accounting.DpEvent] = []
        for plan, count in self._history:
            noising = kind == "ldp"
            here = plan.noising_clients[zone]
            exists = here > 0 if noising else here < plan.zone_sizes[zone]
            if not exists or client_kind(plan, zone, noising) != kind:
                raise ValueError(f"kind is {kind!r}; zone {zone} has no such client")
            level = next(lv for name, lv in observers(plan) if name == observer)
            seen = view(plan, observer, level, zone, noising)
            if seen.sees_nothing:
                continue
            if seen.mechanism is None:
                event: Any = dp_accounting.NonPrivateDpEvent()
            else:
                event = seen.mechanism.event
            if event is None:
                return None
            composed.append(dp_accounting.SelfComposedDpEvent(event, count))
        return dp_accounting.ComposedDpEvent(composed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self._history == other._history

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Ledger(rounds={self.rounds}, plans={len(self._history)})"


def _check_events(plan: NoisePlan, events: Mapping[str, Any]) -> None:
    """Refuses events with less noise than `plan` has at the same place."""
    if plan.top_up and plan.client_noise_multiplier > 0:
        raise ValueError(
            "plan.top_up is True, but no query emits an event of topping up, so the "
            "events cannot show that it was done; record without events if it was"
        )
    noises = any(plan.noising_clients)
    expected: dict[str, Any] = {
        "client": plan.client_noise_multiplier if noises else 0.0,
        "zone": list(plan.zone_noise_multipliers),
        "upper": [list(level.noise_multipliers) for level in plan.upper_levels],
        "server": plan.server_noise_multiplier,
    }
    unknown = sorted(set(events) - set(expected))
    if unknown:
        raise ValueError(
            f"events holds the level {unknown[0]!r}; allowed are {', '.join(expected)}"
        )
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
