"""What noise on a grid counts, where sums are taken in fixed point."""

import math

from tff_hdp.privacy.plan import MIN_STEPS, NoisePlan
from tff_hdp.privacy.spectrum import Spectrum


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
    least = MIN_STEPS * plan.relative_step
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
    blurred = spectrum.changed(lambda v: v * v / (v + blur) if v else 0.0)
    return blurred, blur / (2.0 * least * least)
