"""What no attack can beat: the bound that a mechanism puts on every observer.

A mechanism fixes how well anybody can tell two neighbouring data sets apart: its
curve of true against false positive rates (Dong, Roth and Su 2022). The same curve
bounds reconstruction: whoever guesses within reach of the truth with probability
kappa without looking does so with at most `power(kappa)` after (Balle, Cherubin and
Hayes 2022; Hayes, Mahloujifar and Balle 2023).
"""

import dataclasses
import math

import numpy as np
from scipy import integrate, special, stats

from tff_hdp.errors import check_count, check_nonnegative, require
from tff_hdp.privacy.composition import (
    COARSEST_GRID,
    Rounds,
    composed_pld,
    finest_grid,
)
from tff_hdp.privacy.mechanisms import Gaussian, Mechanism
from tff_hdp.privacy.sampled import SampledGaussian

_GRID = 1e-3
_SMALLEST_DELTA = 1e-9
# e^709 times any float that is not 0, but for denormal ones, is 1 or more, so a larger
# epsilon bounds no rate; and e^710 is beyond what a float holds.
_LARGEST_EPSILON = 709.0
# Up to which pairs are taken if losses are infinite more often than the least delta.
_FALLBACK_EPSILON = 100.0
_LINES = 2000
# Of an area that is added up.
_STEPS = 20_000


@dataclasses.dataclass(frozen=True)
class Tradeoff:
    """The largest true positive rate at every false positive rate.

    Attributes:
      mu: Where the curve is that of two normal distributions mu standard deviations
        apart; infinite where nothing is guaranteed, None where it is none of these.
      epsilons: Else [n] of pairs (epsilon, delta) that hold, both ways round.
      deltas: [n].
    """

    mu: float | None
    epsilons: np.ndarray | None = None
    deltas: np.ndarray | None = None

    def power(self, fpr: float | np.ndarray) -> np.ndarray:
        """No test with this false positive rate has a larger true positive rate.

        Args:
          fpr: In [0, 1], of any shape; or kappa, the chance of success of whoever
            guesses from the prior alone, for a bound on reconstruction.

        Returns:
          Rates of the same shape.

        Raises:
          ArgumentError: If one is not in [0, 1].
        """
        alpha = np.asarray(fpr, np.float64)
        wrong = alpha[~((alpha >= 0) & (alpha <= 1))]
        require(not wrong.size, "fpr", wrong[:1].tolist(), "rates in [0, 1]")
        if self.mu is not None:
            if math.isinf(self.mu):
                return np.ones_like(alpha)
            return stats.norm.cdf(stats.norm.ppf(alpha) + self.mu)
        a, e, d = alpha[..., np.newaxis], self.epsilons, self.deltas
        up = np.exp(np.minimum(e, _LARGEST_EPSILON)) * a + d
        down = 1 - np.exp(-e) * (1 - d - a)
        return np.minimum(1.0, np.minimum(up, down).min(-1))

    @property
    def auc(self) -> float:
        """The largest area under a curve; 1.25e-5 too large at most."""
        if self.mu is not None:
            return float(stats.norm.cdf(self.mu / math.sqrt(2)))
        # Where a curve is concave, the rule of midpoints is nowhere below its area.
        midpoints = (np.arange(_STEPS) + 0.5) / _STEPS
        # In parts: all of them by all lines are a gigabyte, and take twice as long.
        parts = midpoints.reshape(-1, _STEPS // 1000)
        return float(np.mean([self.power(part) for part in parts]))

    @property
    def advantage(self) -> float:
        """The largest true less false positive rate."""
        if self.mu is not None:
            return float(2 * stats.norm.cdf(self.mu / 2) - 1)
        # Each pair's two lines mirror each other, and meet where the rates add up to 1.
        missed = (1 - self.deltas) * special.expit(-self.epsilons)
        return float(1 - 2 * missed.max())

    def identification(self, candidates: int) -> float:
        """The largest chance to name the one of so many equally likely candidates.

        Raises:
          ArgumentError: If `candidates` is no whole number >= 1.
        """
        return float(self.power(1 / check_count("candidates", candidates, 1)))


def composed_tradeoff(rounds: Rounds) -> Tradeoff:
    """The bound on whoever sees rounds of several mechanisms.

    Full participation in Gaussian noise gives mu^2 = the sum of T / z^2 exactly; else
    the curve is that of all (epsilon, delta) of the privacy loss distribution, which is
    rounded pessimistically, and of its slack.

    Args:
      rounds: Mechanisms with how often each was run, each mechanism once.

    Raises:
      ArgumentError: If a mechanism has no PLD or too little noise for one.
    """
    if not rounds:
        return Tradeoff(0.0)
    slack = sum(count * mechanism.slack for mechanism, count in rounds)
    of_gaussians = [(_gaussian_multiplier(m), count) for m, count in rounds]
    if not slack and all(z is not None for z, _ in of_gaussians):
        return Tradeoff(math.hypot(*(math.sqrt(t) / z for z, t in of_gaussians)))
    why = next((m.no_pld for m, _ in rounds if m.no_pld), "")
    require(not why, "mechanism", why, "one with a PLD")
    grid = max(_GRID, finest_grid(rounds))
    require(
        grid <= COARSEST_GRID,
        "mechanism",
        f"one whose PLD needs a grid of {grid:g}",
        f"one of more noise, that needs {COARSEST_GRID:g} or less",
    )
    pld = composed_pld(rounds, grid)
    top = pld.get_epsilon_for_delta(_SMALLEST_DELTA)
    top = float(top) if math.isfinite(top) else _FALLBACK_EPSILON
    epsilons = np.linspace(0, min(max(top, 1.0), _LARGEST_EPSILON), _LINES)
    deltas = np.asarray(pld.get_delta_for_epsilon(epsilons))
    return Tradeoff(None, epsilons + slack, np.minimum(deltas * math.exp(slack), 1.0))


def orthogonal_identification(mu: float, candidates: int) -> float:
    """How often the best guess among orthogonal canaries of norm S is right.

    Args:
      mu: As in `Tradeoff`.
      candidates: M equally likely ones.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    candidates = check_count("candidates", candidates, 1)
    if mu == math.inf:
        return 1.0
    check_nonnegative("mu", mu)

    def density(t: float) -> float:
        others = stats.norm.cdf(t) ** (candidates - 1)
        return float(stats.norm.pdf(t - mu) * others)

    return float(integrate.quad(density, mu - 12, mu + 12, limit=200)[0])


def _gaussian_multiplier(mechanism: Mechanism) -> float | None:
    if isinstance(mechanism, Gaussian):
        return mechanism.noise_multiplier
    if isinstance(mechanism, SampledGaussian) and mechanism.q == 1.0:
        return mechanism.noise_multiplier
    return None
