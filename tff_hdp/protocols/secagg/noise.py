"""Integer noise that clients add under the mask: discrete Gaussians, exactly.

A Gaussian rounded into fixed point is no longer Gaussian; the discrete Gaussian
of Canonne, Kamath and Steinke (2020) is made for it. Each of k clients adds its
share of variance sigma^2, so that the sum carries k sigma^2 (Kairouz, Liu and
Steinke, 2021, who also bound how far a sum of discrete Gaussians is from one).
"""

import decimal
import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from tff_hdp.errors import check_count, check_nonnegative, check_number
from tff_hdp.protocols.secagg.masks import SecureRandom

# Where a uniform number is nearer than this to a probability that was computed
# in floating point, the probability is computed to 60 digits.
_MARGIN = 2.0**-44
_MAX_SIGMA = 2.0**40
# What sums of narrower noise are is not bounded by the theorem, nor by its formula.
LEAST_SIGMA = 0.5


def sum_gap(sigma: float, num_clients: int) -> float:
    """How far a sum of discrete Gaussians is from one, per coordinate.

    The tau of Kairouz, Liu and Steinke (2021), Theorem 1: the log ratio of the
    two distributions is at most tau everywhere on the integers, where
    tau = 10 sum_{j=1}^{k-1} exp(-2 pi^2 sigma^2 j / (j + 1)).

    Args:
      sigma: Each client's share, in integer steps, at least 1/2: of less it is not so.
      num_clients: k.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    allowed = f"a finite number >= {LEAST_SIGMA}"
    sigma = check_number("sigma", sigma, allowed, lambda x: LEAST_SIGMA <= x < math.inf)
    num_clients = check_count("num_clients", num_clients, 1)
    j = np.arange(1, num_clients)
    return float(10 * np.exp(-2 * np.pi**2 * sigma**2 * j / (j + 1)).sum())


def concentrated_epsilon(
    sensitivity: float, sigma: float, num_clients: int, size: int
) -> float:
    """Epsilon such that the noised sum is (1/2) epsilon^2-concentrated DP.

    Kairouz, Liu and Steinke (2021), Theorem 1: the Renyi divergence of order
    alpha of neighbouring sums is at most alpha epsilon^2 / 2, with

    epsilon = min(sqrt(D^2 / (k sigma^2) + tau d / 2),
                  D / (sqrt(k) sigma) + tau sqrt(d)).

    Args:
      sensitivity: D, the L2 norm in integer steps by which one client can move
        the sum; `FixedPoint.rounded_norm` over the step if it comes or goes.
      sigma: Each client's share, as in `sum_gap`.
      num_clients: k, the survivors whose shares count.
      size: d, coordinates.

    Raises:
      ArgumentError: As `sum_gap`.
    """
    tau = sum_gap(sigma, num_clients)
    sensitivity = check_nonnegative("sensitivity", sensitivity)
    size = check_count("size", size, 1)
    ratio = sensitivity / (math.sqrt(num_clients) * sigma)
    return min(math.sqrt(ratio**2 + tau * size / 2), ratio + tau * math.sqrt(size))


def discrete_gaussian(
    sigma: float, size: int, *, random: SecureRandom | None = None
) -> np.ndarray:
    """Samples P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers.

    Canonne, Kamath and Steinke (2020), Algorithms 1 to 3, on vectors. Every
    decision is exact but for 2^-190: it is taken in floating point only where
    that cannot change it.

    Args:
      sigma: The parameter, in 0..2^40; the standard deviation is at most this.
      size: How many samples.
      random: Source of uniform bits; None for a fresh secure one.

    Returns:
      [size] int64.

    Raises:
      ArgumentError: If `sigma` or `size` is out of range.
    """
    sigma = check_number("sigma", sigma, "0..2^40", lambda x: 0 <= x <= _MAX_SIGMA)
    size = check_count("size", size)
    if sigma == 0:
        return np.zeros(size, np.int64)
    random = SecureRandom(os.urandom(32)) if random is None else random
    t = math.floor(sigma) + 1
    variance = Fraction(sigma) ** 2

    def exact_exponent(y: int) -> Fraction:
        return (abs(y) - variance / t) ** 2 / (2 * variance)

    found = np.empty(0, np.int64)
    while len(found) < size:
        y = _discrete_laplace(t, 2 * (size - len(found)) + 16, random)
        with np.errstate(over="ignore"):  # Infinite where sigma is tiny, and right.
            exponents = ((np.abs(y) - sigma * (sigma / t)) / sigma) ** 2 / 2
        accept = _bernoulli_exp(exponents, lambda i, y=y: exact_exponent(y[i]), random)
        found = np.concatenate([found, y[accept]])
    return found[:size]


def _discrete_laplace(t: int, tries: int, random: SecureRandom) -> np.ndarray:
    """Samples of P(x) proportional to exp(-|x| / t); fewer than were tried."""
    u = random.below(t, tries)
    u = u[_bernoulli_exp(u / t, lambda i, u=u: Fraction(int(u[i]), t), random)]
    v = np.zeros(len(u), np.int64)
    going = np.arange(len(u))
    while len(going):
        ones = np.ones(len(going))
        going = going[_bernoulli_exp(ones, lambda _: Fraction(1), random)]
        v[going] += 1
    x = u + t * v
    negative = random.below(2, len(x)).astype(bool)
    # Zero would otherwise come up with either sign, twice as often as it should.
    keep = ~(negative & (x == 0))
    return np.where(negative, -x, x)[keep]


def _bernoulli_exp(
    exponents: np.ndarray,
    exact: Callable[[int], Fraction],
    random: SecureRandom,
) -> np.ndarray:
    """True with probability exp(-exponent), element by element.

    Args:
      exponents: [n] float64 >= 0, right to a relative 2^-45.
      exact: The exact exponent of an index, for the rare close calls.
      random: Source of uniform bits.
    """
    drawn = random.uint64(len(exponents))
    uniform = drawn * 2.0**-64
    probability = np.exp(-exponents)
    result = uniform < probability
    for i in np.flatnonzero(np.abs(uniform - probability) <= _MARGIN):
        more = random.uint64(2)
        bits = int(drawn[i]) << 128 | int(more[0]) << 64 | int(more[1])
        result[i] = _below_exp(bits, exact(int(i)))
    return result


def _below_exp(bits: int, exponent: Fraction) -> bool:
    """Whether bits / 2^192 < exp(-exponent)."""
    with decimal.localcontext() as context:
        context.prec = 60
        power = -decimal.Decimal(exponent.numerator) / exponent.denominator
        return decimal.Decimal(bits) / 2**192 < power.exp()
