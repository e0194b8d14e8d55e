"""What no attack can beat: the bound that a mechanism puts on every observer.

A mechanism fixes how well anybody can tell two neighbouring data sets apart: its
curve of true against false positive rates (Dong, Roth and Su 2022). The same curve
bounds reconstruction: whoever guesses within reach of the truth with probability
kappa without looking does so with at most `power(kappa)` after (Balle, Cherubin and
Hayes 2022; Hayes, Mahloujifar and Balle 2023).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import integrate, optimize, special, stats

from tff_hdp.errors import check_count, check_nonnegative, require
from tff_hdp.privacy.audit import checked_scores, clopper_pearson_lower
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
_THRESHOLDS = 24


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


def tradeoff(mechanism: Mechanism | None, rounds: int = 1) -> Tradeoff:
    """The bound on whoever sees some rounds of a mechanism; see `composed_tradeoff`.

    Args:
      mechanism: Of a round; None where nothing is guaranteed.
      rounds: T >= 0; 0 shows nothing.

    Raises:
      ArgumentError: If `rounds` is negative, or the mechanism has no PLD or too
        little noise for one.
    """
    if check_count("rounds", rounds) == 0:
        return Tradeoff(0.0)
    if mechanism is None:
        return Tradeoff(math.inf)
    return composed_tradeoff(frozenset({(mechanism, rounds)}))


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


@dataclasses.dataclass(frozen=True)
class Roc:
    """An attack's rates, with a band that holds for all thresholds at once.

    Attributes:
      fpr: [n] false positive rates, rising.
      tpr: [n] true positive rates.
      fpr_high: [n] upper ends of the band.
      tpr_low: [n] lower ends of the band.
      auc: Area under the curve of all scores.
      auc_error: Its standard error (Hanley and McNeil 1982).
      auc_low: The area is at least this: Clopper-Pearson on disjoint pairs of a score
        of either kind, with the band's confidence.
      confidence: Of the band.
    """

    fpr: np.ndarray
    tpr: np.ndarray
    fpr_high: np.ndarray
    tpr_low: np.ndarray
    auc: float
    auc_error: float
    auc_low: float
    confidence: float

    def refutes(self, bound: Tradeoff) -> bool:
        """Whether the attack does better than a bound allows."""
        return bool(np.any(self.tpr_low > bound.power(self.fpr_high)))

    @property
    def refuted_mu(self) -> float:
        """The largest mu that the area under the curve refutes; 0 for none.

        Whatever the scores, no test of two normal distributions mu apart has an area
        above Phi(mu / sqrt 2). Taking noise for Gaussian finds far more than counting
        events of probability delta (Nasr et al. 2023, "Tight auditing of differentially
        private machine learning").
        """
        return max(0.0, math.sqrt(2) * float(stats.norm.ppf(max(self.auc_low, 0.5))))


def roc(
    scores_in: Sequence[float],
    scores_out: Sequence[float],
    *,
    confidence: float = 0.999,
) -> Roc:
    """The curve of an attack from scores of independent trials.

    Thresholds are quantiles of the first quarter of the scores, rates are those of
    the rest, with Clopper-Pearson bounds that share the failure probability.

    Args:
      scores_in: Scores where the victim is in; higher means "in".
      scores_out: Scores where it is not.
      confidence: Of the band.

    Raises:
      ArgumentError: If there are fewer than 8 scores of a kind or one is not finite.
    """
    inside = checked_scores("scores_in", scores_in)
    outside = checked_scores("scores_out", scores_out)
    require(0.0 < confidence < 1.0, "confidence", confidence, "(0, 1)")
    area = area_under(inside, outside)
    error = _area_error(area, len(inside), len(outside))
    least = _least_area(inside, outside, 1 - confidence)
    first_in, first_out = len(inside) // 4, len(outside) // 4
    chosen = np.concatenate([inside[:first_in], outside[:first_out]])
    levels = np.linspace(0.02, 0.98, _THRESHOLDS)
    thresholds = np.unique(np.quantile(chosen, levels))[::-1]
    inside, outside = inside[first_in:], outside[first_out:]
    tail = (1 - confidence) / (2 * len(thresholds))
    hits = [int(np.sum(inside > t)) for t in thresholds]
    passes = [int(np.sum(outside <= t)) for t in thresholds]
    return Roc(
        fpr=1 - np.array(passes) / len(outside),
        tpr=np.array(hits) / len(inside),
        fpr_high=1
        - np.array([clopper_pearson_lower(k, len(outside), tail) for k in passes]),
        tpr_low=np.array([clopper_pearson_lower(k, len(inside), tail) for k in hits]),
        auc=area,
        auc_error=error,
        auc_low=least,
        confidence=confidence,
    )


def area_under(scores_in: Sequence[float], scores_out: Sequence[float]) -> float:
    """How often a score of the first kind is above one of the second; half for ties.

    Args:
      scores_in: [n], scores where the victim is in; higher means "in".
      scores_out: [m], scores where it is not.

    Raises:
      ArgumentError: If there are none of a kind, or one is not finite.
    """
    scores_in = checked_scores("scores_in", scores_in, least=1)
    scores_out = checked_scores("scores_out", scores_out, least=1)
    n, m = len(scores_in), len(scores_out)
    ranks = stats.rankdata(np.concatenate([scores_in, scores_out]))
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def area_interval(
    scores_in: Sequence[float], scores_out: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """The area of scores of independent trials, and an interval around it.

    In it are the areas from which the one seen is not too many of *their* standard
    errors away (Newcombe 2006), so that a few trials without an error leave room too.

    Args:
      scores_in: Scores where the victim is in, or of one kind; one or more.
      scores_out: Scores where it is not, or of the other.
      confidence: Of the interval.

    Returns:
      The area, and the interval's ends, in [0, 1].

    Raises:
      ArgumentError: If there are none of a kind, or one is not finite.
    """
    area = area_under(scores_in, scores_out)
    return area, *area_ends(area, len(scores_in), len(scores_out), confidence)


def area_ends(
    area: float, n: int, m: int, confidence: float = 0.95
) -> tuple[float, float]:
    """The ends of `area_interval`.

    Args:
      area: Under the curve of the scores.
      n: Scores of one kind, all of independent trials.
      m: Scores of the other.
      confidence: Of the interval.

    Raises:
      ArgumentError: If `confidence` is not in (0, 1).
    """
    require(0.0 < confidence < 1.0, "confidence", confidence, "(0, 1)")
    errors = float(stats.norm.ppf((1 + confidence) / 2))

    def beyond(true: float) -> float:
        return abs(true - area) - errors * _area_error(true, n, m)

    low = optimize.brentq(beyond, 0.0, min(area, 1 - 1e-9)) if area else 0.0
    high = optimize.brentq(beyond, max(area, 1e-9), 1.0) if area < 1 else 1.0
    return low, high


def _area_error(a: float, n: int, m: int) -> float:
    """The standard error of an area of n and m scores (Hanley and McNeil 1982)."""
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    spread = a * (1 - a) + (n - 1) * (q1 - a * a) + (m - 1) * (q2 - a * a)
    return math.sqrt(max(spread, 0.0) / (n * m))


def _least_area(inside: np.ndarray, outside: np.ndarray, tail: float) -> float:
    pairs = min(len(inside), len(outside))
    # Scores in order would make pairs that are not independent.
    order = np.random.default_rng(0)
    first, second = order.permutation(inside), order.permutation(outside)
    wins = int(np.sum(first[:pairs] > second[:pairs]))
    return clopper_pearson_lower(wins, pairs, tail)


def _gaussian_multiplier(mechanism: Mechanism) -> float | None:
    if isinstance(mechanism, Gaussian):
        return mechanism.noise_multiplier
    if isinstance(mechanism, SampledGaussian) and mechanism.q == 1.0:
        return mechanism.noise_multiplier
    return None
