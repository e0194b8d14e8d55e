import math

import numpy as np
import pytest
from scipy import stats

from tff_hdp.privacy.audit import (
    one_run_audit,
    one_run_chance,
    one_run_lower_bound,
    paired_audit,
    paired_audit_scores,
    paired_lower_bound,
)
from tff_hdp.privacy.divergences import gaussian_epsilon

DELTA = 1e-5


def randomized_response(epsilon, rng):
    """P(1 | in) = e^eps / (1 + e^eps): the pure-DP mechanism that both audits fit."""
    p = 1 / (1 + math.exp(-epsilon))
    return lambda inside: float((rng.random() < p) == inside)


def test_paired_bound_is_clopper_pearson():
    bound = paired_lower_bound(
        true_positives=90,
        positives=100,
        false_positives=10,
        negatives=100,
        delta=0.0,
    )
    # Clopper-Pearson by its definition: the rate at which 90 or more of 100 has
    # probability 2.5 %.
    assert stats.binom.sf(89, 100, _solve(89)) == pytest.approx(0.025)
    rate = _solve(89)
    assert bound == pytest.approx(math.log(rate / (1 - rate)))


def _solve(k):
    low, high = 0.5, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if stats.binom.sf(k, 100, middle) < 0.025 else (low, middle)
        )
    return low


def test_paired_bound_of_both_directions_is_symmetric():
    a = paired_lower_bound(
        true_positives=80, positives=100, false_positives=5, negatives=100, delta=0.0
    )
    b = paired_lower_bound(
        true_positives=95, positives=100, false_positives=20, negatives=100, delta=0.0
    )
    assert a == pytest.approx(b)


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_paired_bound_holds_and_is_not_far(epsilon):
    rng = np.random.default_rng(3)
    run_once = randomized_response(epsilon, rng)
    bounds = [
        paired_audit(run_once, runs=1000, claimed=epsilon, delta=0.0).lower_bound
        for _ in range(60)
    ]
    # 95 % confidence: at most 7 of 60 above has probability 99 % and more.
    assert sum(b > epsilon for b in bounds) <= 7
    assert np.median(bounds) > 0.5 * epsilon


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_one_run_bound_holds_and_is_not_far(epsilon):
    rng = np.random.default_rng(4)
    p = 1 / (1 + math.exp(-epsilon))
    bounds = []
    for _ in range(60):
        included = rng.random(1000) < 0.5
        answers = np.where(rng.random(1000) < p, included, ~included)
        # Ties are broken by a coin, as all scores are 0 or 1.
        scores = answers + rng.uniform(0, 0.5, 1000)
        result = one_run_audit(
            scores, included, guesses=1000, claimed=epsilon, delta=0.0
        )
        bounds.append(result.lower_bound)
    assert sum(b > epsilon for b in bounds) <= 7
    assert np.median(bounds) > 0.7 * epsilon


def test_one_run_chance_without_delta_is_a_binomial_tail():
    p = 1 / (1 + math.exp(-0.7))
    expected = sum(stats.binom.pmf(k, 40, p) for k in range(33, 41))
    assert one_run_chance(33, 40, 100, 0.7, 0.0) == pytest.approx(expected)


def test_one_run_delta_term_by_brute_force():
    p = 1 / (1 + math.exp(-0.7))
    pmf = stats.binom.pmf(np.arange(41), 40, p)
    alpha = max(pmf[max(0, 33 - i) : 33].sum() / i for i in range(1, 34))
    expected = pmf[33:].sum() + 2 * 100 * 1e-4 * alpha
    assert one_run_chance(33, 40, 100, 0.7, 1e-4) == pytest.approx(expected)


def test_one_run_bound_falls_with_delta_and_stops_at_zero():
    few = one_run_lower_bound(correct=90, guesses=100, canaries=1000, delta=0.0)
    more = one_run_lower_bound(correct=90, guesses=100, canaries=1000, delta=1e-4)
    assert 0 < more < few
    assert one_run_lower_bound(correct=50, guesses=100, canaries=100, delta=0.0) == 0


@pytest.mark.parametrize("z", [1.5, 3.0])
def test_gaussian_noise_is_not_refuted_and_missing_noise_is(z):
    rng = np.random.default_rng(5)
    claimed = gaussian_epsilon(z, DELTA)
    included = rng.random(2000) < 0.5
    noise = rng.normal(size=2000)
    for scale, refuted in ((z, False), (0.05 * z, True)):
        result = one_run_audit(
            included + scale * noise,
            included,
            guesses=400,
            claimed=claimed,
            delta=DELTA,
        )
        assert result.violated == refuted
        assert ("REFUTED" in str(result)) == refuted
        assert ("not refuted" in str(result)) != refuted
        result = paired_audit(
            lambda inside, scale=scale: inside + scale * rng.normal(),
            runs=1000,
            claimed=claimed,
            delta=DELTA,
        )
        assert result.violated == refuted


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: paired_audit(float, runs=3, claimed=1, delta=0), "runs is 3"),
        (
            lambda: paired_audit_scores([math.nan] * 9, [0.0] * 9, claimed=1, delta=0),
            "scores_in is nan; allowed: finite",
        ),
        (
            lambda: one_run_audit([0.0] * 9, [True] * 8, guesses=2, claimed=1, delta=0),
            "included is 8 entries; allowed: 9",
        ),
        (
            lambda: one_run_audit(
                [0.0] * 9, ["False"] * 9, guesses=2, claimed=1, delta=0
            ),
            r"included\[0\] is 'False'; allowed: True or False",
        ),
        (
            lambda: paired_audit_scores(["a"] * 9, [0.0] * 9, claimed=1, delta=0),
            "scores_in is a,a,a.*; allowed: finite scores",
        ),
        (
            lambda: one_run_audit([0.0] * 9, [True] * 9, guesses=3, claimed=1, delta=0),
            "guesses is 3",
        ),
        (
            lambda: one_run_lower_bound(correct=5, guesses=4, canaries=9, delta=0),
            "correct is 5",
        ),
        (
            lambda: one_run_lower_bound(correct=1, guesses=4, canaries=9, delta=1.0),
            "delta is 1.0",
        ),
        (
            lambda: paired_audit(float, runs=9, claimed=-1, delta=0),
            "claimed is -1",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
