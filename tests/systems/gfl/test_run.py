"""Whole runs of GFL: what they leave behind, and what they refuse."""

import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from tasks import gfl_logistic
from tests.thinning import thinned
from tff_hdp import systems
from tff_hdp.errors import ArgumentError, NoiseError
from tff_hdp.simulation import experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.gfl import plan as formulas
from tff_hdp.systems.gfl import run as gfl_run
from tff_hdp.systems.gfl import setup as gfl_setup
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.gfl.run import Gfl


def config(out, **changes):
    settings = {
        "num_clients": 24,
        "servers": 4,
        "per_round": 3,
        "rounds": 3,
        "seed": 5,
        "out": str(out),
    }
    return GflConfig(**settings | changes)


def test_a_hybrid_run_leaves_metrics_account_and_figure(tmp_path):
    result = experiment.run(config(tmp_path, sigma_g=0.5, repetitions=2))
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert {"msd", "msd_servers", "disagreement", "clipped"} <= set(frame.columns)
    assert frame["clients"].tolist() == [2 * 4 * 3] * 3
    assert frame["rejected"].tolist() == [0] * 3
    # The servers stand around the centroid: MSDs differ by the disagreement.
    np.testing.assert_allclose(
        frame["msd_servers"], frame["msd"] + frame["disagreement"], rtol=1e-5
    )
    rows = {row.observer: row for row in result.accounts}
    stated = formulas.epsilon(i=3, mu=0.1, B=2.0, sigma_g=0.5)
    assert rows["other_servers"].epsilon_paper == pytest.approx(stated)
    assert rows["other_servers"].epsilon_rdp == pytest.approx(stated * 2**0.5, rel=0.01)
    assert rows["released_model"].epsilon_rdp is None
    privacy = json.loads((tmp_path / "privacy.json").read_text())
    assert privacy["published"] == []
    notes = " ".join(privacy["notes"])
    for word in ("carries no noise", "2 repetitions", "operator"):
        assert word in notes
    assert "spectral gap" in result.summary
    assert (tmp_path / "figures" / "msd.png").stat().st_size > 1000
    # The least MSD is best; the model is the first network's centroid.
    card = json.loads((tmp_path / "model" / "best" / "card.json").read_text())
    assert card["round"] == frame["round"][frame["msd"].idxmin()]
    found = evaluate_run(systems.config_of(tmp_path), "last")
    assert found.accuracy == pytest.approx(frame["accuracy"].iloc[-1])
    assert found.zones["clients"].tolist() == [6] * 4


def test_a_run_goes_on_where_the_spectral_gap_is_rounded_otherwise(
    tmp_path, monkeypatch, traced_once
):
    traced_once(Gfl)
    experiment.run(config(tmp_path, scheme="none", rounds=1))
    gap = gfl_run.spectral_gap
    monkeypatch.setattr(gfl_run, "spectral_gap", lambda m: gap(m) * (1 + 1e-14))
    experiment.run(config(tmp_path, scheme="none", rounds=2))
    assert pd.read_csv(tmp_path / "metrics.csv")["round"].tolist() == [1, 2]
    monkeypatch.setattr(gfl_run, "spectral_gap", lambda m: gap(m) + 1e-6)
    with pytest.raises(ArgumentError, match="began with spectral_gap"):
        experiment.run(config(tmp_path, scheme="none", rounds=3))


def test_without_privacy_it_nears_the_optimum(tmp_path):
    result = experiment.run(config(tmp_path, scheme="none", rounds=25, mu=1.0))
    msd = pd.read_csv(tmp_path / "metrics.csv")["msd"]
    assert result.accounts == []
    assert msd.iloc[-1] < 0.1 * msd.iloc[0]


def test_the_hybrid_centroid_follows_the_plain_one(tmp_path, traced_once):
    """Same cohorts: after a round they are equal, while iid strays at once."""
    traced_once(Gfl)
    msd = {}
    for scheme in formulas.SCHEMES:
        out = tmp_path / scheme
        # So much noise at clients that its square shows, whichever way it points.
        sigmas = {"hybrid": 20.0, "iid": 1e5}
        noise = {} if scheme == "none" else {"sigma_g": sigmas[scheme]}
        experiment.run(config(out, scheme=scheme, rounds=1, **noise))
        msd[scheme] = pd.read_csv(out / "metrics.csv")["msd"].iloc[0]
    assert msd["hybrid"] == pytest.approx(msd["none"], rel=1e-4)
    assert msd["iid"] > 1.1 * msd["none"]


@pytest.mark.parametrize("scheme", thinned(["hybrid", "iid"], every=2))
def test_a_seed_never_fixes_the_noise(tmp_path, scheme):
    servers = []
    for name in ("first", "second"):
        experiment.run(config(tmp_path / name, scheme=scheme, rounds=1))
        frame = pd.read_csv(tmp_path / name / "metrics.csv")
        servers.append(frame["msd_servers"].iloc[0])
    # Rounding, in sums of another order, is far less.
    assert abs(servers[0] / servers[1] - 1) > 1e-5


def test_networks_side_by_side_draw_batches_of_their_own(tmp_path):
    """Of the same clients, all of a server's: a client's batch is its generator's."""
    settings = config(tmp_path, per_round=6, repetitions=2, batch_size=5)
    with RunFolder(settings) as folder:
        folder.resolve(partition_seed=5)
        system = settings.build(folder)
    train, zones = system.task.train, np.asarray(system.zoning.zone_of)
    cohort = np.argsort(zones, kind="stable")

    def rng_of(client):
        return np.random.default_rng([9, int(client)])

    for server, data in enumerate(system.round_data(1, cohort, rng_of)):
        (fields,) = data.as_numpy_iterator()
        assert fields["zone"].tolist() == [server, server + 4]
        for zone, features in zip(fields["zone"], fields["features"], strict=True):
            for client, found in zip(
                np.flatnonzero(zones == zone), features, strict=True
            ):
                x, _ = train.examples(client % 24)
                rows = rng_of(client).choice(len(x), 5, replace=False)
                np.testing.assert_array_equal(found, x[rows])
        assert (fields["features"][0] != fields["features"][1]).any(axis=(1, 2)).all()


def test_softmax_regression_on_a_real_task(tmp_path):
    settings = {"task": "digits", "model": "softmax", "batch_size": 4, "mu": 1.0}
    result = experiment.run(
        config(tmp_path, **settings, scheme="none", rounds=15, num_clients=40)
    )
    assert result.headline == "accuracy"
    assert result.accuracy > 0.6
    resolved = json.loads((tmp_path / "config.json").read_text())["resolved"]
    assert "Model: softmax: " in resolved["task"]
    assert resolved["task"].endswith("Dense 10 (650); 650 parameters.")


@pytest.mark.parametrize("graph", ["random", "ring", "complete"])
@pytest.mark.parametrize("servers", [1, 2, 7])
def test_graphs_are_connected(graph, servers):
    asked = GflConfig(graph=graph, servers=servers, scheme="none")
    found = gfl_setup.build_graph(asked, seed=1)
    assert set(found) == set(range(servers))
    assert nx.is_connected(found)
    again = gfl_setup.build_graph(asked, seed=1)
    assert set(found.edges) == set(again.edges)


def test_a_round_of_fewer_clients_than_are_accounted_is_refused(tmp_path):
    settings = config(tmp_path)
    with RunFolder(settings) as folder:
        folder.resolve(partition_seed=5)
        system = settings.build(folder)
    ledger, drawn = system.new_ledger(), settings.per_round
    system.record(ledger, {"clients": [drawn] * 4})
    with pytest.raises(NoiseError, match=f"^{drawn - 1} clients of zone 3 took part"):
        system.record(ledger, {"clients": [*[drawn] * 3, drawn - 1]})
    assert ledger.rounds == 1


def test_optimum_is_that_of_the_runs_own_data(tmp_path):
    """At the optimum the centroid's MSD is zero."""
    settings = config(tmp_path)
    with RunFolder(settings) as folder:
        folder.resolve(partition_seed=5)
        system = settings.build(folder)
    task = gfl_logistic.load(num_clients=24, seed=5)
    best = gfl_logistic.optimum(task.train, settings.ridge)
    state = system.initial_state(None)
    models = np.tile(best, (4, 1)).astype(np.float32)
    metrics = system.evaluate(state._replace(global_model_weights=models))
    assert metrics["msd"] < 1e-12
    assert metrics["msd_servers"] < 1e-12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servers": 25}, "servers is 25; allowed: 1..24"),
        ({"servers": 1}, "servers is 1; allowed: at least 2"),
        ({"batch_size": 101}, "batch_size is 101; allowed: at most 100"),
        ({"per_round": 7}, "per_round is 7; allowed: at most 6"),
        ({"servers": 8, "edge_probability": 1e-9}, "edge_probability is 1e-09"),
    ],
)
def test_flags_that_do_not_fit_the_task(tmp_path, changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        experiment.run(config(tmp_path, **changes))


def test_steps_that_float32_loses_in_the_weights_are_refused(tmp_path):
    """Digits' softmax begins with weights of norm 4 or so."""
    given = {"task": "digits", "num_clients": 20, "servers": 2, "sigma_g": 1e-6}
    words = r"^mu is 1e-05; allowed: at least 0\.000.* bound of 1 and weights of norm"
    with pytest.raises(ArgumentError, match=words):
        experiment.run(config(tmp_path, **given, mu=1e-5, gradient_bound=1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "secret"}, "scheme is secret; allowed: none, iid, hybrid"),
        ({"scheme": "none", "sigma_g": 0.2}, "sigma_g is 0.2; allowed: 0"),
        ({"sigma_g": -1.0}, "sigma_g is -1"),
        ({"mu": 0.0}, "mu is 0"),
        ({"edge_probability": 1.5}, "edge_probability is 1.5"),
        ({"per_round": 1}, "per_round is 1; allowed: at least 2"),
        ({"model": "dnn"}, "model is dnn; allowed: nothing with"),
        ({"dirichlet_alpha": 0.1}, "dirichlet_alpha is 0.1; .* task=gfl_logistic"),
        (
            {"graph": "ring", "edge_probability": 0.05},
            "edge_probability is 0.05; allowed: only with graph=random",
        ),
        ({"task": "digits", "repetitions": 2}, "repetitions is 2; .*task=gfl_logistic"),
    ],
)
def test_settings_that_contradict_each_other(changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        GflConfig(**changes)
