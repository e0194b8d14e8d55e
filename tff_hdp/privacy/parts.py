"""What a noise plan is made of: how cohorts are drawn, and the clip."""

import dataclasses
import math
from typing import Any, Literal

from tff_hdp.errors import (
    ArgumentError,
    check_count,
    check_number,
    check_positive,
    check_probability,
    check_word,
    entries,
    require,
)

# An account squares and divides what a plan holds. Within these bounds whatever it
# comes to is a float; nobody means anything beyond.
LEAST_PROBABILITY = 1e-18
LEAST_WEIGHT = 1e-12
# From this standard deviation on, in steps, sums of discrete Gaussians differ from
# one discrete Gaussian, and sums of those with continuous ones from a Gaussian, by
# less than e^-900 at any point (Kairouz, Liu and Steinke 2021, Theorem 1).
MIN_STEPS = 10.0


def check_zone_sizes(zone_sizes: Any) -> tuple[int, ...]:
    """Returns n_i of every zone; raises ArgumentError unless whole and >= 1."""
    return entries("zone_sizes", zone_sizes, lambda name, n: check_count(name, n, 1))


def check_rate(name: str, q: Any) -> float:
    """Returns a sampling probability whose square an account can divide by.

    Raises:
      ArgumentError: If `q` is no such number.
    """
    found = check_probability(name, q)
    require(found >= LEAST_PROBABILITY, name, q, f"at least {LEAST_PROBABILITY:g}")
    return found


# How a round's cohort is drawn within each zone --------------------------------


@dataclasses.dataclass(frozen=True)
class PoissonSampling:
    """Zone i takes each of its clients independently with probability q_i.

    Attributes:
      probabilities: q_i in (0, 1], one per zone.

    Raises:
      ArgumentError: If one is out of range.
    """

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        found = entries("probabilities", self.probabilities, check_rate)
        object.__setattr__(self, "probabilities", found)


@dataclasses.dataclass(frozen=True)
class FixedSizeSampling:
    """Zone i takes exactly k_i of its clients, uniformly without replacement.

    Attributes:
      sizes: k_i >= 1, one per zone.

    Raises:
      ArgumentError: If one is no whole number >= 1.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        found = entries("sizes", self.sizes, lambda name, k: check_count(name, k, 1))
        object.__setattr__(self, "sizes", found)


@dataclasses.dataclass(frozen=True)
class FullParticipation:
    """Every client takes part in every round."""


Sampling = PoissonSampling | FixedSizeSampling | FullParticipation

# The rest ----------------------------------------------------------------------


# In float32 the squares of a shorter update vanish, and those of a longer one, or of
# its noise, are infinite.
_LEAST_NORM, _GREATEST_NORM = 1e-12, 1e12


def check_norm(name: str, norm: float) -> None:
    """Raises ArgumentError unless vectors of that norm have squares in float32."""
    ok = _LEAST_NORM <= norm <= _GREATEST_NORM
    allowed = f"at least {_LEAST_NORM:g} and at most {_GREATEST_NORM:g}"
    require(ok, name, norm, f"{allowed}, whose squares float32 has")


# Of a clip norm that was measured on clients' data without noise.
NOT_PRIVATE = "this estimate is itself not private"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clipping:
    """The bound S on the L2 norm of one client's update.

    Attributes:
      clip_norm: S, the bound on the whole update; for `adaptive` its initial value.
      kind: `flat` clips the whole update to S; `per_layer` clips each weight
        tensor to `layer_norms` with S the root of their summed squares;
        `adaptive` tracks `target_quantile` of the norms privately (Andrew et
        al. 2021, as in tensorflow-privacy).
      layer_norms: C_l per weight tensor; for `per_layer` only. None there
        means equal shares, C_l = S / sqrt(number of tensors).
      target_quantile: For `adaptive`, the share of updates left unclipped.
      source: Where S comes from, in words, for the report; `NOT_PRIVATE` among them
        where it is clients' data, in which case accounts say that S is taken as public.

    Raises:
      ArgumentError: If a field is out of range or two contradict each other.
    """

    clip_norm: float = 1.0
    kind: Literal["flat", "per_layer", "adaptive"] = "flat"
    layer_norms: tuple[float, ...] | None = None
    target_quantile: float = 0.5
    source: str = "given"

    def __str__(self) -> str:
        return f"Clip norm {self.clip_norm:.6g}: {self.source}."

    @property
    def is_private(self) -> bool:
        """Whether S tells nothing of clients' data that is not accounted."""
        return NOT_PRIVATE not in self.source

    def __post_init__(self) -> None:
        norm = check_positive("clip_norm", self.clip_norm)
        check_norm("clip_norm", norm)
        object.__setattr__(self, "clip_norm", norm)
        kinds = ("flat", "per_layer", "adaptive")
        check_word("kind", self.kind, kinds)
        require(isinstance(self.source, str), "source", self.source, "text")
        quantile = check_number(
            "target_quantile", self.target_quantile, "(0, 1)", lambda x: 0.0 < x < 1.0
        )
        object.__setattr__(self, "target_quantile", quantile)
        if self.layer_norms is None:
            return
        norms = entries("layer_norms", self.layer_norms, check_positive)
        object.__setattr__(self, "layer_norms", norms)
        if self.kind != "per_layer":
            raise ArgumentError("layer_norms", norms, f"None with kind {self.kind}")
        total = math.hypot(*norms)
        if not math.isclose(total, self.clip_norm, rel_tol=1e-6):
            allowed = f"{total}, to which the layer_norms combine"
            raise ArgumentError("clip_norm", self.clip_norm, allowed)
