"""The audit on the real aggregator, in process and by TFF's worker, right and broken.

Every client of two zones is a canary that owns one coordinate of the update; a
fair coin decides whether its update is there or zero. One release then says how
well each coin can be guessed.
"""

import collections
import functools
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp
from dp_accounting.pld import PLDAccountant
from scipy import stats

from tests.thinning import thinned
from tff_hdp.aggregators import (
    WEIGHT_TYPE,
    HierarchicalMeanFactory,
    LevelQueries,
)
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.attacks.roc import roc
from tff_hdp.clients import contributions
from tff_hdp.clients.batches import chunk_type, make_chunk
from tff_hdp.clients.client_work import build_optimizer
from tff_hdp.clients.updates import norms
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    NoisePlan,
    ThreatModel,
    account,
    configurations,
)
from tff_hdp.privacy.audit import one_run_audit
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.tradeoff import Tradeoff, composed_tradeoff
from tff_hdp.privacy.views import view
from tff_hdp.systems.hdp.clients import stacked_clients
from tff_hdp.systems.hdp.process import build_hdp

CANARIES, GUESSES, CLIP, DELTA = 1200, 300, 0.5, 1e-5
SIZES = (CANARIES // 3, CANARIES - CANARIES // 3)
COMMON = {
    "zone_sizes": SIZES,
    "sampling": FullParticipation(),
    "clipping": Clipping(clip_norm=CLIP),
}
ZEROED = ThreatModel(neighbours="zero_out")


def release(plan, included, length, queries=None):
    """One release; each canary pushes its coordinate by `length`."""
    process = HierarchicalMeanFactory(plan, queries=queries).create(
        tff.TensorType(np.float32, [CANARIES]), WEIGHT_TYPE
    )
    updates = length * np.eye(CANARIES, dtype=np.float32) * np.c_[included]
    profiles = [
        collections.OrderedDict(
            weight=1.0,
            zone=int(i >= SIZES[0]),
            carries_noise=plan.client_noise_multiplier > 0,
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
        clipping=Clipping(clip_norm=CLIP),
        client_noise_multiplier=0.7,
        noising_clients=(2, 0, 1),
        zone_noise_multipliers=(0.0, 1.5, 0.5),
        upper_levels=(Level((0, 0, 1), (0.9, 0.0)),),
        server_noise_multiplier=1.1,
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
            contribution, zones = mean.sent_by_one(contribution, zone)
            if total is None:
                total = mean.zero(contribution)
            total = mean.add(total, contribution, zones)
    found = mean.release(state, total)[0].numpy().std()
    rows = account(plan, 1, DELTA, ())
    for row in rows:
        if row.observer == "released_model":
            sensitivity = plan.released_sensitivities[row.zone]
            expected = row.noise_multiplier * sensitivity
            # Five standard errors of a standard deviation from 40,000 draws.
            assert found == pytest.approx(expected, rel=0.018)


def stacked_release(plan, included, length, queries=None, steps=1):
    """As `release`, of training: each canary's example lights a pixel of its own.

    From zero weights a step moves a canary's row of the two-class kernel along
    (1, -1) / sqrt(2), by `length` over all steps while its pixel is faint. One step
    is taken on the weights as they are, several in the span of the example.
    """
    pixel, canaries = 1e-3, len(included)
    chunks = []
    for clients in np.array_split(np.arange(canaries), canaries // 40):
        pixels = np.zeros([len(clients), 1, canaries], np.uint8)
        rows = np.arange(len(clients))
        pixels[rows, 0, clients] = 255 * included[clients]
        chunk = make_chunk(
            [(x, np.zeros(1, np.int32)) for x in pixels],
            [np.zeros([steps, 1], np.int32)] * len(clients),
            weights=[1.0] * len(clients),
            carries_noise=[plan.client_noise_multiplier > 0] * len(clients),
            zone=(clients >= plan.zone_sizes[0]).astype(int),
        )
        chunks.append(tf.data.Dataset.from_tensors(chunk))
    layers = tf.keras.layers
    process = build_hdp(
        clients=stacked_clients(
            build_model=lambda: tf.keras.Sequential(
                [
                    layers.InputLayer([canaries]),
                    layers.Rescaling(pixel / 255),
                    layers.Dense(2, use_bias=False, kernel_initializer="zeros"),
                ]
            ),
            data_type=chunk_type((canaries,), np.uint8),
            client_learning_rate=math.sqrt(2) * length / (pixel * steps),
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", 1.0),
        queries=queries,
    )
    state = process.next(process.initialize(), chunks).state
    (kernel,) = process.get_model_weights(state).trainable
    return (kernel[:, 0] - kernel[:, 1]) / math.sqrt(2)


spanned_release = functools.partial(stacked_release, steps=3)
RELEASES = {"factory": release, "stacked": stacked_release, "spanned": spanned_release}
# Noise is computed by NumPy in process, and by TensorFlow on the worker.
PATHS = [
    ("factory", "native_context"),
    ("factory", "in_process_default"),
    ("stacked", "in_process_default"),
    ("spanned", "native_context"),
]


@pytest.fixture
def run(request):
    """A release on the path that the test names."""
    name, context = request.param
    request.getfixturevalue(context)
    return RELEASES[name]


def audit(plan, release, *, length=CLIP, queries=None, guesses=GUESSES):
    rows = account(plan, 1, DELTA, ("pld",), threat=ZEROED)
    row = next(r for r in rows if r.observer == "released_model")
    claimed = row.epsilon_pld
    assert claimed < 3
    included = np.random.default_rng(0).random(sum(plan.zone_sizes)) < 0.5
    scores = np.asarray(release(plan, included, length, queries))
    result = one_run_audit(
        scores, included, guesses=guesses, claimed=claimed, delta=DELTA
    )
    # The attacker's curve and the bound on it come to the same verdict.
    seen = view(AccountedRound(plan, ZEROED), "released_model", 3, 0, True)
    curve = roc(scores[included], scores[~included])
    bound = composed_tradeoff(frozenset({(seen.mechanism, 1)}))
    assert curve.refutes(bound) == result.violated
    return result, curve, bound.mu, claimed


def central(z):
    return configurations.CONFIGURATIONS["cdp"](noise_multiplier=z, **COMMON)


PLANS = {
    "cdp": central(1.6),
    "hdp": configurations.CONFIGURATIONS["hdp"](noise_multiplier=1.2, **COMMON),
    "ldp": configurations.CONFIGURATIONS["ldp"](noise_multiplier=0.047, **COMMON),
    "mixed": NoisePlan(
        **COMMON, zone_noise_multipliers=(1.0, 1.0), server_noise_multiplier=1.0
    ),
}


@pytest.mark.parametrize(
    ("plan", "run"), thinned(list(PLANS), PATHS, every=4), indirect=["run"]
)
def test_the_right_aggregator_is_not_refuted(plan, run):
    result, curve, mu, claimed = audit(PLANS[plan], run)
    assert not result.violated, str(result)
    # Taking the noise for Gaussian, the area under the curve is that of the claim,
    # neither more nor less: Phi(mu / sqrt 2). Five standard errors, as the noise has
    # no seed.
    expected = stats.norm.cdf(mu / math.sqrt(2))
    assert abs(curve.auc - expected) < 5 * curve.auc_error
    # So the audit is not blind: whatever promises a fifth of the claim is refuted.
    least = math.sqrt(2) * stats.norm.ppf(curve.auc - 1.645 * curve.auc_error)
    refuted = PLDAccountant().compose(dp_accounting.GaussianDpEvent(1 / least))
    assert refuted.get_epsilon(DELTA) > 0.2 * claimed


@pytest.mark.parametrize(
    ("configuration", "z", "release"),
    [
        ("cdp", 1.6, spanned_release),
        pytest.param("hdp", 1.2, stacked_release, marks=pytest.mark.slow),
        pytest.param("ldp", 0.015, spanned_release, marks=pytest.mark.slow),
    ],
)
def test_many_canaries_come_near_the_claim(
    configuration, z, release, in_process_default
):
    """The audit's power, with nothing taken for granted of the noise.

    Noise has no seed: what is asked is four standard errors or more from the usual.
    """
    many = 10 * CANARIES
    plan = configurations.CONFIGURATIONS[configuration](
        noise_multiplier=z, **COMMON | {"zone_sizes": (many // 3, many - many // 3)}
    )
    result, curve, mu, claimed = audit(plan, release, guesses=many // 30)
    assert 0.3 * claimed < result.lower_bound < claimed
    assert curve.refutes(Tradeoff(mu / 2))
    # With the noise taken for Gaussian.
    assert 0.75 * mu < curve.refuted_mu < 1.05 * mu


@pytest.mark.parametrize(
    ("length", "query"),
    [
        (CLIP, tfp.GaussianSumQuery(CLIP, 0.0)),
        (CLIP, tfp.GaussianSumQuery(CLIP, 1.6 * CLIP / CANARIES)),
        (100 * CLIP, tfp.GaussianSumQuery(1e6, 1.6 * CLIP)),
    ],
    ids=["noise forgotten", "noise divided by the wrong count", "clip skipped"],
)
@pytest.mark.parametrize(
    "context", thinned(["in_process_default", "native_context"], every=2)
)
def test_broken_aggregators_are_caught(length, query, context, request):
    request.getfixturevalue(context)
    queries = LevelQueries(server=query)
    result, *_ = audit(central(1.6), release, length=length, queries=queries)
    assert result.violated
    assert "REFUTED" in str(result)


@pytest.mark.parametrize("run", thinned(PATHS, every=2), ids="-".join, indirect=True)
def test_clipping_holds_a_loud_canary(run):
    assert not audit(central(1.6), run, length=100 * CLIP)[0].violated


@pytest.mark.parametrize("name", ["stacked", "spanned"])
def test_norms_understated_are_caught(name, monkeypatch, in_process_default):
    """A stack that clips to norms it got wrong lets a loud canary through."""
    monkeypatch.setattr(contributions, "norms", lambda update: 0.01 * norms(update))
    assert audit(central(1.6), RELEASES[name], length=100 * CLIP)[0].violated
