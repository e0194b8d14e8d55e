"""Empirical lower bounds on epsilon from canaries, to hold against a claim.

Paired runs repeat a release with and without one canary client; one-run
auditing (Steinke, Nasr and Jagielski 2023) puts many canaries, each in or out
by a coin, into a single release. Both bounds hold with the stated confidence
whatever the mechanism, so a bound above the claimed epsilon proves the claim
wrong; one below proves nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import optimize, stats

from tff_hdp.errors import (
    ArgumentError,
    check_bool,
    check_count,
    check_nonnegative,
    entries,
    require,
)

# The largest bound that is searched for.
_LARGEST = 100.0
# How near that search comes; ten times it below what was found, the bound is safe.
_NEAR = 1e-9


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes:
      lower_bound: Epsilon is at least this, with the given confidence.
      claimed: The epsilon claimed, by an account.
      delta: The claim's delta.
      confidence: Probability that the bound holds.
      evidence: Counts behind the bound, in words.
    """

    lower_bound: float
    claimed: float
    delta: float
    confidence: float
    evidence: str

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower_bound > self.claimed

    def __str__(self) -> str:
        verdict = "REFUTED" if self.violated else "not refuted"
        return (
            f"claim of epsilon {self.claimed:.4g} at delta {self.delta:g} {verdict}: "
            f"epsilon is at least {self.lower_bound:.4g} with confidence "
            f"{self.confidence:g} ({self.evidence})"
        )


# Paired runs ------------------------------------------------------------------


def paired_audit(
    run_once: Callable[[bool], float],
    *,
    runs: int,
    claimed: float,
    delta: float,
    confidence: float = 0.95,
) -> AuditResult:
    """Audits by repeating a release with and without the canary.

    Args:
      run_once: Runs the mechanism with (True) or without (False) the canary, on
        fresh randomness, and scores the output; higher means "with".
      runs: Runs of each; a quarter of them picks the threshold.
      claimed: The epsilon claimed.
      delta: The claim's delta.
      confidence: Of the bound.

    Raises:
      ArgumentError: If an argument is out of range or a score is not finite.
    """
    check_count("runs", runs, 8)
    scores_in = [run_once(True) for _ in range(runs)]
    scores_out = [run_once(False) for _ in range(runs)]
    return paired_audit_scores(
        scores_in, scores_out, claimed=claimed, delta=delta, confidence=confidence
    )


def paired_audit_scores(
    scores_in: Sequence[float],
    scores_out: Sequence[float],
    *,
    claimed: float,
    delta: float,
    confidence: float = 0.95,
) -> AuditResult:
    """As `paired_audit`, from scores of independent runs.

    The first quarter of the scores picks the threshold, the rest are counted,
    so the choice costs no confidence.

    Args:
      scores_in: Scores of runs with the canary.
      scores_out: Scores of runs without it.
      claimed: The epsilon claimed.
      delta: The claim's delta.
      confidence: Of the bound.

    Raises:
      ArgumentError: If an argument is out of range or a score is not finite.
    """
    check_nonnegative("claimed", claimed)
    _check(delta, confidence)
    inside = checked_scores("scores_in", scores_in)
    outside = checked_scores("scores_out", scores_out)
    first_in, first_out = len(inside) // 4, len(outside) // 4
    threshold = _best_threshold(inside[:first_in], outside[:first_out], delta)
    rest_in, rest_out = inside[first_in:], outside[first_out:]
    hits, alarms = int(np.sum(rest_in > threshold)), int(np.sum(rest_out > threshold))
    bound = paired_lower_bound(
        true_positives=hits,
        positives=len(rest_in),
        false_positives=alarms,
        negatives=len(rest_out),
        delta=delta,
        confidence=confidence,
    )
    return AuditResult(
        lower_bound=bound,
        claimed=claimed,
        delta=delta,
        confidence=confidence,
        evidence=f"{hits} of {len(rest_in)} runs with and {alarms} of {len(rest_out)} "
        "without the canary above the threshold",
    )


def paired_lower_bound(
    *,
    true_positives: int,
    positives: int,
    false_positives: int,
    negatives: int,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Epsilon's lower bound from the error rates of a fixed test.

    Under (epsilon, delta)-DP TPR <= e^epsilon FPR + delta, and likewise for the
    complements. Clopper-Pearson bounds both rates, each with half of the
    failure probability.

    Args:
      true_positives: Runs with the canary that the test accepts.
      positives: Runs with the canary.
      false_positives: Runs without it that the test accepts.
      negatives: Runs without it.
      delta: The claim's delta.
      confidence: Of the bound.

    Returns:
      The bound, >= 0.

    Raises:
      ArgumentError: If a count is out of range.
    """
    _check(delta, confidence)
    for name, count, total in (
        ("true_positives", true_positives, positives),
        ("false_positives", false_positives, negatives),
    ):
        require(total >= 1 and 0 <= count <= total, name, count, f"0..{total}")
    tail = (1 - confidence) / 2
    tpr = clopper_pearson_lower(true_positives, positives, tail)
    tnr = clopper_pearson_lower(negatives - false_positives, negatives, tail)
    return max(0.0, _log_ratio(tpr - delta, 1 - tnr), _log_ratio(tnr - delta, 1 - tpr))


def clopper_pearson_lower(successes: int, trials: int, tail: float) -> float:
    """What a rate is at least, but for a probability of `tail`.

    Args:
      successes: Seen in `trials`.
      trials: >= 1.
      tail: In (0, 1).
    """
    if successes == 0:
        return 0.0
    return float(stats.beta.ppf(tail, successes, trials - successes + 1))


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > 0 else -math.inf


def _best_threshold(inside: np.ndarray, outside: np.ndarray, delta: float) -> float:
    """The threshold with the largest bound on these scores (half an error added)."""
    values = np.unique(np.concatenate([inside, outside]))
    candidates = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    tpr = np.array([np.mean(inside > c) for c in candidates])
    fpr = np.array([np.mean(outside > c) for c in candidates])
    slack = 2.0 / min(len(inside), len(outside))

    def strength(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(a - slack - delta, 1e-9) / (b + slack))

    best = np.maximum(strength(tpr, fpr), strength(1 - fpr, 1 - tpr))
    return float(candidates[int(np.argmax(best))])


# One run ----------------------------------------------------------------------


def one_run_audit(
    scores: Sequence[float],
    included: Sequence[bool],
    *,
    guesses: int,
    claimed: float,
    delta: float,
    confidence: float = 0.95,
) -> AuditResult:
    """Audits one release that holds many independent canaries.

    Args:
      scores: One per canary, computed from the release; higher means "in".
      included: Whether each canary was in, each by its own fair coin.
      guesses: How many canaries to guess: half of them the highest scores as in,
        half the lowest as out. To be fixed before looking at the scores.
      claimed: The epsilon claimed.
      delta: The claim's delta.
      confidence: Of the bound.

    Raises:
      ArgumentError: If an argument is out of range, a score is not finite or a coin
        no truth value.
    """
    check_nonnegative("claimed", claimed)
    _check(delta, confidence)
    values = checked_scores("scores", scores)
    coins = np.asarray(entries("included", included, check_bool))
    allowed = f"{values.size} entries, as scores"
    require(coins.shape == values.shape, "included", f"{coins.size} entries", allowed)
    ok = 2 <= guesses <= values.size and guesses % 2 == 0
    require(ok, "guesses", guesses, f"even numbers from 2 to {values.size}")
    order = np.argsort(values, kind="stable")
    half = guesses // 2
    correct = int(np.sum(coins[order[-half:]]) + np.sum(~coins[order[:half]]))
    bound = one_run_lower_bound(
        correct=correct,
        guesses=guesses,
        canaries=values.size,
        delta=delta,
        confidence=confidence,
    )
    return AuditResult(
        lower_bound=bound,
        claimed=claimed,
        delta=delta,
        confidence=confidence,
        evidence=f"{correct} of {guesses} guesses right among {values.size} canaries",
    )


def one_run_lower_bound(
    *, correct: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95
) -> float:
    """The largest epsilon under which so many right guesses are too unlikely.

    Args:
      correct: Right guesses.
      guesses: Canaries guessed.
      canaries: Canaries in all.
      delta: The claim's delta.
      confidence: Of the bound.

    Returns:
      The bound, >= 0; 100 where it is more.

    Raises:
      ArgumentError: If a count is out of range.
    """
    _check(delta, confidence)
    require(0 <= correct <= guesses, "correct", correct, f"0..{guesses}")
    require(1 <= guesses <= canaries, "guesses", guesses, f"1..{canaries}")

    def excess(epsilon: float) -> float:
        chance = one_run_chance(correct, guesses, canaries, epsilon, delta)
        return chance - (1 - confidence)

    if excess(0.0) >= 0:
        return 0.0
    if excess(_LARGEST) < 0:
        return _LARGEST
    root = optimize.brentq(excess, 0.0, _LARGEST, xtol=_NEAR)
    return max(0.0, float(root) - 10 * _NEAR)


def one_run_chance(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Upper bound on P(at least `correct` right guesses) under (epsilon, delta)-DP.

    Theorem 5.2 of Steinke et al.: with p = e^eps / (1 + e^eps) each guess is
    right no more often than a p-coin, and delta adds at most
    2 m delta max_i P(v > Bin(r, p) >= v - i) / i.

    Args:
      correct: v.
      guesses: r.
      canaries: m.
      epsilon: >= 0.
      delta: In [0, 1).

    Returns:
      The bound, at most 1.
    """
    p = 1 / (1 + math.exp(-epsilon))
    chance = float(stats.binom.sf(correct - 1, guesses, p))
    if delta > 0 and correct > 0:
        below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, p))
        alpha = float(np.max(below / np.arange(1, correct + 1)))
        chance += 2 * canaries * delta * alpha
    return min(chance, 1.0)


def _check(delta: float, confidence: float) -> None:
    require(0.0 <= delta < 1.0, "delta", delta, "[0, 1)")
    require(0.0 < confidence < 1.0, "confidence", confidence, "(0, 1)")


def checked_scores(name: str, scores: Sequence[float], least: int = 8) -> np.ndarray:
    """Scores as float64 [n]; raises ArgumentError if there are fewer, or not finite."""
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, scores, "finite scores") from error
    many = values.ndim == 1 and values.size >= least
    require(many, f"{name}.shape", values.shape, f"{least} scores or more")
    bad = values[~np.isfinite(values)]
    require(not bad.size, name, bad[:1].tolist(), "finite scores")
    return values
