"""Amplification by sampling, audited: what many rounds of real cohorts give away.

Every client is a canary with a coordinate of its own, in the data or not by a coin. The
attacker adds up its coordinate over all rounds and does not learn the cohorts. Cohorts
are `CohortSampler`'s; noise at the aggregator is audited elsewhere.
"""

import math

import numpy as np
import pytest

from tff_hdp.attacks.roc import roc
from tff_hdp.privacy import PoissonSampling, account, configurations
from tff_hdp.privacy.threat import AccountedRound, ThreatModel
from tff_hdp.privacy.tradeoff import composed_tradeoff
from tff_hdp.privacy.views import view
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.topology import Zoning

CLIENTS, ROUNDS, Q, Z = 20_000, 40, 0.2, 2.0
ZONES = 2


def plan_of(q):
    return configurations.c4(
        zone_sizes=(CLIENTS // ZONES,) * ZONES,
        sampling=PoissonSampling((q,) * ZONES),
        noise_multiplier=Z,
    )


def released(q):
    """A round as whoever gets the model sees a client."""
    run = AccountedRound(plan_of(q), ThreatModel())
    return view(run, "released_model", 3, 0, False)


def rounds_taken(plan, *, always_the_first=False):
    """[CLIENTS], in how many of the rounds each client takes part."""
    zoning = Zoning(
        tuple(map(str, range(CLIENTS))), tuple(i % ZONES for i in range(CLIENTS))
    )
    sampler = CohortSampler(plan=plan, zoning=zoning, entropy=11)
    taken = np.zeros(CLIENTS)
    for number in range(1, ROUNDS + 1):
        taken[sampler.draw(1 if always_the_first else number)] += 1
    return taken


def attack(taken):
    """The curve of who adds up its coordinate, in units of the clip norm."""
    rng = np.random.default_rng(12)
    included = rng.random(CLIENTS) < 0.5
    noise = rng.normal(0, Z * math.sqrt(ROUNDS), CLIENTS)
    scores = taken * included + noise
    return roc(scores[included], scores[~included])


@pytest.fixture(scope="module")
def bound():
    seen = view(
        AccountedRound(plan_of(Q), ThreatModel()), "released_model", 3, 0, False
    )
    assert "participation hidden" in seen.sampling
    return composed_tradeoff(frozenset({(seen.mechanism, ROUNDS)}))


@pytest.fixture(scope="module")
def curve():
    return attack(rounds_taken(plan_of(Q)))


def test_the_account_of_real_cohorts_is_not_refuted(curve, bound):
    assert not curve.refutes(bound)


def test_the_audit_is_not_blind(curve, bound):
    """It refutes an account of half the sampling, and comes near the right one."""
    less = composed_tradeoff(frozenset({(released(Q / 2).mechanism, ROUNDS)}))
    assert curve.refutes(less)
    assert curve.auc > 0.5 + 0.8 * (bound.auc - 0.5)


def test_one_cohort_for_all_rounds_is_caught(bound):
    """Nothing is hidden by a draw that is made once."""
    assert attack(rounds_taken(plan_of(Q), always_the_first=True)).refutes(bound)


def test_cohorts_twice_as_large_are_caught(bound):
    assert attack(rounds_taken(plan_of(2 * Q))).refutes(bound)


def test_amplification_is_what_is_audited():
    """Without it the same noise would be worth far less."""
    hidden = account(plan_of(Q), ROUNDS, 1e-5, ("pld",))
    known = account(
        plan_of(Q),
        ROUNDS,
        1e-5,
        ("pld",),
        threat=ThreatModel(participation_revealed=True),
    )
    worst = [max(r.epsilon_pld or 0 for r in rows) for rows in (hidden, known)]
    assert worst[1] > 2 * worst[0]
