"""What an attack reached, by scores of independent trials: its curve, and the area.

Held against what no attack can beat: see `tff_hdp.privacy.tradeoff`.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

from tff_hdp.errors import require
from tff_hdp.privacy.audit import checked_scores, clopper_pearson_lower
from tff_hdp.privacy.tradeoff import Tradeoff

_THRESHOLDS = 24


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
    """

    fpr: np.ndarray
    tpr: np.ndarray
    fpr_high: np.ndarray
    tpr_low: np.ndarray
    auc: float
    auc_error: float
    auc_low: float

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
