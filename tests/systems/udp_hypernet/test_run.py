"""Whole runs of UDP-Alg on digits: folder, account, resuming, figures."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tasks import personal
from tff_hdp import systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import account
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.simulation import experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet import process as udp_hypernet
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig
from tff_hdp.systems.udp_hypernet.run import UdpHypernet
from tff_hdp.systems.udp_hypernet.setup import evenly, users_at_once

SETTINGS = {
    "task": "digits",
    "num_clients": 30,
    "partition": "dirichlet",
    "dirichlet_alpha": 0.3,
    "sampling_rate": 0.3,
    "rounds": 3,
    "local_steps": 4,
    "batch_size": 8,
    "client_learning_rate": 0.1,
    "server_learning_rate": 0.1,
    "descriptor_learning_rate": 0.5,
    "descriptor_dim": 4,
    "hidden_width": 8,
    "seed": 5,
}


def config(out, **changes):
    defaults = SETTINGS | {"noise_multiplier": 2.0, "clip_norm": 0.1, "out": str(out)}
    return UdpHypernetConfig(**defaults | changes)


def noiseless(out, **changes):
    return config(out, privacy="none", noise_multiplier=None, **changes)


def built(settings):
    """The system of a run, which does not begin."""
    with RunFolder(settings) as folder:
        folder.resolve(partition_seed=5)
        return settings.build(folder)


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_a_run_leaves_account_metrics_and_users(tmp_path, monkeypatch):
    weighted = {"weighting": "examples", "example_cap": 60}
    result = experiment.run(config(tmp_path, tests_per_user=3, **weighted))
    assert result.headline == "accuracy"
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["round"].tolist() == [1, 2, 3]
    for column in ("user_accuracy", "loss", "train_loss", "update_norm", "epsilon_rdp"):
        assert np.isfinite(frame[column]).all()
    assert frame["epsilon_rdp"].is_monotonic_increasing
    np.testing.assert_allclose(frame["clip_norm"], 0.1)
    privacy = read(tmp_path, "privacy.json")
    assert privacy["rounds"] == 3
    epsilons = {row["observer"]: row["epsilon_rdp"] for row in privacy["accounts"]}
    assert epsilons["descriptors"] is None
    assert epsilons["aggregator"] is None
    assert epsilons["released_model"] == pytest.approx(frame["epsilon_rdp"].iloc[-1])
    assert any("joint DP" in note for note in privacy["notes"])
    users = pd.read_csv(tmp_path / "users.csv")
    W = float(np.minimum(users["examples"] / 60, 1).sum())
    assert W < 29
    plan = udp_alg.plan(users=30, q=0.3, sigma=2.0 * 0.1 / (0.3 * W), S=0.1, W=W)
    ((accounted, rounds),) = result.ledger.history
    assert (accounted.plan.server_noise_multiplier, rounds) == (2.0, 3)
    assert accounted.plan.zone_weights == pytest.approx((W,), rel=1e-9)
    own = {"server_noise_multiplier": 2.0, "zone_weights": accounted.plan.zone_weights}
    assert accounted == AccountedRound(dataclasses.replace(plan, **own))
    assert len(users) == 30
    assert (users["own_tests"] >= 1).all()
    assert (users["examples"] + users["own_tests"]).sum() == 1438
    assert users["common_tests"].unique().tolist() == [359]
    assert users[["own_accuracy", "common_accuracy"]].isin([np.nan]).sum().sum() == 0
    assert "own tests" in result.summary
    # Every user's model is made without this library, and scores as in users.csv.
    model = result.path / "model" / "last"
    network = tf.keras.models.load_model(model / "hypernetwork.keras")
    with np.load(model / "descriptors.npz") as kept:
        assert kept["users"].tolist() == users["user"].tolist()
        theta = network(kept["descriptors"][7:8])
    local = tf.keras.models.load_model(model / "local_model.keras")
    local.set_weights([tensor[0] for tensor in theta])
    # Whoever only tests it builds nothing that trains.
    monkeypatch.setattr(udp_hypernet, "build_udp_hypernet", None)
    found = evaluate_run(systems.config_of(result.path))
    assert found.clients["accuracy"].tolist() == users["own_accuracy"].tolist()
    _, own = personal.split(result.config.load_task(5), seed=5)
    x, y = own.examples(7)
    reached = np.mean(local(x).numpy().argmax(-1) == y)
    assert reached == users["own_accuracy"][7]
    assert found.confusion.sum() == users["own_tests"].sum()
    for name in ("local_model.keras", "hypernetwork.keras"):
        (model / name).write_bytes((model / name).read_bytes()[:-100])
        with pytest.raises(FileError, match=f"{name}: is damaged"):
            evaluate_run(systems.config_of(result.path))


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, traced_once):
    """Without noise, rounds and descriptors depend on the secret alone."""
    traced_once(UdpHypernet)
    whole = experiment.run(noiseless(tmp_path / "whole", rounds=2))
    experiment.run(noiseless(tmp_path / "parts", rounds=1))
    parts = experiment.run(noiseless(tmp_path / "parts", rounds=2))
    a, b = (pd.read_csv(r.path / "metrics.csv") for r in (whole, parts))
    columns = ["round", "accuracy", "loss", "train_loss", "update_norm", "clients"]
    np.testing.assert_allclose(a[columns], b[columns], rtol=1e-5)
    assert whole.accounts == []
    assert (a["epsilon_rdp"] == np.inf).all()


@pytest.mark.slow
def test_a_resumed_run_has_one_plan(tmp_path):
    """q W = .7 users and z = 1: by way of sigma and back, z would lose a bit."""
    settings = {"num_clients": 14, "sampling_rate": 0.05, "noise_multiplier": 1.0}
    for rounds in (1, 2):
        result = experiment.run(config(tmp_path, rounds=rounds, **settings))
    ((run, rounds),) = result.ledger.history
    assert (run.plan.server_noise_multiplier, rounds) == (1.0, 2)
    phi = next(r for r in result.accounts if r.observer == "released_model")
    assert phi.epsilon_paper is not None


@pytest.mark.slow
def test_both_runtimes_run_the_same_rounds(tmp_path):
    frames = [
        pd.read_csv(
            experiment.run(noiseless(tmp_path / name, rounds=2, runtime=name)).path
            / "metrics.csv"
        )
        for name in ("in_process", "native")
    ]
    columns = ["accuracy", "loss", "train_loss", "update_norm", "clients"]
    np.testing.assert_allclose(frames[0][columns], frames[1][columns], rtol=1e-4)


@pytest.mark.slow
def test_personal_models_learn_their_users(tmp_path):
    result = experiment.run(noiseless(tmp_path, rounds=60, local_steps=10))
    frame = pd.read_csv(tmp_path / "metrics.csv")
    # With seeds 1 to 5: below 0.15 at first, 0.75 to 0.90 in the end.
    assert frame["accuracy"].iloc[0] < 0.3
    assert result.accuracy > 0.65


ASKED = {
    "sigma": ({"noise_multiplier": None, "sigma": 0.05}, 0.05 * 0.3 * 30 / 0.1),
    "examples": ({"weighting": "examples", "example_cap": 60}, 2.0),
}


@pytest.mark.parametrize("asked", ASKED)
def test_the_noise_that_is_asked_is_that_of_the_plan(tmp_path, asked):
    changes, multiplier = ASKED[asked]
    plan = built(config(tmp_path, **changes)).plan
    assert plan.server_noise_multiplier == pytest.approx(multiplier, rel=1e-6)
    W = read(tmp_path, "config.json")["resolved"]["W"]
    assert plan.zone_weights == (W,)
    assert (W < 30) == (asked == "examples")


@pytest.mark.slow
@pytest.mark.parametrize("asked", ASKED)
def test_the_noise_that_is_asked_is_the_noise_recorded(tmp_path, asked):
    changes, multiplier = ASKED[asked]
    result = experiment.run(config(tmp_path, rounds=1, **changes))
    ((run, rounds),) = result.ledger.history
    assert rounds == 1
    assert run.plan.server_noise_multiplier == pytest.approx(multiplier, rel=1e-6)
    W = read(tmp_path, "config.json")["resolved"]["W"]
    assert run.plan.zone_weights == (W,)
    assert (W < 30) == (asked == "examples")


def test_a_round_weighs_users_by_their_examples(tmp_path, monkeypatch):
    """n / 76 of each that was drawn, whichever part it is in; not all have as many."""
    monkeypatch.setattr(udp_hypernet, "build_udp_hypernet", lambda **_: None)
    system = built(
        config(tmp_path, weighting="examples", num_clients=31, example_cap=76)
    )
    sizes, cohort = system.train.sizes, np.arange(0, 30, 3)
    assert len({*sizes[cohort]}) == 2
    data = system.round_data(1, cohort, np.random.default_rng)
    parts = [part for each in data for part in each.as_numpy_iterator()]
    users = [user for part in parts for user in part["user"]]
    assert users == cohort.tolist()
    found = np.concatenate([part["weight"] for part in parts])
    np.testing.assert_allclose(found, sizes[cohort] / 76, rtol=1e-6)


def test_a_target_epsilon_is_met(tmp_path):
    settings = config(tmp_path, noise_multiplier=None, target_epsilon=3.0)
    rows = account(built(settings).plan, settings.rounds, settings.delta)
    phi = next(r for r in rows if r.observer == "released_model")
    assert 2.99 < phi.epsilon_rdp <= 3.0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate is 0"),
        ({"sampling_rate": 1.5}, "sampling_rate is 1.5"),
        ({"sigma": 0.1}, "exactly one of sigma"),
        ({"noise_multiplier": None}, "exactly one of sigma"),
        ({"privacy": "none"}, "noise_multiplier is 2"),
        ({"hidden_width": 0}, "hidden_width is 0"),
        ({"clip_norm": -1.0}, "clip_norm is -1"),
        (
            {"privacy": "none", "noise_multiplier": None, "clip_norm": 3.0},
            "clip_norm is 3.0; allowed: only with privacy=udp_alg",
        ),
        ({"example_cap": 5}, "example_cap is 5"),
        ({"privacy": "hdp"}, "privacy is hdp"),
    ],
)
def test_a_bad_setting_names_the_flag(tmp_path, changes, named):
    with pytest.raises(ArgumentError, match=named):
        config(tmp_path, **changes)


def test_too_many_users_for_a_test_each_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"num_clients is 1400; .* has one"):
        experiment.run(
            config(tmp_path, num_clients=1400, partition="iid", dirichlet_alpha=None)
        )


@pytest.mark.slow
def test_descriptors_stay_as_drawn_at_rate_0(tmp_path, monkeypatch):
    drawn = []

    def draw(system, draw=UdpHypernet.initial_weights):
        drawn.append(draw(system))
        return drawn[-1]

    monkeypatch.setattr(UdpHypernet, "initial_weights", draw)
    for rate in (0.0, 0.5):
        out = tmp_path / str(rate)
        experiment.run(config(out, descriptor_learning_rate=rate, rounds=1))
        with np.load(out / "model" / "last" / "descriptors.npz") as kept:
            stayed = np.array_equal(kept["descriptors"], drawn[-1]["descriptors"])
        assert stayed == (rate == 0)
        privacy = read(out, "privacy.json")
        epsilons = {r["observer"]: r["epsilon_rdp"] for r in privacy["accounts"]}
        phi = epsilons["released_model"]
        assert epsilons["descriptors"] == (phi if stayed else None)
        assert any("joint DP" in note for note in privacy["notes"]) != stayed


@pytest.mark.parametrize("cores", [1, 2, 7])
@pytest.mark.parametrize(("users", "most"), [(0, 3), (1, 3), (11, 8), (40, 6), (9, 1)])
def test_a_cohort_is_shared_out_evenly(monkeypatch, cores, users, most):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    parts = evenly(np.arange(users), most)
    assert [user for part in parts for user in part] == list(range(users))
    sizes = [len(part) for part in parts]
    assert all(0 < size <= most for size in sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(parts) % cores == 0 or max(sizes, default=0) <= 1


@pytest.mark.parametrize(
    ("cores", "expected", "most"), [(2, 10, 8), (1, 0.5, 1), (2, 170, 20), (64, 10, 1)]
)
def test_a_stack_has_room_for_a_cohort_that_is_half_as_large_again(
    monkeypatch, cores, expected, most
):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert users_at_once(expected) == most
