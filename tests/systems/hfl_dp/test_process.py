"""HFL-DP against federated averaging, plain SGD, and its algorithm written out."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.systems.hfl_dp.by_hand import (
    CLASSES,
    FEATURES,
    PROXIMAL,
    RATE,
    TOLERANCE,
    build,
    build_model,
    client,
    data,
    flatten,
    order,
    run,
    start,
    train_alone,
)
from tests.thinning import thinned
from tff_hdp import runtime
from tff_hdp.clients.batches import client_batches
from tff_hdp.clients.client_work import model_fn_from_keras
from tff_hdp.noise import grid_step
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, rounds_of
from tff_hdp.systems.hfl_dp.process import build_hfl_dp, chunk_type


@pytest.fixture(scope="module", autouse=True)
def in_process():
    """One context for all: what a process was compiled to is found again."""
    runtime.set_context("in_process")


# Without noise -------------------------------------------------------------------


def test_one_edge_and_one_iteration_is_federated_averaging():
    """k1 = k2 = 1, N = 1: TFF's own FedAvg on the same batches."""
    spec = (
        tf.TensorSpec([None, FEATURES], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )
    fed_avg = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn_from_keras(build_model, spec),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(RATE),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
    )
    state = fed_avg.set_model_weights(fed_avg.initialize(), start())
    for number in range(3):
        batches = [client_batches(*client(s), order(s, number)) for s in range(4)]
        state = fed_avg.next(state, batches).state
    models, metrics = run(build(n=4, N=1, k2=1), 4, 1, rounds=3)
    expected = flatten(fed_avg.get_model_weights(state).trainable)
    np.testing.assert_allclose(models[0], expected, **TOLERANCE)
    assert metrics["clients"].tolist() == [4]
    assert metrics["rejected"] == 0
    assert metrics["examples"] == 4 * 12


def test_one_client_is_sgd():
    models, _ = run(build(n=1, N=1, k2=1), 1, 1, rounds=2)
    vector = flatten(start().trainable)
    for number in range(2):
        vector = train_alone(vector, 0, number)
    np.testing.assert_allclose(models[0], vector, **TOLERANCE)


@functools.cache
def edges_by_hand(n, N, rounds, **settings):
    """The edges' models after every round, k2 = 2."""
    found = [[flatten(start().trainable)] * N]
    for number in range(rounds):
        clients = ((found[-1][s // n], s, number) for s in range(n * N))
        trained = [train_alone(*client, **settings) for client in clients]
        edges = np.reshape(trained, [N, n, -1]).mean(1)
        if number % 2:
            edges[:] = edges.mean(0)
        found.append(edges)
    return found[1:]


@pytest.mark.parametrize("together", [1, 2, 3])
def test_edges_go_alone_and_meet_at_the_cloud(together):
    """N = 2, k2 = 2, k1 = 2 iterations with a proximal term, by hand."""
    process = build(n=3, N=2, proximal=PROXIMAL)
    by_hand = edges_by_hand(3, 2, rounds=3, epochs=2, proximal=PROXIMAL)
    for number, edges in enumerate(by_hand):
        models, _ = run(process, 3, 2, number + 1, epochs=2, together=together)
        np.testing.assert_allclose(models, edges, **TOLERANCE)
        assert np.allclose(models[0], models[1], atol=1e-6) == (number == 1)


def test_an_edge_without_clients_keeps_its_model():
    process = build(n=2, N=2)
    state = process.initialize()
    models = np.asarray(state.global_model_weights) + np.float32([[1.0], [2.0]])
    state = state._replace(global_model_weights=models)
    state = process.next(state, data(2, 2, 0)[:1]).state
    found = np.asarray(state.global_model_weights)
    assert np.abs(found[0] - models[0]).max() > 1e-3
    np.testing.assert_array_equal(found[1], models[1])
    # To the cloud it counts as the others do.
    found = np.asarray(process.next(state, []).state.global_model_weights)
    middle = np.asarray(state.global_model_weights).mean(0)
    np.testing.assert_allclose(found, np.stack([middle] * 2), **TOLERANCE)


def test_the_proximal_term_holds_clients_back():
    first = flatten(start().trainable)
    moved = [
        np.linalg.norm(run(build(n=2, N=2, **term), 2, 2, 1)[0][0] - first)
        for term in ({}, {"proximal": 2.0})
    ]
    assert moved[1] < 0.95 * moved[0]


def test_clients_clip_their_models():
    """To the norm C, before the edge averages."""
    bound = 1.5
    models, metrics = run(build(n=3, N=2, C=bound, proximal=PROXIMAL), 3, 2, rounds=1)
    vector = flatten(start().trainable)
    assert np.linalg.norm(vector) > bound
    trained = [train_alone(vector, s, 0, proximal=PROXIMAL) for s in range(3)]
    clipped = [t * min(1.0, bound / np.linalg.norm(t)) for t in trained]
    np.testing.assert_allclose(models[0], np.mean(clipped, 0), **TOLERANCE)
    assert metrics["clipped"] == 6


@pytest.mark.parametrize("bound", [None, 1.5])
def test_a_client_that_is_rejected_counts_as_its_edges_own_model(bound):
    """Clipped, as every client's is."""
    first = flatten(start().trainable)
    models = [first, *(train_alone(first, s, 0, proximal=PROXIMAL) for s in (0, 2))]
    if bound is not None:
        models = [m * min(1.0, bound / np.linalg.norm(m)) for m in models]
    process = build(n=3, N=2, C=bound, proximal=PROXIMAL)
    for poison in (np.nan, np.inf, 1e30):
        found, metrics = run(process, 3, 2, rounds=1, poison=poison)
        np.testing.assert_allclose(found[0], np.mean(models, 0), **TOLERANCE)
        assert np.isfinite(found).all()
        assert metrics["rejected"] == 1
        assert metrics["clients"].tolist() == [3, 3]


# Noise ----------------------------------------------------------------------------

NOISE = HflDpNoise(sigma_u1=0.5, sigma_u2=0.8, sigma_e=0.3, n_e=0.4, n_c=0.2)


def draws(noise, n, N, rounds, repeats=120, poison=None):
    """Models after some rounds of hardly any training, less where they began."""
    process = build(n=n, N=N, C=1e3, noise=noise, rate=1e-9)
    begun = process.set_model_weights(process.initialize(), start())
    if rounds == 2:
        begun = begun._replace(aggregator=np.int32(1))  # the cloud's turn
    given = data(n, N, 0, poison=poison)
    found = [
        process.next(begun, given).state.global_model_weights for _ in range(repeats)
    ]
    return np.stack(found) - flatten(start().trainable)


@pytest.mark.parametrize("poison", [None, np.nan])
def test_noise_of_an_edge_round_is_what_is_accounted(poison):
    """Whether or not a client is rejected."""
    n, N = 4, 3
    values = draws(NOISE, n, N, rounds=1, poison=poison)
    expected = math.hypot(0.5 / math.sqrt(n), 0.4)
    assert values.std() == pytest.approx(expected, rel=0.03)
    edge, _ = rounds_of(NOISE, n=n, N=N, C=1e3)
    accounted = edge.noise_multiplier("aggregator") * 2e3 / n
    assert values.std() == pytest.approx(accounted, rel=0.03)
    edges = np.corrcoef(values.transpose(1, 0, 2).reshape(N, -1))
    assert np.abs(edges - np.eye(N)).max() < 0.1


def test_noise_of_a_cloud_round_is_what_is_accounted():
    n, N = 4, 3
    values = draws(NOISE, n, N, rounds=2)
    variance = 0.8**2 / (n * N) + 0.3**2 / N + 0.2**2
    assert values[:, 0].std() == pytest.approx(math.sqrt(variance), rel=0.04)
    _, cloud = rounds_of(NOISE, n=n, N=N, C=1e3)
    accounted = cloud.noise_multiplier("released_model") * 2e3 / (n * N)
    assert values[:, 0].std() == pytest.approx(accounted, rel=0.04)
    np.testing.assert_array_equal(values[:, 0], values[:, 1])


ALONE = {
    "sigma_e": (2, 1 / math.sqrt(2)),
    "sigma_u1": (1, 1 / math.sqrt(2)),
    "n_c": (2, 1.0),
    "sigma_u2": (2, 1 / math.sqrt(4)),
    "n_e": (1, 1.0),
}


@pytest.mark.parametrize("name", thinned(list(ALONE), every=5))
def test_each_noise_reaches_its_link_alone(name):
    """That all together add up, which one too many would not, is said above.

    Of some 1,600 numbers: 10 % are over five standard errors.
    """
    rounds, expected = ALONE[name]
    noise = dataclasses.replace(HflDpNoise(), **{name: 1.0})
    values = draws(noise, 2, 2, rounds, repeats=30)[:, 0]
    assert values.std() == pytest.approx(expected, rel=0.1, abs=1e-5)


@pytest.mark.parametrize(("rounds", "parties"), [(1, 2), (2, 4)])
def test_a_mean_of_noised_models_lies_on_their_grid(rounds, parties):
    """Exactly: no last place tells how the sum came about."""
    noise = HflDpNoise(sigma_u1=0.9, sigma_u2=0.9)
    process = build(n=2, N=2, C=1e3, noise=noise)
    begun = process.set_model_weights(process.initialize(), start())
    if rounds == 2:
        begun = begun._replace(aggregator=np.int32(1))
    found = process.next(begun, data(2, 2, 0)).state.global_model_weights
    steps = np.float64(found) * parties / grid_step(0.9)
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert len(np.unique(steps % 64)) > 20


@pytest.mark.parametrize("link", thinned(["sigma_e", "n_e", "n_c"], every=3))
def test_noise_finer_than_a_grid_does_not_show_on_it(link):
    """Where it counts nobody may read it between the clients' steps."""
    rounds = 1 if link == "n_e" else 2
    parties = {"n_e": 2, "sigma_e": 2, "n_c": 4}[link]
    grid = grid_step(0.9) / parties
    noise = HflDpNoise(sigma_u1=0.9, sigma_u2=0.9)
    values = draws(
        dataclasses.replace(noise, **{link: 0.1 * grid}), 2, 2, rounds, repeats=60
    )
    # What is drawn for one model is drawn once, whoever receives it.
    values = values if rounds == 1 else values[:, :1]
    fine = grid / (2 if link == "sigma_e" else 1)
    phases = np.exp(2j * np.pi * values / fine)
    assert np.abs(phases.mean()) < 5 / values.size**0.5


def test_noise_is_never_seeded():
    found = []
    for _ in range(2):
        tf.random.set_seed(7)
        found.append(draws(NOISE, 4, 3, 1, repeats=1))
    # On one grid a few of them meet by chance.
    assert np.isclose(*found, atol=1e-6).mean() < 0.1


# Elsewhere --------------------------------------------------------------------------


def test_tffs_own_worker_gives_the_same(native_context):
    native, _ = run(build(n=2, N=2, proximal=2.0), 2, 2, rounds=2)
    runtime.set_context("in_process")
    here, _ = run(build(n=2, N=2, proximal=2.0), 2, 2, rounds=2)
    np.testing.assert_allclose(native, here, **TOLERANCE)


def test_rounds_must_belong_together():
    edge, cloud = rounds_of(HflDpNoise(), n=2, N=2, C=None)
    options = {
        "build_model": build_model,
        "data_type": chunk_type((FEATURES,), np.float32),
        "k2": 2,
        "local_steps": 1,
        "learning_rate": 0.1,
    }
    with pytest.raises(ValueError, match="one of each kind"):
        build_hfl_dp(**options, edge_round=cloud, cloud_round=edge)
    with pytest.raises(ValueError, match=r"edge_round\.N is 2; allowed: 3"):
        other = dataclasses.replace(cloud, N=3)
        build_hfl_dp(**options, edge_round=edge, cloud_round=other)
    sound = {**options, "edge_round": edge, "cloud_round": cloud}
    odd = {"cloud_round": None, "k2": 0, "local_steps": None, "learning_rate": "0.1"}
    for name, value in odd.items():
        with pytest.raises(ValueError, match=f"^{name} is {value!r}; allowed: "):
            build_hfl_dp(**sound | {name: value})


def test_clients_that_convolve_do_the_same_in_one_chunk_as_apart():
    layers = tf.keras.layers

    def convolving():
        return tf.keras.Sequential(
            [
                layers.InputLayer([FEATURES]),
                layers.Reshape([2, 3, 1]),
                layers.Conv2D(4, 2, activation="relu"),
                layers.Flatten(),
                layers.Dense(CLASSES),
            ]
        )

    edge, cloud = rounds_of(HflDpNoise(), n=4, N=2, C=None)
    process = build_hfl_dp(
        build_model=convolving,
        data_type=chunk_type((FEATURES,), np.float32),
        edge_round=edge,
        cloud_round=cloud,
        k2=2,
        local_steps=3,
        learning_rate=RATE,
        proximal=0.1,
    )

    def models_of(state):
        return np.asarray(state.global_model_weights)

    before = process.initialize()
    together, apart = (
        models_of(process.next(before, data(4, 2, 0, together=at_once)).state)
        for at_once in (4, 1)
    )
    np.testing.assert_allclose(together, apart, **TOLERANCE)
    assert np.abs(together - models_of(before)).max() > 1e-3
