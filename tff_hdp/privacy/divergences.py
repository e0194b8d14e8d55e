"""Divergences of the Gaussian and Laplace mechanisms: Renyi's, and hockey-stick.

Renyi moments come for many orders at once. Those of the Poisson-sampled Gaussian
are dp_accounting's for `PoissonSampledDpEvent(q, GaussianDpEvent(z))`, fast enough
to average over every possible number of noising participants, and with their
digits kept when they are tiny.
"""

import functools
import math

import numpy as np
from scipy import special

from tff_hdp.errors import check_delta, check_nonnegative, check_positive
from tff_hdp.privacy.spectrum import Spectrum

# Renyi -------------------------------------------------------------------------


def laplace_rdp(ratio: float | np.ndarray, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence of Laplace noise under a shift (Mironov 2017, Prop. 6).

    Args:
      ratio: Shift over scale, >= 0; or several, of shape [n, 1].
      orders: Each > 1.

    Returns:
      Shape [len(orders)], or [n, len(orders)].
    """
    a = np.asarray(orders, np.float64)
    share = a / (2 * a - 1)
    near = np.log(share) + (a - 1) * ratio
    far = np.log1p(-share) - a * ratio
    # Where little is left of terms that cancel, it must keep its digits.
    is_small = (a - 1) * ratio <= 1.0
    small = np.where(is_small, ratio, 0.0)
    rest = share * np.expm1((a - 1) * small) + (1 - share) * np.expm1(-a * small)
    moment = np.where(is_small, np.log1p(rest), np.logaddexp(near, far))
    return np.maximum(moment, 0.0) / (a - 1)


def log_mean_exp(exponent: np.ndarray, log_p: np.ndarray, q: float) -> np.ndarray:
    """ln(1 - q + q sum_k p_k exp(x_k)) over the last axis, for x_k >= 0.

    Args:
      exponent: x, shape [..., k].
      log_p: Natural logs of probabilities, shape [k]; what they lack of 1 is of x = 0.
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


# Up to this order the bound has moments of p/q - 1 in it, beyond it those of p/q alone,
# as in dp_accounting.
_MOST_CENTRED = 256


def without_replacement_moments(
    rates: np.ndarray, chances: np.ndarray, z: float, orders: tuple[float, ...]
) -> np.ndarray:
    """Bounds on log moments under sampling without replacement, replace-one neighbours.

    Wang, Balle and Kasiviswanathan 2019, Theorem 27, and between whole orders their
    Corollary 10. dp_accounting's for `SampledWithoutReplacementDpEvent` are the same
    but where z is large: it loses differences to rounding, and its bound is looser.

    Args:
      rates: q, shares of the clients that are drawn, in (0, 1]; which of them it is
        does not depend on the data, and the observer knows it.
      chances: How likely each is; what is missing from 1 is that nobody is drawn.
      z: Noise standard deviation over the replace-one sensitivity, > 0.
      orders: Orders a > 1.

    Returns:
      Shape [len(orders)]; divided by a - 1, bounds on the Renyi divergence.
    """
    a = np.asarray(orders, dtype=np.float64)
    if rates.min() == 1.0:
        return log_mean_exp((a * (a - 1) / (2 * z * z))[:, None], np.log(chances), 1.0)
    below, above = np.floor(a), np.ceil(a)
    whole = np.unique(np.concatenate([below, above])).astype(int)
    moments = _whole_without_replacement(rates, chances, z, whole)
    low, high = (moments[np.searchsorted(whole, n)] for n in (below, above))
    # Infinities of no weight would make it NaN.
    share = a - below
    return np.where(share == 0, low, (1 - share) * low + share * high)


def _whole_without_replacement(
    rates: np.ndarray, chances: np.ndarray, z: float, orders: np.ndarray
) -> np.ndarray:
    """ln(1 + sum_i C(a,i) E[q^i] b_i), i = 2..a, b_i the theorem's for the Gaussian."""
    i = np.arange(2, max(int(orders.max()), 2) + 1)
    powers = special.logsumexp(i[:, None] * np.log(rates) + np.log(chances), axis=1)
    loose = math.log(2) + (i - 1) * i / (2 * z * z)
    close = i[i <= _MOST_CENTRED]
    even = _log_even_moments(z)
    between = even[close // 2] + even[(close + 1) // 2]
    tight = np.minimum(loose[: len(close)], math.log(4) + 0.5 * between)
    loose[0] = tight[0]
    result = np.zeros(len(orders))
    for place, a in enumerate(orders):
        if a > 1:
            n = i[: a - 1]
            bounds = (tight if a <= _MOST_CENTRED else loose)[: a - 1]
            choose = special.gammaln(n + 1) + special.gammaln(a - n + 1)
            logs = bounds + powers[: a - 1] + special.gammaln(a + 1) - choose
            result[place] = np.logaddexp(0.0, special.logsumexp(logs))
    return result


def _log_even_moments(z: float) -> np.ndarray:
    """Logs of E_{x~N(0,z^2)}[(p/q - 1)^2k], k = 0.., where p/q = exp((2x-1) / 2z^2).

    As differences of p/q's own moments they would lose all digits where z is large.
    By the trapezoidal rule, which for whole powers errs by exp(-2 pi^2 z^2 / step^2).
    """
    powers = np.arange(0, _MOST_CENTRED + 1, 2)
    if z < 0.5:
        # Twice p/q's own moment is then less than what these are for.
        return np.full(len(powers), np.inf)
    # Powers of p/q move the bulk to the right, and small ones of what is left of it
    # to both sides.
    reach = (12 + math.sqrt(_MOST_CENTRED)) * z
    x = np.arange(-reach, reach + _MOST_CENTRED, z / 16)
    loss = (2 * x - 1) / (2 * z * z)
    with np.errstate(divide="ignore"):
        below = np.log(-np.expm1(np.minimum(loss, 0.0)))
    log_apart = np.where(loss > 0, _log_expm1(np.maximum(loss, 0.0)), below)
    log_weight = -0.5 * (x / z) ** 2 - math.log(16 * math.sqrt(2 * math.pi))
    with np.errstate(invalid="ignore"):
        terms = powers[:, np.newaxis] * log_apart
    return special.logsumexp(np.where(np.isnan(terms), 0.0, terms) + log_weight, axis=1)


def _log_expm1(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(x > 30, x, np.log(np.expm1(np.minimum(x, 30.0))))


# Hockey-stick ------------------------------------------------------------------


def gaussian_delta(epsilon: np.ndarray, z: float) -> np.ndarray:
    """The least delta for each epsilon.

    Args:
      epsilon: Any real numbers.
      z: Noise standard deviation over sensitivity; 0 gives delta 1.

    Returns:
      Phi(1/2z - eps z) - e^eps Phi(-1/2z - eps z), of epsilon's shape.

    Raises:
      ArgumentError: If z is negative or not finite.
    """
    check_nonnegative("z", z)
    epsilon = np.asarray(epsilon, dtype=np.float64)
    if z == 0:
        return np.ones_like(epsilon)
    a, b = 0.5 / z - epsilon * z, -0.5 / z - epsilon * z
    # The product is at most Phi(a), so its log cannot exceed 0.
    second = np.exp(np.minimum(epsilon + special.log_ndtr(b), 0.0))
    return np.maximum(special.ndtr(a) - second, 0.0)


# Of so little noise the larger term of `gaussian_delta` is all, and an upper bound.
_NEXT_TO_NONE = 1e-8


def gaussian_epsilon(z: float, target_delta: float) -> float:
    """The least epsilon >= 0 with gaussian_delta at most `target_delta`.

    Args:
      z: Noise standard deviation over sensitivity; for T rounds, that of one
        round over sqrt(T).
      target_delta: In (0, 1).

    Returns:
      Epsilon, to 1e-12 relative.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    from scipy import optimize  # half of this file's import, for one function

    check_positive("z", z)
    check_delta("target_delta", target_delta)

    def excess(e: float) -> float:
        return float(gaussian_delta(e, z)) - target_delta

    if z < _NEXT_TO_NONE:
        return float((0.5 / z - special.ndtri(target_delta)) / z)
    if excess(0.0) <= 0:
        return 0.0
    high = 0.5 / z**2 + math.sqrt(2 * math.log(1 / target_delta)) / z
    return float(optimize.brentq(excess, 0.0, high + 1.0, xtol=1e-14, rtol=1e-12))


# A normal variable is below 9 standard deviations, and not below -40, to a float's last
# digit; nor is e^-40 anything beside 1.
_SURELY, _NEVER = 9.0, -40.0


def _mean_delta(epsilon: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    """`gaussian_delta`, averaged over the variances of a spectrum."""
    total = np.zeros_like(epsilon)
    for v, log_p in zip(spectrum.variances, spectrum.log_probabilities, strict=True):
        z = math.sqrt(v)
        # Below and beyond delta is 1 or 0, but for e^epsilon of what is below 0.
        low = (0.5 / z - _SURELY) / z if z else math.inf
        high = (0.5 / z - _NEVER) / z if z else math.inf
        delta = (epsilon < low).astype(np.float64)
        is_below = (epsilon > _NEVER) & (epsilon < 0.0)
        near = (epsilon < high) & ((epsilon >= low) | is_below)
        delta[near] = gaussian_delta(epsilon[near], z)
        total += math.exp(log_p) * delta
    return total


def sampled_delta(
    epsilon: np.ndarray, q: float, spectrum: Spectrum, *, hidden: bool, remove: bool
) -> np.ndarray:
    """The least delta of Gaussian noise on a sum that holds the client by chance.

    Args:
      epsilon: Any real numbers.
      q: Probability that the client takes part, in (0, 1].
      spectrum: Noise variance in units of the squared sensitivity, known to the
        observer.
      hidden: Whether the observer does not learn if the client took part.
      remove: Which way to look: from with the client to without it, or back. It
        makes no difference where participation is seen.

    Returns:
      Of epsilon's shape; where hidden by subsampling's exact amplification (Balle,
      Barthe and Gaboardi 2018).
    """
    if not hidden:
        absent = (1 - q) * -np.expm1(np.minimum(epsilon, 0.0))
        return absent + q * _mean_delta(epsilon, spectrum)
    # Either way it is the plain mechanism's delta at another epsilon, times a factor.
    if remove:  # (1-q) N(0) + q N(1) against N(0)
        near, far = np.minimum(epsilon, 1.0), np.maximum(epsilon, 1.0)
        ratio = 1 + np.expm1(near) / q
        inside = ratio > 0
        # Its log where e^epsilon may overflow.
        beyond = far + np.log1p(-(1 - q) * np.exp(-far)) - math.log(q)
        shifted = np.where(epsilon > 1.0, beyond, np.log(np.where(inside, ratio, 1.0)))
        return np.where(inside, q * _mean_delta(shifted, spectrum), -np.expm1(near))
    # N(0) against (1-q) N(0) + q N(1)
    scale = 1 - (1 - q) * np.exp(np.minimum(epsilon, 700.0))
    inside = scale > 0
    shifted = epsilon + math.log(q) - np.log(np.where(inside, scale, 1.0))
    return np.where(inside, scale * _mean_delta(shifted, spectrum), 0.0)
