"""Noise plans whose sums are taken in fixed point, and what noise counts there."""

import dataclasses
import math

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.plan import NoisePlan, most_clients, smallest_noise
from tff_hdp.privacy.spectrum import Spectrum
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
    return dataclasses.replace(plan, encoding=encoding, size=size)


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


# Variance, in squared steps, of the Gaussian that blurs a grid in `as_continuous`.
_BLUR = 3.0


def as_continuous(spectrum: Spectrum, step: float) -> tuple[Spectrum, float]:
    """Continuous noise and a slack that discrete noise is no worse than.

    A discrete Gaussian K of variance s^2 has the same losses as a continuous one as a
    function of its value, (2<k, m> - |m|^2) / 2s^2 for a shift m, and e^loss - e^eps,
    where positive, is convex in k. So a hockey-stick divergence can only grow when
    independent noise of mean 0 is added to K: take a Gaussian of variance b = `_BLUR`
    in every coordinate. From 10 steps on that sum's density is within 1 +- 3e-25 of
    the Gaussian's of variance s^2 + b (Poisson summation), and the divergence over it
    is e^slack times that of continuous noise of variance s^4 / (s^2 + b) at eps -
    slack, with slack = b |m|^2 / 2s^4. The argument does not need masses to be 1, so
    it passes through sampling and composition.

    Args:
      spectrum: Variance of the discrete noise, in squared sensitivities.
      step: The grid's step, in sensitivities.

    Returns:
      The variance of the continuous noise, and the slack; see `Mechanism.slack`.
    """
    blur = _BLUR * step**2
    least = min((v for v in spectrum.variances if v > 0), default=math.inf)
    variances = tuple(v * v / (v + blur) if v else 0.0 for v in spectrum.variances)
    slack = blur / (2.0 * least * least)
    return dataclasses.replace(spectrum, variances=variances), slack


def _largest_noise(plan: NoisePlan) -> float:
    """Standard deviation of the noise in a sum, at most, in the updates' units."""
    client = [plan.client_noise_multiplier**2 * count for count in plan.noising_clients]
    if plan.secure_server:
        variance = sum(client) + sum(z * z for z in plan.zone_noise_multipliers)
    else:
        variance = max(client)
    return plan.clipping.clip_norm * math.sqrt(variance)
