"""Noise plans as JSON types, and back, exactly."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_hdp.privacy.clipping import Clipping
from tff_hdp.privacy.plan import Level, NoisePlan
from tff_hdp.privacy.sampling import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
)
from tff_hdp.protocols.secagg import FixedPoint

_SAMPLING = {
    "poisson": PoissonSampling,
    "fixed_size": FixedSizeSampling,
    "full": FullParticipation,
}


def plan_to_dict(plan: NoisePlan) -> dict[str, Any]:
    """Every field of `plan` as JSON types; `plan_from_dict` is the inverse."""
    fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    kind = next(k for k, cls in _SAMPLING.items() if isinstance(plan.sampling, cls))
    fields["sampling"] = {"kind": kind, **dataclasses.asdict(plan.sampling)}
    fields["clipping"] = dataclasses.asdict(plan.clipping)
    if plan.encoding is not None:
        fields["encoding"] = dataclasses.asdict(plan.encoding)
    fields["upper_levels"] = [dataclasses.asdict(level) for level in plan.upper_levels]
    return {name: _lists(value) for name, value in fields.items()}


def plan_from_dict(fields: Mapping[str, Any]) -> NoisePlan:
    """The plan that `plan_to_dict` wrote.

    Args:
      fields: What `plan_to_dict` returned, possibly through JSON.

    Returns:
      An equal plan.

    Raises:
      ValueError: If a field is unknown or out of range.
    """
    known = {f.name for f in dataclasses.fields(NoisePlan)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(f"fields holds {unknown[0]!r}, which no noise plan has")
    values = {name: _tuples(value) for name, value in fields.items()}
    sampling = dict(values["sampling"])
    kind = sampling.pop("kind")
    if kind not in _SAMPLING:
        raise ValueError(
            f"sampling.kind is {kind!r}; allowed are {', '.join(_SAMPLING)}"
        )
    values["sampling"] = _SAMPLING[kind](**sampling)
    values["clipping"] = Clipping(**values["clipping"])
    if values.get("encoding") is not None:
        values["encoding"] = FixedPoint(**values["encoding"])
    values["upper_levels"] = tuple(Level(**level) for level in values["upper_levels"])
    return NoisePlan(**values)


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _lists(v) for k, v in value.items()}
    return [_lists(v) for v in value] if isinstance(value, list | tuple) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _tuples(v) for k, v in value.items()}
    return (
        tuple(_tuples(v) for v in value) if isinstance(value, list | tuple) else value
    )
