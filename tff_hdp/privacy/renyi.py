"""Renyi moments of the Poisson-sampled Gaussian mechanism, many orders at once.

Same quantity as dp_accounting's `PoissonSampledDpEvent(q, GaussianDpEvent(z))`,
fast enough to average over every possible number of noising participants, and
with its digits kept when it is tiny.
"""

import functools
import math

import numpy as np
from scipy import special


def log_mean_exp(exponent: np.ndarray, log_p: np.ndarray, q: float) -> np.ndarray:
    """ln(1 - q + q sum_k p_k exp(x_k)) over the last axis, for x_k >= 0.

    Args:
      exponent: x, shape [..., k].
      log_p: Natural logs of probabilities that sum to 1, shape [k].
      q: In (0, 1].

    Returns:
      Shape [...]; computed as ln(1 + q sum_k p_k expm1(x_k)), so that tiny
      values keep their digits.
    """
    log_sum = special.logsumexp(_log_expm1(exponent) + log_p, axis=-1)
    return np.logaddexp(0.0, log_sum + math.log(q))


def log_moments(q: float, z: float, orders: tuple[float, ...]) -> np.ndarray:
    """Log moments, ln E_{x~N(0,z^2)}[(1 - q + q exp((2x-1) / 2z^2))^a].

    Divided by a - 1 it is the Renyi divergence of the mechanism in its worse
    direction (Mironov, Talwar and Zhang 2019).

    Args:
      q: Sampling probability in (0, 1).
      z: Noise multiplier > 0.
      orders: Orders a > 1.

    Returns:
      Shape [len(orders)].
    """
    a = np.asarray(orders, dtype=np.float64)
    whole = a == np.floor(a)
    result = np.empty(len(a))
    result[whole] = _whole(q, z, tuple(a[whole].astype(int).tolist()))
    result[~whole] = _fractional(q, z, a[~whole])
    return np.maximum(result, 0.0)


def _whole(q: float, z: float, orders: tuple[int, ...]) -> np.ndarray:
    """ln(1 + sum_i C(a,i) q^i (1-q)^(a-i) expm1(i(i-1) / 2z^2)), i = 2..a."""
    if not orders:
        return np.empty(0)
    starts, i, rest, log_choose = _binomials(orders)
    log_terms = log_choose + i * math.log(q) + rest * math.log1p(-q)
    log_terms += _log_expm1(i * (i - 1) / (2 * z * z))
    highest = np.maximum.reduceat(log_terms, starts)
    scaled = np.exp(log_terms - np.repeat(highest, np.diff([*starts, len(i)])))
    return np.logaddexp(0.0, highest + np.log(np.add.reduceat(scaled, starts)))


@functools.lru_cache(maxsize=8)
def _binomials(orders: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """For i = 2..a of each order a, end to end: starts, i, a - i, ln C(a, i)."""
    i = np.concatenate([np.arange(2.0, a + 1) for a in orders])
    a = np.repeat(np.asarray(orders, dtype=np.float64), [a - 1 for a in orders])
    starts = np.concatenate([[0], np.cumsum([a - 1 for a in orders])[:-1]])
    log_choose = special.gammaln(a + 1) - special.gammaln(i + 1)
    return starts, i, a - i, log_choose - special.gammaln(a - i + 1)


def _fractional(q: float, z: float, a: np.ndarray) -> np.ndarray:
    """The integral by the trapezoidal rule.

    The integrand is analytic within pi z^2 of the real line, so the rule's
    error is exp(-2 pi^2 z^2 / step) relative to it, below 1e-16 for these steps.
    """
    if a.size == 0:
        return a
    step = min(z / 4, z * z / 2)
    x = np.arange(-12 * z, float(a.max()) + 12 * z + step, step)
    log_weight = -0.5 * (x / z) ** 2 + math.log(step / (z * math.sqrt(2 * math.pi)))
    exponent = a[:, None] * np.logaddexp(
        math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z)
    )
    if exponent.max() < 30:
        # The weights sum to 1; taking it out keeps the digits of tiny moments.
        return np.log1p(np.expm1(exponent) @ np.exp(log_weight))
    return special.logsumexp(exponent + log_weight, axis=-1)


def _log_expm1(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(x > 30, x, np.log(np.expm1(np.minimum(x, 30.0))))
