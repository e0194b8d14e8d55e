"""The command lines of GFL and HFL-DP, and what reproduces their papers."""

import pandas as pd
import pytest

from scripts.papers import presets
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
        ("papers/hfl_dp/reproduce.py", ["--what=7"], ["--what", "7", "table"]),
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


@pytest.mark.slow
def test_figure_2_of_gfl_is_reproduced(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/gfl/reproduce.py", "--scale=tiny", "--what=figure2"),
        f"--out={tmp_path}",
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "figure2.png").stat().st_size > 1000
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["scheme"].tolist() == ["none", "iid", "hybrid", "iid", "hybrid"]
    assert table["msd"].notna().all()


@pytest.mark.slow
def test_figures_of_hfl_dp_are_reproduced(run_program, tmp_path, data_dir):
    result = run_program(
        *("scripts/papers/hfl_dp/reproduce.py", "--scale=tiny", "--what=2,6"),
        *(f"--data_dir={data_dir}", f"--out={tmp_path}"),
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "figures.png").stat().st_size > 1000
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 5
    assert table["epsilon_exact"].notna().sum() == 4
