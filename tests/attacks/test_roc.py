"""What attacks reach, against closed forms and simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from tff_hdp.attacks.roc import area_interval, area_under, roc
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.tradeoff import Tradeoff


def test_a_right_mechanism_is_not_refuted_and_a_wrong_one_is():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 8000))
    bound = Tradeoff(1.0)
    right = roc(1 + noise[0], noise[1])
    assert not right.refutes(bound)
    assert right.auc == pytest.approx(bound.auc, abs=4 * right.auc_error)
    assert right.auc_error == pytest.approx(0.0039, abs=5e-4)
    # Half of the noise was forgotten.
    assert roc(1 + noise[0] / 2, noise[1] / 2).refutes(bound)


def test_band_holds_as_often_as_it_says():
    rng = np.random.default_rng(3)
    bound = Tradeoff(1.0)
    refuted = sum(
        roc(1 + rng.normal(size=200), rng.normal(size=200), confidence=0.9).refutes(
            bound
        )
        for _ in range(200)
    )
    assert refuted <= 20


@pytest.mark.parametrize("scores", [[1.0] * 7, [0.0] * 8 + [np.nan]])
def test_bad_scores_are_refused(scores):
    with pytest.raises(ArgumentError, match="scores_in"):
        roc(scores, [0.0] * 8)


@pytest.mark.parametrize("scores", [[], [0.0, np.nan], [np.inf]])
@pytest.mark.parametrize("area", [area_under, area_interval])
def test_an_area_of_what_is_no_score_is_refused(area, scores):
    """What is not a number ranked above all that are."""
    with pytest.raises(ArgumentError, match=r"^scores_in"):
        area(scores, [0.0])
    with pytest.raises(ArgumentError, match=r"^scores_out"):
        area([0.0], scores)
    with pytest.raises(ArgumentError, match="confidence is 1"):
        area_interval([0.0], [1.0], 1.0)


@pytest.mark.parametrize(
    ("mu", "scores", "part"), [(0.7, 300, 0.3), (3.0, 100, 0.5), (6.0, 300, 0.4)]
)
def test_the_area_refutes_a_good_part_of_mu_and_never_more(mu, scores, part):
    """200 attacks on Gaussian noise, so many scores a side, at 99.9 %."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        inside, outside = rng.normal(mu, 1, scores), rng.normal(0, 1, scores)
        found.append(roc(np.sort(inside), np.sort(outside)).refuted_mu)
    assert sum(value > mu for value in found) <= 1
    assert part * mu < np.mean(found) < mu


def test_an_attack_without_errors_refutes_what_its_trials_can():
    perfect = roc(np.full(300, 8.0), np.zeros(300))
    assert perfect.refuted_mu == pytest.approx(
        math.sqrt(2) * stats.norm.ppf(0.001 ** (1 / 300))
    )


def test_a_blind_attack_refutes_nothing():
    blind = roc(np.arange(300.0), np.arange(300.0) + 0.5)
    assert blind.refuted_mu == 0.0
