"""Noise plans whose sums are taken in fixed point."""

import dataclasses
import math
from collections.abc import Mapping

from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.protocols.secagg import FixedPoint

# Whose sums are secure, as flags name them: super-nodes then see only their zone's, the
# server only that over zones.
SECURE_SUMS = ("none", "zone", "server", "both")
FEWEST_BITS, DEFAULT_BITS = 16, 30
# A sum of one client is that client's update.
LEAST_CLIENTS = 2
# Steps from weight 0 to 1. A weight is rounded up to the next, so a mean is too short
# by at most one step over the mean weight.
_FEWEST_WEIGHT_STEPS = 2**6


def secure_fields(secure_aggregation: str) -> Mapping[str, bool]:
    """The fields of `NoisePlan` that one of `SECURE_SUMS` stands for."""
    return {
        "secure_aggregation": secure_aggregation in ("zone", "both"),
        "secure_server": secure_aggregation in ("server", "both"),
    }


def with_encoding(
    plan: NoisePlan,
    *,
    size: int,
    bits: int = DEFAULT_BITS,
    largest: float | None = None,
) -> NoisePlan:
    """`plan` with the finest fixed point in which none of its sums wraps around.

    Args:
      plan: With `secure_aggregation` or `secure_server`.
      size: d, coordinates of an update.
      bits: Size of the ring, 4..32.
      largest: Bound on a coordinate of an update; larger ones are clipped. None
        takes the clip norm, beyond which no coordinate of a clipped update is.

    Raises:
      ArgumentError: If `bits` are too few for the sums, their weights or the clip
        norm, or the plan is none for secure sums.
    """
    encoding = FixedPoint.for_sum(
        clip=plan.clipping.clip_norm if largest is None else largest,
        bits=bits,
        max_clients=plan.most_summed,
        stddev=_largest_noise(plan),
        size=size,
    )
    moved = encoding.rounded_norm(0.0, size)
    if plan.is_noisy and moved >= plan.clipping.clip_norm:
        raise ArgumentError(
            "bits",
            bits,
            f"more: rounding {size} coordinates moves an update by up to {moved:.3g}, "
            f"not less than the clip norm {plan.clipping.clip_norm:.6g}",
        )
    encoded = dataclasses.replace(plan, encoding=encoding, size=size)
    check_weight_one(encoded)
    return encoded


def check_weight_one(plan: NoisePlan) -> int:
    """Returns the integer that stands for weight 1 beside a plan's encoded updates.

    Those of `max_clients` add up to no more than the ring has room for.

    Raises:
      ArgumentError: If the plan's sums are divided by weights, of which so small an
        integer leaves too little.
    """
    bits, clients = plan.encoding.bits, plan.encoding.max_clients
    one = (2 ** (bits - 1) - 1) // clients
    ok = plan.estimator == "fixed" or one >= _FEWEST_WEIGHT_STEPS
    allowed = f"more: in sums of {clients} clients they leave {one} steps to a weight "
    allowed += f"of 1, and estimator {plan.estimator}, which divides by weights, needs "
    require(ok, "bits", bits, f"{allowed}{_FEWEST_WEIGHT_STEPS}")
    return one


def _largest_noise(plan: NoisePlan) -> float:
    """Standard deviation of the noise in a sum, at most, in the updates' units."""
    client = [plan.client_noise.stddev**2 * count for count in plan.noise_carriers]
    if plan.secure_server:
        zones = (noise.stddev for noise in plan.zone_noise)
        return math.hypot(math.sqrt(sum(client)), *zones)
    return math.sqrt(max(client))
