"""Whole runs of HFL-DP: what they leave behind, extend, and refuse."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.thinning import thinned
from tff_hdp import systems
from tff_hdp.errors import ArgumentError, NoiseError
from tff_hdp.simulation import experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.hfl_dp import noise as formulas
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.plan import HflDpNoise
from tff_hdp.systems.hfl_dp.run import HflDp


def config(out, **changes):
    settings = {
        "task": "digits",
        "num_clients": 20,
        "edges": 2,
        "local_steps": 2,
        "batch_size": 8,
        "rounds": 3,
        "seed": 5,
        "out": str(out),
    }
    return HflDpConfig(**settings | changes)


def built(settings):
    """The system of a run, which does not begin."""
    with RunFolder(settings) as folder:
        folder.resolve(partition_seed=5)
        return settings.build(folder)


def recorded(system, rounds):
    """The ledger after rounds of everybody."""
    ledger, everybody = system.new_ledger(), [system.plan.n] * system.plan.N
    for number in range(1, rounds + 1):
        system.record(ledger, {"round": number, "clients": everybody})
    return ledger


@pytest.fixture(scope="module")
def by_theorem_1(tmp_path_factory):
    """What came of a run with the noise of Theorem 1."""
    folder = tmp_path_factory.mktemp("theorem_1")
    return experiment.run(config(folder, noise="theorem_1", rounds=4))


def test_a_run_by_theorem_1_says_what_it_is_worth(by_theorem_1):
    result, path = by_theorem_1, by_theorem_1.path
    assert [r.epsilon_paper for r in result.accounts] == [20.0, 20.0, 25.0, 25.0, None]
    # Where noise is too small for a PLD there is the epsilon by RDP.
    sound = [r.epsilon_pld or r.epsilon_rdp for r in result.accounts]
    assert min(sound) > 25.0
    privacy = json.loads((path / "privacy.json").read_text())
    notes = " ".join(privacy["notes"])
    assert "eps < 1 an exposure" in notes
    assert "whose sensitivity is 2C" in notes
    assert "how many examples the smallest client has" in notes
    assert all("m, the fewest examples" in r.assumptions for r in result.accounts)
    kinds = [entry["plan"]["cloud"] for entry in privacy["ledger"]["history"]]
    assert kinds == [False, True, False, True]
    table = pd.read_csv(path / "noise.csv")
    assert len(table) == 5
    assert (table["epsilon_client"] > table["epsilon_example"]).all()
    assert (table["delta"] == 1e-5).all()
    for words in ("epsilon_client", "replacing one example", "every round", "against"):
        assert words in result.summary
    # One example moves the model as far as all of a client's.
    assert "epsilon_example does not hold as run" in result.summary
    frame = pd.read_csv(path / "metrics.csv")
    assert frame["rejected"].tolist() == [0] * 4
    assert (frame["disagreement"].to_numpy() < 1e-6).tolist() == [
        False,
        True,
        False,
        True,
    ]
    # Epsilon in the progress bar: the released model's, by RDP.
    released = next(r for r in result.accounts if r.observer == "released_model")
    assert frame["epsilon_rdp"].iloc[-1] == pytest.approx(released.epsilon_rdp)
    found = evaluate_run(systems.config_of(path))
    assert found.accuracy == pytest.approx(frame["accuracy"].iloc[-1])
    assert found.zones["clients"].tolist() == [10, 10]


def test_what_a_client_is_promised_is_over_the_rounds_of_the_run(tmp_path):
    """Over those that send it: two uploads of four are of edge rounds."""
    once = config(
        tmp_path, noise="exact", exposures=(1, 1, 1, 1, 1), rounds=4, eps1=20.0
    )
    experiment.run(once)
    row = pd.read_csv(tmp_path / "noise.csv").iloc[0]
    assert row["exposures"] == 1
    exact = formulas.true_epsilon(
        sigma=row["noise"], sensitivity=2 * once.clip_norm, exposures=2, delta=1e-5
    )
    assert row["epsilon_client"] == pytest.approx(exact)
    assert row["epsilon_client"] > 1.5 * row["epsilon_stated"]


def test_exact_noise_keeps_its_word_as_recorded(tmp_path):
    """Alternating rounds spend eps1 and eps2 at most, at the own edge, together."""
    ledger = recorded(built(config(tmp_path, rounds=4)), 4)
    noise = HflDpNoise(
        **json.loads((tmp_path / "config.json").read_text())["resolved"]["noise"]
    )
    uploads = formulas.true_epsilon(
        sigma=noise.sigma_u1, sensitivity=30.0, exposures=4, delta=1e-5
    )
    assert uploads == pytest.approx(20.0)
    own = next(r for r in ledger.account(1e-5) if r.observer == "super_node")
    assert own.epsilon_paper is None
    assert "fewest examples" not in own.assumptions
    assert own.epsilon_pld < 25.0 + 20.0


def test_hierfavg_learns_and_promises_nothing(tmp_path):
    result = experiment.run(
        config(tmp_path, noise="none", rounds=10, learning_rate=0.3, local_steps=8)
    )
    assert result.accounts == []
    assert result.accuracy > 0.6
    assert not (tmp_path / "noise.csv").exists()


@pytest.mark.parametrize("noise", thinned(["exact", "theorem_1"], every=2))
def test_noise_is_for_the_rounds_it_was_chosen_for(tmp_path, traced_once, noise):
    traced_once(HflDp)
    experiment.run(config(tmp_path, noise=noise, rounds=2))
    with pytest.raises(ArgumentError, match="rounds is 8; allowed: 2"):
        experiment.run(config(tmp_path, noise=noise, rounds=8))


@pytest.mark.slow
def test_more_rounds_keep_the_noise_where_exposures_are_given(tmp_path):
    given = {"exposures": ("6", "3", "3", "3", "3")}
    experiment.run(config(tmp_path, rounds=2, **given))
    longer = experiment.run(config(tmp_path, rounds=6, **given))
    plans = {plan for plan, _ in longer.ledger.history}
    assert len(plans) == 2
    assert longer.ledger.rounds == 6


def test_a_round_that_is_run_again_counts_as_what_it_was(tmp_path, traced_once):
    traced_once(HflDp)
    settings = config(tmp_path, rounds=2)
    experiment.run(settings)
    (tmp_path / "checkpoints" / "round_000002").unlink()
    ledger = experiment.run(settings).ledger
    edge, cloud = (plan for plan, _ in ledger.history)
    assert ledger.history == ((edge, 1), (cloud, 2))
    # Twice what eps2 is for was sent to the edge, and the table says what it is worth.
    noise = pd.read_csv(tmp_path / "noise.csv").set_index("quantity")
    upload = noise.loc["client to edge, cloud rounds"]
    exact = formulas.true_epsilon(
        sigma=upload["noise"], sensitivity=30.0, exposures=2, delta=1e-5
    )
    assert upload["epsilon_client"] == pytest.approx(exact)
    assert exact > 1.3 * upload["epsilon_stated"]


def test_a_round_of_fewer_clients_than_are_accounted_is_refused(tmp_path):
    system = built(config(tmp_path))
    ledger, (*others, n) = recorded(system, 1), [system.plan.n] * system.plan.N
    where = f"^{n - 1} clients of zone {len(others)} took part"
    with pytest.raises(NoiseError, match=where):
        system.record(ledger, {"round": 2, "clients": [*others, n - 1]})
    assert ledger.rounds == 1


def test_a_seed_never_fixes_the_noise(by_theorem_1, tmp_path):
    experiment.run(config(tmp_path, noise="theorem_1", rounds=4))
    first, second = (
        pd.read_csv(path / "metrics.csv") for path in (by_theorem_1.path, tmp_path)
    )
    # Rounding, in sums of another order, is far less.
    assert (first["loss"] - second["loss"]).abs().max() > 1e-4


@pytest.mark.parametrize(("steps", "sizes"), [(2, [30, 30]), (30, [15] * 4)])
def test_little_work_has_a_chunk_an_edge(tmp_path, monkeypatch, steps, sizes):
    """What is more is shared out to the cores."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    system = built(config(tmp_path, num_clients=60, local_steps=steps, noise="none"))
    cohort = np.concatenate(system.zoning.members)
    data = system.round_data(1, cohort, np.random.default_rng)
    found = [len(chunk.get_single_element()["order"]) for chunk in data]
    assert found == sizes


def test_clients_per_edge_is_the_other_reading_of_n(tmp_path):
    settings = config(tmp_path, num_clients=None, clients_per_edge=7, edges=3)
    assert settings.num_clients == 21
    plan = built(settings).plan
    setting = json.loads((tmp_path / "config.json").read_text())["resolved"]["setting"]
    assert (setting["n"], setting["N"]) == (plan.n, plan.N) == (7, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": 3}, "edges is 3; allowed: a divisor of 20"),
        ({"model": "resnet"}, "model is resnet"),
        (
            {"min_examples": 10**6},
            "min_examples is 1000000; allowed: at most 71, the",
        ),
    ],
)
def test_flags_that_do_not_fit_the_task(tmp_path, changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        experiment.run(config(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "gaussian"}, "noise is gaussian; allowed: exact, theorem_1, none"),
        ({"k1": 0}, "k1 is 0"),
        ({"proximal": -1.0}, "proximal is -1"),
        (
            {"proximal": 5.0, "local_steps": 1},
            "proximal is 5.0; allowed: only with local_steps of 2 or more",
        ),
        ({"eps1": 0.0}, "eps1 is 0"),
        ({"exposures": ("1", "2")}, "exposures is 1.0,2.0; allowed: t1,t2"),
        ({"exposures": ("1", "2", "x", "1", "1")}, "exposures is x"),
        ({"noise": "none", "clip_norm": 1.0}, "clip_norm is 1.0; allowed: nothing"),
        ({"noise": "none", "eps1": 3.0}, "eps1 is 3.0; allowed: nothing with noise"),
        ({"noise": "none", "exposures": ("1",) * 5}, "exposures is 1.0,1.0"),
        ({"clients_per_edge": 3, "num_clients": 16}, "clients_per_edge is 3"),
        ({"clip_norm": -2.0}, "clip_norm is -2"),
    ],
)
def test_settings_that_contradict_each_other(changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        HflDpConfig(**changes)
