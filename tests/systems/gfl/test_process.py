"""GFL's iteration against its equations written out in NumPy."""

import collections
import dataclasses
import functools
import math

import networkx as nx
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from tasks import gfl_logistic
from tff_hdp import noise, runtime
from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks
from tff_hdp.systems.gfl import process as gfl
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.topology.mixing import metropolis

SERVERS, COHORT, BATCH, M = 4, 3, 5, 2
MIXING = metropolis(nx.path_graph(SERVERS))
NONE = GflPlan(
    scheme="none", mu=0.3, B=10.0, sigma_g=0.0, dimension=M, clients=9, per_round=COHORT
)
HYBRID = dataclasses.replace(NONE, scheme="hybrid", sigma_g=0.5)
IID = dataclasses.replace(NONE, scheme="iid", sigma_g=0.5)


@pytest.fixture(scope="module")
def context():
    """One for all tests here: what a process was compiled to is found again."""
    runtime.set_context("in_process")
    return tff.framework.get_context_stack().current


@pytest.fixture(autouse=True)
def in_process(context):
    tff.framework.set_default_context(context)


@functools.cache
def build(plan, servers=2, mixing=None):
    return gfl.build_gfl(
        build_model=lambda: gfl_logistic.build_model(M),
        data_type=gfl.cohort_type((M,), np.float32, plan=plan, servers=servers),
        plan=plan,
        mixing=MIXING if mixing is None else np.array(mixing),
        ridge=0.1,
    )


def draw(seed):
    """One round: features [P, L, B, M] and labels [P, L, B]."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=[SERVERS, COHORT, BATCH, M]).astype(np.float32)
    return features, rng.integers(0, 2, [SERVERS, COHORT, BATCH]).astype(np.int32)


def data(plan, seed, apart=False, poison=None):
    """A TFF client for two servers each, or for each client.

    `poison` is a server, a client of it or all, and what its features become.
    """
    features, labels = draw(seed)
    if poison is not None:
        server, client, value = poison
        features[server, client] = value
    masks = []
    for _ in range(SERVERS):
        names = [str(k) for k in range(COHORT)]
        masks.append(PairwiseMasks(names).draw(names, seed, M).astype(np.int64))
    servers = range(SERVERS)
    chunks = [(slice(p, p + 2), slice(None)) for p in servers[::2]]
    if apart:
        chunks = [
            (slice(p, p + 1), slice(k, k + 1)) for p in servers for k in range(COHORT)
        ]
    cohorts = []
    for chunk in chunks:
        fields = collections.OrderedDict(
            features=features[chunk],
            labels=labels[chunk],
            zone=np.arange(SERVERS, dtype=np.int32)[chunk[0]],
        )
        if plan.masked:
            fields["masks"] = np.stack(masks)[chunk]
        cohorts.append(tf.data.Dataset.from_tensors(fields))
    return cohorts


def run(plan, rounds=3, apart=False):
    process = build(plan, 1) if apart else build(plan)
    state = process.initialize()
    for seed in range(rounds):
        output = process.next(state, data(plan, seed, apart))
        state = output.state
    return np.asarray(state.global_model_weights), output.metrics


def iterate(models, seed, *, mu=0.3, rho=0.1, bound=10.0, still=()):
    """Equations (6) and (7): psi of every server; clients in `still` do not move."""
    features, labels = draw(seed)
    psi = np.zeros([SERVERS, M])
    for p in range(SERVERS):
        for k in range(COHORT):
            gamma = 2.0 * labels[p, k] - 1.0
            margin = gamma * (features[p, k] @ models[p])
            pull = -(gamma / (1 + np.exp(margin))) @ features[p, k] / BATCH
            gradient = pull + rho * models[p]
            if (p, k) in still:
                gradient = np.zeros(M)
            norm = np.linalg.norm(gradient)
            gradient *= min(1, bound / max(norm, 1e-12))
            psi[p] += (models[p] - mu * gradient) / COHORT
    return psi


def reference(rounds=3, **options):
    models = np.zeros([SERVERS, M])
    for seed in range(rounds):
        models = MIXING @ iterate(models, seed, **options)
    return models


def test_without_noise_it_is_the_papers_equations():
    models, metrics = run(NONE)
    np.testing.assert_allclose(models, reference(), rtol=1e-5, atol=1e-6)
    assert metrics["clients"].tolist() == [COHORT] * SERVERS
    assert metrics["examples"] == SERVERS * COHORT * BATCH
    assert metrics["clipped"] == metrics["rejected"] == 0
    assert metrics["round"] == 3


def test_a_server_without_clients_keeps_its_model_and_mixes_it():
    process = build(NONE)
    state = process.initialize()
    before = np.random.default_rng(0).normal(size=[SERVERS, M]).astype(np.float32)
    state = state._replace(global_model_weights=before)
    idle = {(p, k) for p in (0, 1) for k in range(COHORT)}
    state = process.next(state, data(NONE, 0, False)[1:]).state
    expected = MIXING @ iterate(before, 0, still=idle)
    found = np.asarray(state.global_model_weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped_to_the_bound():
    bound = 0.2
    models, metrics = run(dataclasses.replace(NONE, B=bound))
    np.testing.assert_allclose(models, reference(bound=bound), rtol=1e-5, atol=1e-6)
    assert metrics["clipped"] > 0


@pytest.mark.parametrize("scheme", ["none", "hybrid", "iid"])
def test_a_client_that_is_rejected_counts_as_zero(scheme):
    """NaN, infinite, and so large that the squares overflow; masks still cancel."""
    plan = NONE
    if scheme != "none":
        plan = dataclasses.replace(NONE, scheme=scheme, sigma_g=1e-9)
    process = build(plan)
    models = np.random.default_rng(0).normal(size=[SERVERS, M]).astype(np.float32)
    begun = process.initialize()._replace(global_model_weights=models)
    expected = MIXING @ iterate(models, 0, still={(1, 2)})
    for value in (np.nan, np.inf, 1e30):
        found = process.next(begun, data(plan, 0, poison=(1, 2, value)))
        np.testing.assert_allclose(
            found.state.global_model_weights, expected, rtol=1e-5, atol=2e-6
        )
        assert found.metrics["rejected"] == 1
        assert found.metrics["clients"].tolist() == [COHORT] * SERVERS


@pytest.mark.parametrize("plan", [NONE, HYBRID], ids=lambda p: p.scheme)
def test_clients_apart_or_together_are_the_same(plan):
    apart, _ = run(plan, rounds=1, apart=True)
    together, _ = run(plan, rounds=1)
    np.testing.assert_allclose(apart.mean(0), together.mean(0), atol=1e-6)
    if plan is NONE:
        np.testing.assert_allclose(apart, together, atol=1e-6)


# Noise -----------------------------------------------------------------------------


def test_the_centroid_of_the_hybrid_scheme_carries_no_noise():
    """Masks and noise cancel: after one round the average is the plain one's."""
    models, _ = run(HYBRID, rounds=1)
    plain = reference(rounds=1)
    np.testing.assert_allclose(models.mean(0), plain.mean(0), atol=2e-6)
    assert np.abs(models - plain).max() > 0.01


def test_hybrid_noise_is_equation_24_to_the_letter(monkeypatch):
    rng = np.random.default_rng(0)
    psi, g = rng.normal(size=[2, SERVERS, M]).astype(np.float32)
    monkeypatch.setattr(gfl, "add_laplace", lambda psi, stddev: psi + g)
    found = gfl.mix(HYBRID, tf.constant(psi), MIXING)
    expected = np.zeros([SERVERS, M])
    for p in range(SERVERS):
        for m in range(SERVERS):
            noise = g[m] if m != p else -(1 - MIXING[p, p]) / MIXING[p, p] * g[p]
            expected[p] += MIXING[m, p] * (psi[m] + noise)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("scheme", "variance"),
    [
        ("hybrid", (MIXING @ MIXING.T).diagonal() - 2 * MIXING.diagonal() + 1),
        ("iid", (MIXING**2 * (1 - np.eye(SERVERS))).sum(1)),
    ],
)
def test_every_servers_model_carries_the_noise_it_should(scheme, variance):
    sigma = 0.7
    psi = tf.zeros([SERVERS, 40_000])
    plan = dataclasses.replace(NONE, scheme=scheme, sigma_g=sigma)
    models = gfl.mix(plan, psi, MIXING).numpy()
    np.testing.assert_allclose(models.std(1), sigma * np.sqrt(variance), rtol=0.05)


@pytest.mark.parametrize("stddev", [0.2, 20.0])
def test_a_servers_model_does_not_show_between_the_noises_steps(stddev):
    """Neither in what it sends nor in what the noise in it is taken for."""
    psi = np.random.default_rng(0).normal(size=[SERVERS, 5_000]).astype(np.float32)
    sent, g = (np.asarray(t, np.float64) for t in gfl.noised(tf.constant(psi), stddev))
    steps = sent / noise.grid_step(stddev)
    np.testing.assert_array_equal(steps, np.rint(steps))
    np.testing.assert_allclose(sent - g, psi, atol=stddev * 1e-5)
    assert g.std() == pytest.approx(stddev, rel=0.03)


def test_what_iid_servers_send_each_other_lies_on_the_noises_grid(monkeypatch):
    """By what the process is given for every message."""
    messages = []

    def add(psi, stddev):
        messages.append(noise.add_laplace(psi, stddev))
        return messages[-1]

    monkeypatch.setattr(gfl, "add_laplace", add)
    psi = np.random.default_rng(0).normal(size=[SERVERS, 400]).astype(np.float32)
    plan = dataclasses.replace(IID, sigma_g=0.7)
    found = gfl.mix(plan, tf.constant(psi), MIXING)
    (sent,) = messages
    assert sent.shape == [SERVERS, SERVERS, 400]
    steps = np.asarray(sent, np.float64) / noise.grid_step(0.7)
    np.testing.assert_array_equal(steps, np.rint(steps))
    expected = MIXING.diagonal()[:, None] * psi
    for p in range(SERVERS):
        for m in set(range(SERVERS)) - {p}:
            expected[p] += MIXING[p, m] * sent[p, m].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_noise_between_servers_is_laplace():
    values = noise.add_laplace(tf.zeros([300_000]), 0.9).numpy()
    # They lie on a grid; spread over its steps they are as good as continuous.
    step = noise.grid_step(0.9)
    spread = values + step * np.random.default_rng(0).uniform(-0.5, 0.5, values.size)
    result = stats.kstest(spread, stats.laplace(scale=0.9 / math.sqrt(2)).cdf)
    assert result.pvalue > 1e-4
    assert values.std() == pytest.approx(0.9, rel=0.02)


def test_iid_clients_noise_what_they_send():
    updates = tf.zeros([1, COHORT, 50_000])
    plan = dataclasses.replace(IID, dimension=50_000)
    sent = gfl.hide(plan, updates, {}).numpy()
    assert sent.std() == pytest.approx(0.5, rel=0.03)
    assert sent.sum(1).std() == pytest.approx(0.5 * math.sqrt(COHORT), rel=0.03)


def test_rejected_clients_noise_what_they_send():
    """Nobody of server 0 trains, and its noise to itself is its clients' alone."""
    process = build(IID, mixing=tuple(map(tuple, np.eye(SERVERS))))
    cohorts = data(IID, 0, poison=(0, slice(None), np.nan))
    begun = process.initialize()
    draws = [
        process.next(begun, cohorts).state.global_model_weights[0] for _ in range(200)
    ]
    assert np.std(draws) == pytest.approx(0.5 / math.sqrt(COHORT), rel=0.15)


def test_two_runs_never_share_their_noise():
    found = []
    for _ in range(2):
        # What is seeded may be so when it is built.
        build.cache_clear()
        tf.random.set_seed(1)
        found.append(run(HYBRID, rounds=1)[0])
    # On one grid a few of them meet by chance.
    assert np.isclose(*found, atol=1e-6).mean() < 0.5


# Masks -----------------------------------------------------------------------------


def sent_by_one(plan, update, mask):
    cohort = {"masks": tf.constant(mask.astype(np.int64)[np.newaxis, np.newaxis])}
    updates = tf.constant(update[np.newaxis, np.newaxis], tf.float32)
    return gfl.hide(plan, updates, cohort).numpy()[0, 0]


def test_what_a_server_receives_of_one_client_is_uniform_whatever_it_is():
    size = 20_000
    plan = dataclasses.replace(HYBRID, dimension=size)
    names = [str(k) for k in range(COHORT)]
    keys = PairwiseMasks(names)
    for number, value in enumerate((0.0, 1e-3, 0.02)):
        mask = keys.draw(names, number, size)[0]
        sent = sent_by_one(plan, np.full(size, value), mask)
        assert sent.min() >= 0
        assert sent.max() < 2**32
        assert stats.kstest(sent / 2**32, "uniform").pvalue > 1e-4


def test_sums_come_out_of_the_masks_to_the_last_step_and_not_without_one_client():
    size = 1000
    plan = dataclasses.replace(HYBRID, dimension=size)
    names = [str(k) for k in range(COHORT)]
    masks = PairwiseMasks(names).draw(names, 0, size)
    rng = np.random.default_rng(0)
    updates = rng.uniform(-3.0, 3.0, [COHORT, size])
    sent = [sent_by_one(plan, *pair) for pair in zip(updates, masks, strict=True)]
    total = gfl.unhide(plan, tf.constant(sum(sent))).numpy()
    np.testing.assert_allclose(total, updates.sum(0), atol=1e-5)
    partial = gfl.unhide(plan, tf.constant(sum(sent[1:]))).numpy()
    assert abs(np.corrcoef(partial, updates[1:].sum(0))[0, 1]) < 0.15


# Elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [NONE, HYBRID], ids=lambda p: p.scheme)
def test_tffs_own_worker_gives_the_same(plan, native_context):
    models, _ = run(plan, rounds=1)
    np.testing.assert_allclose(
        models.mean(0), reference(rounds=1).mean(0), rtol=1e-5, atol=2e-6
    )


def test_weights_are_the_centroid_and_can_be_set():
    process = build(NONE)
    assert isinstance(process, tff.learning.templates.LearningProcess)
    state = process.next(process.initialize(), data(NONE, 0)).state
    weights = process.get_model_weights(state)
    (kernel,) = weights.trainable
    np.testing.assert_allclose(
        np.ravel(kernel), np.mean(state.global_model_weights, 0), atol=1e-7
    )
    again = process.set_model_weights(state, weights)
    models = np.asarray(again.global_model_weights)
    np.testing.assert_allclose(models, np.tile(np.ravel(kernel), (SERVERS, 1)))


@pytest.mark.parametrize(
    ("plan", "changes", "message"),
    [
        (
            NONE,
            {"mixing": ((0.5, 0.5), (0.2, 0.8))},
            r"^mixing\[0, 1\] is 0.5; allowed: 0.2, .* so that it is symmetric",
        ),
        (dataclasses.replace(NONE, dimension=3), {}, "plan.dimension is 3; allowed: 2"),
    ],
)
def test_what_cannot_be_built(plan, changes, message):
    with pytest.raises(ValueError, match=message):
        build(plan, **changes)


@pytest.mark.parametrize(("name", "value"), [("plan", None), ("ridge", -0.1)])
def test_other_kinds_of_arguments_are_refused(name, value):
    given = {"build_model": lambda: gfl_logistic.build_model(M), "plan": NONE}
    given["data_type"] = gfl.cohort_type((M,), np.float32, plan=NONE)
    with pytest.raises(ValueError, match=f"^{name} is {value}; allowed: "):
        gfl.build_gfl(**given | {"mixing": MIXING, name: value})
