"""The command lines of GFL and HFL-DP, and what reproduces their papers."""

import json

import numpy as np
import pandas as pd
import pytest

from scripts.papers import presets
from scripts.papers.gfl import rates
from scripts.papers.gfl import trained as gfl_trained
from scripts.papers.hfl_dp import closed_form
from scripts.papers.hfl_dp import trained as hfl_dp_trained
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.report import Run
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("gfl.py", ["--scheme=dp"], ["--scheme", "dp", "hybrid"]),
        ("gfl.py", ["--sigma_g=-1"], ["--sigma_g", "-1"]),
        ("hfl_dp.py", ["--noise=dp"], ["--noise", "dp", "theorem_1"]),
        ("hfl_dp.py", ["--exposures=1,2"], ["--exposures", "t1,t2,t3,t4,t5"]),
        ("papers/gfl/reproduce.py", ["--what=figure9"], ["--what", "figure9", "mnist"]),
        ("papers/gfl/reproduce.py", ["--seed=1"], ["--seed is 1", "--seeds"]),
        ("papers/gfl/reproduce.py", ["--seeds=1,1"], ["--seeds is 1,1", "different"]),
        ("papers/gfl/reproduce.py", ["--seeds=1,01"], ["--seeds is 1,01", "different"]),
        ("papers/gfl/reproduce.py", ["--seeds="], ["--seeds is", "one or more"]),
        ("papers/hfl_dp/reproduce.py", ["--what=7"], ["--what", "7", "table3"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(
    assert_refused, script, arguments, named
):
    assert_refused(f"scripts/{script}", arguments, named)


def test_gfl_runs_and_prints_who_is_promised_what(run_program, tmp_path):
    result = run_program(
        *("scripts/gfl.py", "--num_clients=12", "--servers=3", "--per_round=2"),
        *("--rounds=2", f"--out={tmp_path}"),
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    for word in ("msd", "other_servers", "super_node", "no guarantee", "delta"):
        assert word in result.stdout


def test_the_papers_experiment_is_in_the_presets():
    for scheme in ("none", "iid", "hybrid"):
        config = presets.read(f"gfl/figure2_{scheme}", GflConfig)
        assert (config.servers, config.num_clients) == (10, 500)
        assert (config.dimension, config.mu, config.ridge) == (2, 0.1, 0.01)
        assert config.examples_per_client == 100
        assert config.sigma_g == (0.0 if scheme == "none" else 0.2)
        assert config.repetitions >= 20
    config = presets.read("hfl_dp/figure2_noisy", HflDpConfig)
    assert (config.k1, config.k2, config.k1 * config.rounds) == (2, 2, 50)
    assert (config.num_clients, config.edges, config.clip_norm) == (50, 5, 15.0)
    assert (config.eps1, config.eps2) == (20.0, 25.0)


def test_a_preset_can_be_changed():
    config = presets.read("gfl/figure2_iid", GflConfig, rounds=7, out="elsewhere")
    assert (config.rounds, config.out, config.scheme) == (7, "elsewhere", "iid")


def test_an_msd_is_flat_from_where_it_stays():
    falling = pd.Series(np.geomspace(1.0, 1e-3, 50)).tolist() + [1e-3] * 100
    msd = pd.Series(falling, index=range(10, 1510, 10))
    # At the fiftieth value it has fallen to the floor; the mean over the thirty before
    # it is below twice the floor some values later.
    assert 500 <= gfl_trained.flat_from(msd) <= 800
    assert gfl_trained.flat_from(pd.Series([1e-3] * 30, index=range(1, 31))) == 1
    rising = pd.Series(np.geomspace(1.0, 1e3, 50), index=range(1, 51))
    assert gfl_trained.flat_from(rising) > 30


def test_a_rate_tells_an_exponential_fall_from_a_slow_one():
    iterations = pd.Index(range(10, 1510, 10))
    falling = pd.Series(2.0 * np.exp(-0.02 * iterations) + 1e-4, index=iterations)
    found, fit = gfl_trained.rate(falling)
    # The floor is a tenth of the last one of these, and less before.
    assert found == pytest.approx(0.02, rel=0.02) and fit > 0.999
    slow = pd.Series(1.0 / iterations**2.0, index=iterations)
    assert gfl_trained.rate(slow)[1] < 0.95
    # Noise hides what a fall of 30 times might have shown.
    early = pd.Series(2.0 * np.exp(-0.02 * iterations) + 0.06, index=iterations)
    assert np.isnan(gfl_trained.rate(early)).all()


def test_slopes_are_those_of_powers():
    """An MSD of 1/mu, of sigma^2 above 3e-4, and of sigma^4 whatever mu."""
    rows = [("none", 0.0, mu, 3e-3 * mu) for mu in (0.05, 0.1, 0.2)]
    rows += [("iid", 0.2, mu, (3e-4 + 0.2**2) * 0.1 / mu) for mu in (0.05, 0.2)]
    rows += [("iid", s, 0.1, 3e-4 + s**2) for s in (0.05, 0.1, 0.2, 0.5)]
    rows += [("hybrid", s, 0.1, 3e-4 + s**4) for s in (0.05, 0.1, 0.5, 1.0)]
    rows += [("hybrid", 1.0, mu, 3e-4 + 1.0) for mu in (0.05, 0.2)]
    frame = pd.DataFrame(rows, columns=["scheme", "sigma_g", "mu", "msd"])
    found = rates.slopes(frame.assign(seed=0))
    found = found.set_index(["scheme", "over", "at"])["slope"]
    assert found["none", "mu", "sigma_g = 0"] == pytest.approx(1.0)
    assert found["iid", "mu", "sigma_g = 0.2"] == pytest.approx(-1.0)
    assert found["iid", "sigma_g", "mu = 0.1"] == pytest.approx(2.0)
    assert found["hybrid", "sigma_g", "mu = 0.1"] == pytest.approx(4.0)
    assert found["hybrid", "mu", "sigma_g = 1"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("k2", "accuracies", "of_the_cloud"),
    [
        (2, [0.1, 0.2, 0.3, 0.4, 0.5], 0.4),
        (2, [None, None, 0.3], None),
        (1, [0.7], 0.7),
    ],
)
def test_the_clouds_accuracy_is_of_its_own_last_model(
    tmp_path, monkeypatch, k2, accuracies, of_the_cloud
):
    rounds = range(1, len(accuracies) + 1)
    metrics = pd.DataFrame({"round": rounds, "accuracy": accuracies}, dtype=float)
    run = Run(tmp_path, "hfl_dp", {"k2": k2}, metrics, [], [])
    monkeypatch.setattr(hfl_dp_trained, "read_run", lambda _: run)
    resolved = {"noise": {"sigma_u1": 4.0, "n_e": 3.0}, "setting": {"n": 1}}
    (tmp_path / "config.json").write_text(json.dumps({"resolved": resolved}))
    found = hfl_dp_trained.measure(tmp_path)
    assert found.get("cloud_accuracy") == of_the_cloud
    assert found["edge_noise"] == 5.0


def test_the_printed_points_are_run_under_all_readings():
    """T = 50 and k1 = k2 = 2: 25 uploads, 12 of which the cloud's rounds take."""
    once, apart = (1.0, 13.0, 1.0, 1.0, 12.0), (25.0 - 12.0, 13.0, 12.0, 12.0, 12.0)
    for part, per_edge, counts in (
        ("readings", None, [once, apart]),
        ("per_edge", 100, [(), once, apart]),
    ):
        study = hfl_dp_trained.studies("full")[part]
        configs = [study.config(line, {}) for line in study.lines]
        second = configs[1]
        assert (second.edges, second.clients_per_edge) == (20, per_edge)
        assert second.num_clients == (100 if per_edge is None else 2000)
        assert [c.exposures for c in configs[::3]] == counts
        printed = [line.printed for line in study.lines]
        assert printed == [0.91, 0.82, 0.82] * len(counts)


def test_the_noise_is_theorem_1s_and_worth_less_than_stated():
    """c t 2C/m / eps with c = 4.8448053, C = 15 and 1,200 examples a client."""
    table = closed_form.noise().set_index("quantity")
    first = table.loc["client to edge, edge rounds"]
    assert first["noise"] == pytest.approx(4.8448053 * 25 * (30 / 1200) / 20)
    apart = closed_form.noise(exposures=(13, 13, 12, 12, 12)).set_index("quantity")
    assert apart.loc["client to edge, edge rounds", "noise"] == pytest.approx(
        4.8448053 * 13 * (30 / 1200) / 20
    )
    assert (table["epsilon_example"] < table["epsilon_stated"]).all()
    assert (table["epsilon_client"] > 1000 * table["epsilon_stated"]).all()
    epsilons = closed_form.epsilons().set_index("setting")
    assert epsilons.loc["figure 3", "m"] == 960
    assert (epsilons["super_node"] > epsilons["released_model"]).all()
    # Noise falls as 1/epsilon.
    by_epsilon = epsilons.filter(like="figure 4", axis=0)["released_model"]
    assert by_epsilon.is_monotonic_increasing


def test_a_setting_that_no_run_could_have_has_no_account():
    """And where an edge has one client, nobody is another client of it."""
    with pytest.raises(ArgumentError, match="edges is 7; allowed: a divisor of 50"):
        closed_form.noise(edges=7)
    with pytest.raises(ArgumentError, match="min_examples is 1201; allowed: at most"):
        closed_form.noise(min_examples=1201)
    with pytest.raises(ArgumentError, match="num_clients is 70000; allowed: at most"):
        closed_form.noise(num_clients=70_000, edges=10)
    alone = closed_form.epsilons(num_clients=100, edges=100)
    assert "edge_broadcast" not in alone
    assert alone["released_model"].notna().all()


def test_a_full_batch_is_all_of_a_clients_examples():
    study = hfl_dp_trained.studies("reduced")["full_batch"]
    for line in study.lines:
        config = study.config(line, {})
        assert (config.local_steps, config.k1) == (1, 2)
        assert config.batch_size >= 60_000


@pytest.mark.slow
def test_figure_2_of_gfl_is_reproduced(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/gfl/reproduce.py", "--scale=tiny", "--what=figure2"),
        *("--seeds=1", "--repetitions=2", f"--out={tmp_path}"),
        timeout=900,
    )
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(tmp_path / "gfl" / "figure2_tiny.csv")
    assert table.groupby("scheme").size().to_dict() == {
        "none": 3,
        "iid": 6,
        "hybrid": 8,
    }
    assert table["msd"].notna().all() and table["flat_from"].between(1, 6).all()
    assert (tmp_path / "gfl" / "figure2_tiny_slopes.csv").exists()
    for name in ("gfl_figure2_tiny", "gfl_figure2_tiny_rates"):
        assert (tmp_path / "tiny" / f"{name}.png").stat().st_size > 1000


@pytest.mark.slow
def test_figures_of_hfl_dp_are_reproduced(run_program, tmp_path, data_dir):
    result = run_program(
        *("scripts/papers/hfl_dp/reproduce.py", "--scale=tiny"),
        *("--what=figure2,figure6", "--seeds=1"),
        *(f"--data_dir={data_dir}", f"--out={tmp_path}"),
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "tiny" / "hfl_dp_figure2_tiny.png").stat().st_size > 1000
    table = pd.read_csv(tmp_path / "hfl_dp" / "figure2_tiny.csv")
    assert table["scheme"].tolist() == ["HierFAVG", "HFL-DP"]
    assert table["released_model.ldp.epsilon_rdp"].notna().sum() == 1
    assert len(pd.read_csv(tmp_path / "hfl_dp" / "figure6_tiny.csv")) == 3
