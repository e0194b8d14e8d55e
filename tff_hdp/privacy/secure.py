"""Noise plans under secure aggregation: what they may be, and their fixed point."""

import dataclasses
import math
from typing import TYPE_CHECKING

from tff_hdp.privacy.sampling import FixedSizeSampling
from tff_hdp.protocols.secagg import FixedPoint
from tff_hdp.protocols.secagg.errors import BadInputError

if TYPE_CHECKING:
    from tff_hdp.privacy.plan import NoisePlan

# From this standard deviation on, in steps, sums of discrete Gaussians and sums of
# those with continuous ones differ from Gaussians by less than e^-900 at any point
# (Kairouz, Liu and Steinke 2021, Theorem 1), so they are accounted as Gaussians.
MIN_STEPS = 10.0


def smallest_noise(encoding: FixedPoint, clip_norm: float) -> float:
    """The least noise multiplier that a grid resolves; see `MIN_STEPS`."""
    return MIN_STEPS * encoding.step / clip_norm


def check_secure(plan: "NoisePlan") -> None:
    """Raises ValueError, naming the field, unless secure sums can be as planned."""
    _check_least(plan)
    if plan.secure_server:
        _check_server(plan)
    if plan.encoding is not None:
        _check_encoding(plan, plan.encoding)


def with_encoding(
    plan: "NoisePlan", *, size: int, bits: int = 30, largest: float | None = None
) -> "NoisePlan":
    """`plan` with the finest fixed point in which none of its sums wraps around.

    Args:
      plan: With `secure_aggregation` or `secure_server`.
      size: d, coordinates of an update.
      bits: Size of the ring, 4..32.
      largest: Bound on a coordinate of an update; larger ones are clipped. None
        takes the clip norm, beyond which no coordinate of a clipped update is.

    Raises:
      BadInputError: If `bits` are too few.
      ValueError: If the plan is none for secure sums.
    """
    encoding = FixedPoint.for_sum(
        clip=plan.clipping.clip_norm if largest is None else largest,
        bits=bits,
        max_clients=_most_clients(plan),
        noise_std=_largest_noise(plan),
        size=size,
    )
    moved = encoding.rounded_norm(0.0, size)
    if plan.is_noisy and moved >= plan.clipping.clip_norm:
        raise BadInputError(
            f"bits is {bits}: rounding {size} coordinates moves an update by up to "
            f"{moved:.3g}, not less than the clip norm {plan.clipping.clip_norm:.6g}"
        )
    return dataclasses.replace(plan, encoding=encoding)


def on_one_grid(
    plan: "NoisePlan",
    weights: dict[int, float],
    relative: dict[int, float],
    fixed: float,
    notes: list[str],
) -> tuple[dict[int, float], float]:
    """The discrete and continuous noise that counts beside the client's own grid.

    Discrete noise scaled onto another grid could be told apart from the client's,
    and so could continuous noise that does not blur the grid.
    """
    same = {j: w for j, w in weights.items() if math.isclose(relative[j], 1.0)}
    if len(same) < len(weights):
        notes.append("client noise of zones on another grid is not counted")
    if fixed and smallest_noise(plan.encoding, plan.clipping.clip_norm) > math.sqrt(
        fixed
    ):
        notes.append("noise finer than the grid of the client noise is not counted")
        fixed = 0.0
    return same, fixed


def _check_least(plan: "NoisePlan") -> None:
    least = plan.min_zone_clients
    sizes = plan.zone_sizes
    if isinstance(plan.sampling, FixedSizeSampling):
        sizes = plan.sampling.sizes
    if int(least) != least or not 1 <= least <= min(sizes):
        raise ValueError(
            f"min_zone_clients is {least}; allowed is 1..{min(sizes)}, the clients of "
            "the smallest zone or fixed cohort"
        )


def _check_server(plan: "NoisePlan") -> None:
    if plan.upper_levels:
        raise ValueError(
            f"secure_server is True with {len(plan.upper_levels)} upper_levels; it "
            "sums zones, so none are allowed"
        )
    if plan.num_zones == 1:
        raise ValueError(
            "secure_server is True with 1 zone, whose output is the sum; at least 2 "
            "are needed"
        )
    if plan.estimator == "bounded":
        raise ValueError(
            "secure_server is True but estimator is 'bounded', which divides each "
            "zone's sum by its own random denominator; use 'fixed'"
        )
    if plan.estimator == "realised":
        equal = plan.mixing == "weighted"
    else:
        units = plan.released_sensitivities
        equal = math.isclose(min(units), max(units), rel_tol=1e-9)
    if not equal:
        raise ValueError(
            f"secure_server is True but mixing is {plan.mixing!r}, by which the zones' "
            "sums count differently; use 'weighted'"
        )


def _check_encoding(plan: "NoisePlan", encoding: FixedPoint) -> None:
    if not (plan.secure_aggregation or plan.secure_server):
        raise ValueError("encoding is given without secure aggregation; give None")
    if plan.clipping.kind == "adaptive":
        raise ValueError(
            "clipping.kind is 'adaptive' but the encoding is for one clip norm; use "
            "flat or per_layer"
        )
    if encoding.max_clients < _most_clients(plan):
        raise ValueError(
            f"encoding.max_clients is {encoding.max_clients}; a sum may be of "
            f"{_most_clients(plan)}"
        )
    noise = {"client_noise_multiplier": plan.client_noise_multiplier}
    if plan.secure_server:
        noise |= {
            f"zone_noise_multipliers[{i}]": z
            for i, z in enumerate(plan.zone_noise_multipliers)
        }
        noise["server_noise_multiplier"] = plan.server_noise_multiplier
    least = smallest_noise(encoding, plan.clipping.clip_norm)
    for name, z in noise.items():
        if 0 < z < least:
            raise ValueError(
                f"{name} is {z}; allowed with an encoding of step {encoding.step:.3g} "
                f"is 0 or at least {least:.3g}; use more bits"
            )


def _most_clients(plan: "NoisePlan") -> int:
    return plan.num_clients if plan.secure_server else max(plan.zone_sizes)


def _largest_noise(plan: "NoisePlan") -> float:
    """Standard deviation of the noise in a sum, at most, in the updates' units."""
    client = [plan.client_noise_multiplier**2 * count for count in plan.noising_clients]
    if plan.secure_server:
        variance = sum(client) + sum(z * z for z in plan.zone_noise_multipliers)
    else:
        variance = max(client)
    return plan.clipping.clip_norm * math.sqrt(variance)
