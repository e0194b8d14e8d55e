"""The Gaussian mechanism, exactly (Balle and Wang 2018)."""

import math

import numpy as np
from scipy import optimize, special

from tff_hdp.privacy.checks import check_delta, check_positive


def delta(epsilon: np.ndarray, z: float) -> np.ndarray:
    """The least delta for each epsilon.

    Args:
      epsilon: Any real numbers.
      z: Noise standard deviation over sensitivity; 0 gives delta 1.

    Returns:
      Phi(1/2z - eps z) - e^eps Phi(-1/2z - eps z), of epsilon's shape.
    """
    epsilon = np.asarray(epsilon, dtype=np.float64)
    if z == 0:
        return np.ones_like(epsilon)
    a, b = 0.5 / z - epsilon * z, -0.5 / z - epsilon * z
    # The product is at most Phi(a), so its log cannot exceed 0.
    second = np.exp(np.minimum(epsilon + special.log_ndtr(b), 0.0))
    return np.maximum(special.ndtr(a) - second, 0.0)


def epsilon(z: float, target_delta: float) -> float:
    """The least epsilon >= 0 with delta(epsilon, z) at most `target_delta`.

    Args:
      z: Noise standard deviation over sensitivity; for T rounds, that of one
        round over sqrt(T).
      target_delta: In (0, 1).

    Returns:
      Epsilon, to 1e-12 relative.

    Raises:
      ValueError: If an argument is out of range.
    """
    check_positive("z", z)
    check_delta("target_delta", target_delta)

    def excess(e: float) -> float:
        return float(delta(e, z)) - target_delta

    if excess(0.0) <= 0:
        return 0.0
    high = 0.5 / z**2 + math.sqrt(2 * math.log(1 / target_delta)) / z
    return float(optimize.brentq(excess, 0.0, high + 1.0, xtol=1e-14, rtol=1e-12))


def classic_multiplier(epsilon: float, delta: float) -> float:
    """The textbook sqrt(2 ln(1.25/delta)) / epsilon; a proof needs epsilon < 1."""
    check_positive("epsilon", epsilon)
    check_delta("delta", delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon
