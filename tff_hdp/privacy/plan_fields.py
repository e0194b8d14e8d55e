"""Plans as JSON types, and back, exactly."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tff_hdp.errors import ArgumentError, entries
from tff_hdp.privacy.parts import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    PoissonSampling,
)
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.protocols.secagg import FixedPoint

_SAMPLING = {
    "poisson": PoissonSampling,
    "fixed_size": FixedSizeSampling,
    "full": FullParticipation,
}


def plan_to_dict(plan: NoisePlan) -> dict[str, Any]:
    """Every field of `plan` as JSON types; `plan_from_dict` is the inverse."""
    return json.loads(_written(plan))


@functools.lru_cache(maxsize=256)
def _written(plan: NoisePlan) -> str:
    fields = dataclasses.asdict(plan)
    kind = next(k for k, cls in _SAMPLING.items() if isinstance(plan.sampling, cls))
    fields["sampling"]["kind"] = kind
    return json.dumps(fields)


@functools.lru_cache(maxsize=256)
def plan_digest(plan: NoisePlan) -> int:
    """A whole number below 2^63 that tells plans apart: of all fields' SHA-256."""
    text = json.dumps(plan_to_dict(plan), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def plan_from_dict(fields: Mapping[str, Any]) -> NoisePlan:
    """The plan that `plan_to_dict` wrote.

    Args:
      fields: What `plan_to_dict` returned, possibly through JSON.

    Raises:
      ArgumentError: If a field is unknown, missing or out of range.
    """
    check_names("plan", fields, {f.name for f in dataclasses.fields(NoisePlan)})
    values = dict(fields)
    sampling = dict(values["sampling"])
    kind = sampling.pop("kind")
    if kind not in _SAMPLING:
        raise ArgumentError("sampling.kind", kind, ", ".join(_SAMPLING))
    values["sampling"] = from_fields(_SAMPLING[kind], sampling)
    values["clipping"] = from_fields(Clipping, values["clipping"])
    if values["encoding"] is not None:
        values["encoding"] = from_fields(FixedPoint, values["encoding"])
    values["upper_levels"] = entries(
        "upper_levels", values["upper_levels"], lambda _, each: from_fields(Level, each)
    )
    return from_fields(NoisePlan, values)


def from_fields(cls: type, fields: Mapping[str, Any]) -> Any:
    """A dataclass's value of all its fields, as JSON types: what is left out is lost.

    Raises:
      ArgumentError: If a field is unknown, missing or out of range.
    """
    check_names(cls.__name__, fields, {f.name for f in dataclasses.fields(cls)})
    return cls(**{name: _tuples(value) for name, value in fields.items()})


def check_names(what: str, found: Mapping[str, Any], known: set[str]) -> None:
    """Raises ArgumentError unless the names are those known, all of them."""
    if wrong := sorted(set(found) ^ known):
        raise ArgumentError(what, wrong, f"the fields {', '.join(sorted(known))}")


def _tuples(value: Any) -> Any:
    """`value` with its lists, at any depth, as tuples."""
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return value
