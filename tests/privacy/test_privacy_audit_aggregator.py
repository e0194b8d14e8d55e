"""The audit on the real aggregator, run by TFF's worker, right and broken.

Every client of two zones is a canary that owns one coordinate of the update; a
fair coin decides whether its update is there or zero. One release then says how
well each coin can be guessed.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_hdp.aggregators import (
    WEIGHT_TYPE,
    HierarchicalMeanFactory,
    LevelQueries,
)
from tff_hdp.aggregators.zoned import ZonedMean
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    NoisePlan,
    account,
    configurations,
)
from tff_hdp.privacy.audit import one_run_audit

pytestmark = pytest.mark.usefixtures("native_context")
CANARIES, GUESSES, CLIP, DELTA = 600, 150, 0.5, 1e-5
SIZES = (CANARIES // 3, CANARIES - CANARIES // 3)
COMMON = {
    "zone_sizes": SIZES,
    "sampling": FullParticipation(),
    "clipping": Clipping(norm=CLIP),
    "neighbours": "zero_out",
}


def release(plan, included, length, queries=None):
    """One release; each canary pushes its coordinate by `length`."""
    process = HierarchicalMeanFactory(plan, queries=queries).create(
        tff.TensorType(np.float32, [CANARIES]), WEIGHT_TYPE
    )
    updates = length * np.eye(CANARIES, dtype=np.float32) * np.c_[included]
    profiles = [
        collections.OrderedDict(
            weight=1.0, zone=int(i >= SIZES[0]), carries_noise=plan.client_noise > 0
        )
        for i in range(CANARIES)
    ]
    output = process.next(process.initialize(), list(updates), profiles)
    return np.asarray(output.result)


def test_the_noise_accounted_is_the_noise_added():
    """Standard deviation of a release of zeros, at every level at once."""
    size = 40_000
    plan = NoisePlan(
        zone_sizes=(2, 3, 4),
        sampling=FullParticipation(),
        clipping=Clipping(norm=CLIP),
        client_noise=0.7,
        noising_clients=(2, 0, 1),
        zone_noise=(0.0, 1.5, 0.5),
        upper_levels=(Level((0, 0, 1), (0.9, 0.0)),),
        server_noise=1.1,
        mixing=(0.2, 0.5, 0.3),
    )
    mean = ZonedMean(plan, tf.TensorSpec([size], tf.float32))
    state = mean.initial_state()
    sent = mean.client_state(state)
    total = None
    for zone, (n, noising) in enumerate(
        zip(plan.zone_sizes, plan.noising_clients, strict=True)
    ):
        for i in range(n):
            profile = {
                "weight": tf.constant(1.0),
                "zone": tf.constant(zone),
                "carries_noise": tf.constant(i < noising),
            }
            contribution = mean.contribution(sent, tf.zeros([size]), profile)
            if total is None:
                total = mean.zero(contribution)
            total = mean.add(total, contribution, tf.constant(zone))
    found = mean.release(state, total)[0].numpy().std()
    rows = account(plan, 1, DELTA, ())
    for row in rows:
        if row.observer == "released_model":
            sensitivity = plan.released_sensitivities[row.zone]
            expected = row.noise_multiplier * sensitivity
            # Five standard errors of a standard deviation from 40,000 draws.
            assert found == pytest.approx(expected, rel=0.018)


def audit(plan, *, length=CLIP, queries=None, seed=0):
    rows = account(plan, 1, DELTA, ("pld",))
    row = next(r for r in rows if r.observer == "released_model")
    claimed = row.epsilon_pld
    assert claimed < 3
    included = np.random.default_rng(seed).random(CANARIES) < 0.5
    scores = release(plan, included, length, queries)
    return one_run_audit(
        scores, included, guesses=GUESSES, claimed=claimed, delta=DELTA
    )


def central(z):
    return configurations.CONFIGURATIONS["cdp"](noise_multiplier=z, **COMMON)


@pytest.mark.parametrize(
    "plan",
    [
        central(1.6),
        configurations.CONFIGURATIONS["hdp"](noise_multiplier=1.2, **COMMON),
        configurations.CONFIGURATIONS["ldp"](noise_multiplier=0.1, **COMMON),
        NoisePlan(**COMMON, zone_noise=(1.0, 1.0), server_noise=1.0),
    ],
    ids=["cdp", "hdp", "ldp", "mixed"],
)
def test_the_right_aggregator_is_not_refuted(plan):
    result = audit(plan)
    assert not result.violated, str(result)
    # The audit is not blind: it finds some leak where there is some.
    assert result.lower_bound > 0.05


@pytest.mark.parametrize(
    ("length", "query"),
    [
        (CLIP, tfp.GaussianSumQuery(CLIP, 0.0)),
        (CLIP, tfp.GaussianSumQuery(CLIP, 1.6 * CLIP / CANARIES)),
        (100 * CLIP, tfp.GaussianSumQuery(1e6, 1.6 * CLIP)),
    ],
    ids=["noise forgotten", "noise divided by the wrong count", "clip skipped"],
)
def test_broken_aggregators_are_caught(length, query):
    result = audit(central(1.6), length=length, queries=LevelQueries(server=query))
    assert result.violated
    assert "REFUTED" in str(result)


def test_clipping_holds_a_loud_canary():
    assert not audit(central(1.6), length=100 * CLIP).violated
