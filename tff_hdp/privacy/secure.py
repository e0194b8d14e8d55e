"""Noise plans whose sums are taken in fixed point, and what noise counts there."""

import dataclasses
import math

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.plan import NoisePlan, most_clients, smallest_noise
from tff_hdp.protocols.secagg import FixedPoint


def with_encoding(
    plan: NoisePlan, *, size: int, bits: int = 30, largest: float | None = None
) -> NoisePlan:
    """`plan` with the finest fixed point in which none of its sums wraps around.

    Args:
      plan: With `secure_aggregation` or `secure_server`.
      size: d, coordinates of an update.
      bits: Size of the ring, 4..32.
      largest: Bound on a coordinate of an update; larger ones are clipped. None
        takes the clip norm, beyond which no coordinate of a clipped update is.

    Raises:
      BadInputError: If the sums cannot be taken in so many bits.
      ArgumentError: If `bits` are too few for the clip norm, or the plan is none for
        secure sums.
    """
    encoding = FixedPoint.for_sum(
        clip=plan.clipping.clip_norm if largest is None else largest,
        bits=bits,
        max_clients=most_clients(plan),
        noise_std=_largest_noise(plan),
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
    return dataclasses.replace(plan, encoding=encoding)


def on_one_grid(
    plan: NoisePlan,
    weights: dict[int, float],
    relative: dict[int, float],
    fixed: float,
    notes: list[str],
) -> tuple[dict[int, float], float]:
    """The discrete and continuous noise that counts beside the client's own grid.

    Discrete noise scaled onto another grid could be told apart from the client's,
    and so could continuous noise that does not blur the grid.

    Args:
      plan: With an encoding.
      weights: By zone, the variance that each noising participant adds.
      relative: By zone, its sensitivity over that of the client's.
      fixed: Variance of the other noise.
      notes: Assumptions in words; appended to.

    Returns:
      What is left of `weights` and of `fixed`.
    """
    same = {j: w for j, w in weights.items() if math.isclose(relative[j], 1.0)}
    if len(same) < len(weights):
        notes.append("client noise of zones on another grid is not counted")
    least = smallest_noise(plan.encoding, plan.clipping.clip_norm)
    if fixed and least > math.sqrt(fixed):
        notes.append("noise finer than the grid of the client noise is not counted")
        fixed = 0.0
    return same, fixed


def _largest_noise(plan: NoisePlan) -> float:
    """Standard deviation of the noise in a sum, at most, in the updates' units."""
    client = [plan.client_noise_multiplier**2 * count for count in plan.noising_clients]
    if plan.secure_server:
        variance = sum(client) + sum(z * z for z in plan.zone_noise_multipliers)
    else:
        variance = max(client)
    return plan.clipping.clip_norm * math.sqrt(variance)
