"""Filters against closed forms and against noise that was really drawn."""

import numpy as np
import pytest
from scipy import stats

from tff_hdp.attacks.observation import Federation
from tff_hdp.attacks.roc import roc
from tff_hdp.attacks.trials import Records, Trials, clipped
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    PoissonSampling,
    configurations,
)
from tff_hdp.privacy.tradeoff import orthogonal_identification

CLIP = 0.5
# Records that have nothing in common, of the largest norm there is.
CANARIES = Records(CLIP**2 * np.eye(10))


def test_a_record_whose_squares_float32_lacks_is_clipped_to_the_norm():
    records = np.float32([[3e30, 4e30], [0.03, 0.04], [3.0, 4.0]])
    found = clipped(records, 0.5)
    np.testing.assert_allclose(found, [[0.3, 0.4], [0.03, 0.04], [0.3, 0.4]], rtol=1e-6)
    assert found.dtype == records.dtype


def vantage(mode="ldp", level=1, z=1.0, q=1.0):
    plan = configurations.CONFIGURATIONS[mode](
        zone_sizes=(2, 2),
        sampling=FullParticipation() if q == 1 else PoissonSampling((q, q)),
        clipping=Clipping(clip_norm=CLIP),
        noise_multiplier=z,
    )
    return Vantage(plan=plan, level=level)


def given(seen, **options):
    stddev = seen.noise_multiplier * CLIP
    common = {"vantage": seen, "stddev": stddev, "rng": np.random.default_rng(0)}
    return Trials(**{**common, **options})


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize(
    ("mode", "level"), [("ldp", 1), ("hdp", 0), ("cdp", "outside")]
)
def test_canaries_attain_the_bound(mode, level, rounds):
    seen = vantage(mode, level)
    trials = given(seen, records=CANARIES, rounds=rounds, trials=40_000)
    curve = roc(*trials.membership())
    bound = seen.bound(rounds)
    assert not curve.refutes(bound)
    assert curve.auc == pytest.approx(bound.auc, abs=5 * curve.auc_error)
    found = trials.identification(10).mean()
    expected = orthogonal_identification(bound.mu, 10)
    assert found == pytest.approx(expected, abs=5 * 0.5 / 200)


def sampled(seen, rounds):
    options = {"records": CANARIES, "trials": 40_000, "rounds": rounds}
    trials = given(seen, rng=np.random.default_rng(2), **options)
    return roc(*trials.sampled_membership())


@pytest.mark.parametrize(
    ("mode", "level"), [("ldp", 1), ("hdp", 0), ("cdp", "outside")]
)
def test_sampled_cohorts_stay_below_their_bound(mode, level):
    """Trials are seeded; canaries come close, whether who came is hidden or not."""
    seen = vantage(mode, level, q=0.3)
    bound, curve = seen.bound(4), sampled(seen, 4)
    assert not curve.refutes(bound)
    assert bound.auc - 0.02 < curve.auc < bound.auc + 5 * curve.auc_error
    # Accounted as if sampled a third as often, it would be refuted.
    assert curve.refutes(vantage(mode, level, q=0.1).bound(4))


def test_without_noise_only_a_client_that_never_came_is_hidden():
    """A tie needs four rounds without it, in both of the worlds compared."""
    curve = sampled(vantage("hdp", 1, q=0.3), 4)
    expected = 1 - 0.7**8 / 2
    assert curve.auc == pytest.approx(expected, abs=5 * curve.auc_error)


def test_one_hidden_round_in_closed_form():
    """A mixture of nothing and a shift by 1 / z, which a larger sum betrays."""
    q, z = 0.3, 1.3
    curve = sampled(vantage("cdp", "outside", z, q), 1)
    expected = (1 - q) / 2 + q * stats.norm.cdf(1 / (z * np.sqrt(2)))
    assert curve.auc == pytest.approx(expected, abs=5 * curve.auc_error)


def test_one_round_of_noising_clients_in_closed_form():
    """Two of a zone, of whom the other comes and noises too with probability q."""
    q, z = 0.8, 0.6
    seen = vantage("ldp", 2, z, q)
    assert seen.unknown_clients == 2
    curve = sampled(seen, 1)
    # Who comes scores N(+-mu^2 / 2, mu^2), mu being 1 / (z sqrt(noising)); else 0.
    by = {1 - q: 1 / z, q: 1 / (z * np.sqrt(2))}
    one = sum(p * stats.norm.cdf(mu / 2) for p, mu in by.items())
    both = sum(
        p * r * stats.norm.cdf(np.hypot(mu, nu) / 2)
        for p, mu in by.items()
        for r, nu in by.items()
    )
    expected = (1 - q) ** 2 / 2 + 2 * q * (1 - q) * one + q**2 * both
    assert curve.auc == pytest.approx(expected, abs=5 * curve.auc_error)


@pytest.mark.parametrize("rounds", [1, 4])
def test_records_of_unequal_norms_by_the_likelihood_ratio(rounds):
    """Scores are mu^2 (N(+-1/2, 1 / mu^2)) of two records' own mu, over the variance.

    A filter over the norm, <sum, c> / |c|, has .866 in place of .914.
    """
    mus = np.linspace(0.2, 4, 10)
    norms = mus * 0.5 / np.sqrt(rounds)
    options = {"records": Records(np.diag(norms**2)), "stddev": 0.5}
    seen = vantage("cdp", "outside")
    curve = roc(*given(seen, **options, trials=40_000, rounds=rounds).membership())
    expected = stats.norm.cdf(np.hypot(mus, mus[:, np.newaxis]) / 2).mean()
    assert curve.auc == pytest.approx(expected, abs=5 * curve.auc_error)


def test_candidates_of_unequal_norms_by_the_bayes_rule():
    """Three of ten with nothing in common, norms .3 to 1, in 20 rounds.

    Scores are +-T |c|^2 / 2 and sqrt(T) sd |c| times normal noise, the victim's own
    above; Gauss' and Hermite's rule integrates over it. Without T in the rule: .88.
    """
    rounds, norms = 20, np.linspace(0.3, 1, 10)
    options = {"records": Records(np.diag(norms**2)), "trials": 20_000}
    trials = given(vantage("cdp", "outside", 2.0), **options, rounds=rounds)
    found = trials.identification(3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    means, spread = rounds * norms**2 / 2, np.sqrt(rounds) * trials.stddev * norms
    expected = []
    for i in range(10):
        others = np.arange(10) != i
        own = means[i] + spread[i] * nodes[:, None]
        below = stats.norm.cdf((own + means[others]) / spread[others])
        # The mean product over two others: nine times eight ordered pairs.
        both = (below.sum(1) ** 2 - (below**2).sum(1)) / 72
        expected.append(weights @ both / weights.sum())
    # Five standard errors.
    assert found.mean() == pytest.approx(np.mean(expected), abs=5 * 0.5 / 141)


def test_whoever_is_there_is_as_likely_to_be_the_one():
    """All of ten are candidates, of whom the first alone can be told from others."""
    squares = np.full(10, 1e-12)
    squares[0] = 1.0
    options = {"records": Records(np.diag(squares)), "trials": 20_000}
    found = given(vantage("cdp", "outside", 1e-3), **options).identification(10)
    # Always if it is the first, else one of nine by lot.
    expected = 0.1 + 0.9 / 9
    assert found.mean() == pytest.approx(expected, abs=5 * 0.4 / 141)


@pytest.mark.parametrize("stddev", [0.0, 0.02])
@pytest.mark.parametrize("known", [True, False])
def test_rounds_of_the_same_clients_are_one_with_less_noise(stddev, known):
    """T sums of the same records say what one says with noise sqrt(T) smaller.

    Without noise the others hide the victim after many rounds as after one. Sixteen,
    since what is multiplied by powers of two is not rounded, and ties stay ties.
    """
    rng = np.random.default_rng(6)
    every = np.eye(260) + 0.3 * rng.normal(size=260)
    records = Records.of(every[:200], every[200:])
    seen = vantage("hdp" if stddev == 0 else "ldp", 0)
    found, scores = [], []
    for rounds in (1, 16):
        trials = given(
            seen,
            records=records,
            trials=500,
            others_known=known,
            rounds=rounds,
            stddev=stddev * np.sqrt(rounds),
            rng=np.random.default_rng(7),
        )
        found.append(trials.identification(5))
        in_it, _ = trials.membership()
        scores.append(in_it / rounds)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(*scores, rtol=1e-6, atol=1e-9)
    assert (found[0].mean() < 1.0) or known


def test_short_records_and_unknown_others_cost_the_attacker():
    rng = np.random.default_rng(3)
    records = Records.of(clipped(0.04 * rng.normal(size=(50, 100)), 0.3))
    seen = vantage("hdp", 0)
    areas = [
        roc(
            *given(
                seen, records=records, trials=20_000, others_known=known
            ).membership()
        ).auc
        for known in (True, False)
    ]
    # The norm 0.3 over noise of sqrt(2) S.
    mu = 0.3 / (np.sqrt(2) * CLIP)
    assert areas[0] == pytest.approx(stats.norm.cdf(mu / np.sqrt(2)), abs=0.015)
    assert areas[1] < areas[0] < seen.bound().auc


@pytest.mark.parametrize("stddev", [0.0, 0.02])
def test_others_that_vary_one_way_do_not_hide_the_rest(stddev):
    """Records of a large part in common and one of their own; eight others, unknown.

    The victim stands alone unless one of the other four candidates is among the eight:
    (1 - 4 / 400)^8 = 0.92, and half of the rest. Their mean alone leaves 0.30.
    """
    rng = np.random.default_rng(6)
    every = np.eye(460)
    every[:, 0] += 5 * rng.normal(size=460)
    plan = configurations.CONFIGURATIONS["hdp"](
        zone_sizes=(9, 9),
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=CLIP),
        noise_multiplier=1.0,
        secure_aggregation=True,
    )
    trials = given(
        Vantage(plan=plan, level=1),
        records=Records.of(every[:400], every[400:]),
        stddev=stddev,
        trials=4000,
        others_known=False,
        rng=rng,
    )
    assert trials.identification(5).mean() > 0.9


def test_without_noise_everybody_is_found():
    rng = np.random.default_rng(4)
    records = Records.of(rng.normal(size=(20, 30)))
    trials = given(vantage("hdp", 1), records=records, trials=500)
    assert trials.identification(20).all()
    with pytest.raises(ArgumentError, match="candidates is 21"):
        trials.identification(21)


@pytest.mark.parametrize("gram", [np.zeros([20, 20]), np.ones([20, 20])])
@pytest.mark.parametrize("mode", ["hdp", "ldp"])
def test_candidates_that_are_alike_are_guessed(gram, mode):
    """Six standard errors around one of ten."""
    trials = given(vantage(mode), records=Records(gram), trials=20_000)
    found = trials.identification(10).mean()
    assert found == pytest.approx(0.1, abs=6 * 0.3 / np.sqrt(20_000))


def test_trials_agree_with_rounds_that_were_run():
    """Scores of real rounds have the mean and deviation that trials draw."""
    seen = vantage("hdp", 0)
    record = np.zeros(4000)
    record[:5] = CLIP / np.sqrt(5)
    federation = Federation(seen.plan, [[4000]])
    silent = np.zeros(4000)
    held = federation.round([[record, silent], [silent, silent]]).seen_by(seen)
    assert (held - record).std() == pytest.approx(np.sqrt(2) * CLIP, rel=0.06)
    # Six standard errors of a score.
    assert abs(held @ record / CLIP - CLIP) < 6 * np.sqrt(2) * CLIP


def test_no_records_and_no_trials_are_refused():
    """By name; they were NumPy's errors."""
    seen = vantage("cdp", 0)
    with pytest.raises(ArgumentError, match="trials is 0; allowed"):
        given(seen, records=CANARIES, trials=0)
    with pytest.raises(ArgumentError, match="records is 0; allowed"):
        given(seen, records=Records.of(np.full([2, 3], np.nan)), trials=9)


def test_records_that_are_not_finite_are_left_out():
    assert len(Records.of(np.array([[1.0, np.nan], [1.0, 0.0]]))) == 1
