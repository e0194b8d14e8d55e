"""What the levels' queries emitted, held against the plan."""

import functools
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tff_hdp.errors import ArgumentError, NoiseError, as_float, check_count, entries
from tff_hdp.privacy.parts import FixedSizeSampling, PoissonSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import ThreatModel

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_FLOAT32 = 1e-6  # events may have passed through float32
_BESIDE = ("clip_norms", "clients", "noising", "plan")
# A number of clients that draws of a plan have less often is of another plan.
_NEVER = 1e-12


def check_events(
    plan: NoisePlan, events: Mapping[str, Any], threat: ThreatModel = ThreatModel()
) -> None:
    """Refuses events with less noise than `plan` has at the same place.

    An event tells noise in units of the norm to which its query clips. Where that is
    given and is not the plan's, noise counts in units of the plan's.

    Args:
      plan: The plan that was run.
      events: As `Ledger.record` takes them.
      threat: Whose noise may be missing.

    Raises:
      ArgumentError: If the plan tops up, which no event shows, or a level is unknown.
      NoiseError: If a level emitted less noise than the plan says, an event that
        cannot be accounted, or clipped to more than the plan does; if more clients of
        a zone took part, or fewer added noise, than in all but one of 10^12 rounds of
        the plan's sampling.
    """
    if not isinstance(events, Mapping):
        raise ArgumentError("events", events, "a mapping from levels to DpEvents")
    if plan.top_up and plan.client_noise:
        raise ArgumentError(
            "plan.top_up",
            True,
            "False with events: none is emitted of topping up, so they cannot show "
            "that it was done; record without events if it was",
        )
    client = plan.client_noise if plan.clients_carry_noise else None
    zones, *upper, (server,) = plan.node_noise
    levels = {"zone": zones, "upper": tuple(upper), "server": server}
    expected: dict[str, Any] = {"client": client, **levels}
    if unknown := sorted(map(str, set(events) - {*expected, *_BESIDE})):
        raise ArgumentError("events", unknown, ", ".join(expected))
    _check_clients(plan, events.get("clients"))
    # An adaptive clip moves, and its noise with it; only the server adds any then.
    adapts = plan.clipping.kind == "adaptive"
    norms = events.get("clip_norms", {})
    _check_norms(norms, expected)
    norms = {} if adapts else norms
    for level, planned in expected.items():
        norm = norms.get(level)
        _check_level(plan, level, planned, events.get(level), norm)
    _check_noising(plan, threat, events.get("noising"))


def _check_norms(norms: Any, expected: Mapping[str, Any]) -> None:
    """Refuses clip norms that would be compared with nothing."""
    name, allowed = "events['clip_norms']", ", ".join(expected)
    if not isinstance(norms, Mapping):
        raise ArgumentError(name, norms, f"a mapping from {allowed}")
    if unknown := sorted(map(str, set(norms) - set(expected))):
        raise ArgumentError(name, unknown, allowed)
    for level, norm in norms.items():
        planned = expected[level]
        if norm is not None and not _has_shape_of(norm, planned):
            shape = "one for each node" if isinstance(planned, tuple) else "a number"
            raise ArgumentError(f"{name}[{level!r}]", norm, shape)


def _has_shape_of(norm: Any, planned: Any) -> bool:
    """Whether it is a number, or None, wherever the plan has a party's noise."""
    if not isinstance(planned, tuple):
        return norm is None or isinstance(norm, numbers.Real)
    is_sequence = isinstance(norm, Sequence) and not isinstance(norm, str)
    return (
        is_sequence
        and len(norm) == len(planned)
        and all(map(_has_shape_of, norm, planned))
    )


def _check_clients(plan: NoisePlan, took_part: Sequence[int] | None) -> None:
    """Refuses a round with more clients of a zone than the plan draws.

    Its account is of that many: a larger cohort hides nobody as well, and a client
    that comes twice moves the sum by twice its bound.
    """
    if took_part is None:
        return
    took_part = _by_zone(plan, "clients", took_part)
    most = _most_clients(plan)
    for i, (count, allowed) in enumerate(zip(took_part, most, strict=True)):
        if count > allowed:
            raise NoiseError(
                f"events: {count} clients of zone {i} took part, but the plan draws at "
                f"most {allowed}"
            )


def _check_noising(
    plan: NoisePlan, threat: ThreatModel, noising: Sequence[int] | None
) -> None:
    """Refuses a round that lacks noise of clients who were drawn, and so counted on."""
    if noising is None:
        return
    noising = _by_zone(plan, "noising", noising)
    least = _least_noising(plan, threat.dropout_rate, threat.colluders_in_zone)
    lacking = sorted(max(a - b, 0) for a, b in zip(least, noising, strict=True))
    # Whichever zones were skipped; a colluding client may leave its noise out.
    lacking = lacking[: max(len(lacking) - threat.skipped_zones, 0)]
    if sum(lacking) > threat.colluding_clients:
        why = "give a threat model with a dropout_rate if clients may drop out"
        if threat.dropout_rate:
            why = f"a dropout_rate of {threat.dropout_rate:g} does not explain it"
        raise NoiseError(
            f"events: noise of {sum(lacking)} clients that were drawn is missing; {why}"
        )


@functools.lru_cache(maxsize=256)
def _most_clients(plan: NoisePlan) -> tuple[int, ...]:
    """By zone, more clients than which a round has with probability `_NEVER`."""
    if isinstance(plan.sampling, FixedSizeSampling):
        return plan.sampling.sizes
    if not isinstance(plan.sampling, PoissonSampling):
        return plan.zone_sizes
    from scipy import stats

    most = stats.binom.isf(_NEVER, plan.zone_sizes, plan.participation)
    return tuple(map(int, most))


@functools.lru_cache(maxsize=256)
def _least_noising(
    plan: NoisePlan, dropout_rate: float, colluders: int
) -> tuple[int, ...]:
    """By zone, fewer noising clients than which a round has with that probability."""
    rates = [q * (1.0 - dropout_rate) for q in plan.participation]
    coming, noising = plan.zone_sizes, plan.noise_carriers
    if isinstance(plan.sampling, FixedSizeSampling):
        # Those that are drawn, each of whom drops out by itself.
        coming = plan.sampling.sizes
        rates = [1.0 - dropout_rate] * plan.num_zones
        noising = map(_least_drawn, plan.zone_sizes, noising, coming)
    least = map(_least_coming, noising, rates)
    if plan.min_zone_clients == 1:
        return tuple(least)
    # Of a zone that may be left out perhaps nobody's noise is there.
    zones = zip(least, map(_least_coming, coming, rates), strict=True)
    few = plan.min_zone_clients
    return tuple(a if all_ - colluders >= few else 0 for a, all_ in zones)


@functools.lru_cache(maxsize=1024)
def _least_coming(clients: int, rate: float) -> int:
    """The least number of clients that come with probability `rate` each."""
    from scipy import stats

    # SciPy has 0 for a rate of 1.
    return clients if rate == 1.0 else int(stats.binom.ppf(_NEVER, clients, rate))


@functools.lru_cache(maxsize=1024)
def _least_drawn(clients: int, noising: int, drawn: int) -> int:
    """The least number of noising ones among those drawn of all clients."""
    from scipy import stats

    return int(stats.hypergeom.ppf(_NEVER, clients, noising, drawn))


def _by_zone(plan: NoisePlan, name: str, counts: Sequence[int]) -> tuple[int, ...]:
    """Checks that there is a count for each zone."""
    found = entries(f"events[{name!r}]", counts, check_count)
    if len(found) != plan.num_zones:
        raise NoiseError(
            f"events[{name!r}] has {len(found)} entries for {plan.num_zones} zones"
        )
    return found


def _check_level(
    plan: NoisePlan, level: str, planned: Any, emitted: Any, clip_norm: Any
) -> None:
    if isinstance(planned, tuple):
        if emitted is None:
            emitted = [None] * len(planned)
        if isinstance(emitted, str) or not isinstance(emitted, Sequence):
            name = f"events[{level!r}]"
            raise ArgumentError(name, emitted, "a sequence with an event for each node")
        if len(emitted) != len(planned):
            raise NoiseError(
                f"events[{level!r}] has {len(emitted)} entries for {len(planned)} nodes"
            )
        norms = [None] * len(planned) if clip_norm is None else clip_norm
        for i, each in enumerate(zip(planned, emitted, norms, strict=True)):
            _check_level(plan, f"{level}[{i}]", *each)
        return
    found = 0.0 if emitted is None else _event_multiplier(level, emitted)
    if emitted is None or found == float("inf"):  # nothing was emitted of noise
        found = 0.0
    elif clip_norm is not None:
        allowed = plan.clipping.clip_norm
        clips = not level.startswith("upper")
        # So put that NaN is refused, here and below.
        if clips and not 0.0 <= clip_norm <= allowed * (1 + _FLOAT32):
            raise NoiseError(
                f"events: level {level!r} clips to {clip_norm:.9g}, but the plan to "
                f"{allowed:.9g}"
            )
        found *= clip_norm / allowed if found else 1.0
    least = planned.noise_multiplier if planned else 0.0
    if not found >= least * (1 - _FLOAT32):
        is_lost = level == "client" and not found
        why = "; a client came without its noise, or was lost" if is_lost else ""
        raise NoiseError(
            f"events: level {level!r} emitted a noise multiplier of {found:.9g}, but "
            f"the plan has {least:.9g}{why}"
        )


def _event_multiplier(level: str, event: "DpEvent") -> float:
    """The noise multiplier of Gaussian events released together: (sum z^-2)^-1/2.

    Adaptive and per-layer clipping emit such; 0 for an event without privacy.
    """
    kind = type(event).__name__
    if kind == "NoOpDpEvent":
        return float("inf")
    if kind == "NonPrivateDpEvent":
        return 0.0
    if kind == "GaussianDpEvent":
        name, allowed = "noise_multiplier", f"a number, in an event of level {level!r}"
        noise_multiplier = as_float(name, event.noise_multiplier, allowed)
        if not noise_multiplier >= 0.0:
            raise NoiseError(
                f"events: level {level!r} emitted a noise multiplier of "
                f"{noise_multiplier}"
            )
        return noise_multiplier
    if kind == "ComposedDpEvent":
        parts = [_event_multiplier(level, e) for e in event.events]
        if any(z == 0 for z in parts):
            return 0.0
        total = sum(z**-2 for z in parts)
        return total**-0.5 if total else float("inf")
    if kind == "SelfComposedDpEvent":
        if event.count < 1:
            raise NoiseError(
                f"events: level {level!r} emitted an event {event.count} times over"
            )
        return _event_multiplier(level, event.event) / float(event.count) ** 0.5
    if kind == "SingleEpochTreeAggregationDpEvent":
        raise NoiseError(
            f"events: level {level!r} used tree aggregation, whose account needs every "
            "client at most once between restarts; this sampling does not give that"
        )
    raise NoiseError(
        f"events: level {level!r} emitted {kind}, which is not "
        "Gaussian and cannot be accounted here (tensorflow-privacy's tree, discrete "
        "Gaussian and Skellam queries emit UnsupportedDpEvent)"
    )
