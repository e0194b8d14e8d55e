"""All five systems at one epsilon: what is asked of each, and what each reached."""

import dataclasses
from types import SimpleNamespace

import pandas as pd
import pytest

from scripts.papers.comparison import settings as matched_settings
from scripts.papers.comparison import trained
from scripts.papers.comparison.config import SYSTEMS, MatchedConfig
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl import plan as gfl

each = pytest.mark.parametrize("system", SYSTEMS)


def config(out, **changes):
    settings = {
        "task": "digits",
        "num_clients": 50,
        "clients_per_round": 10,
        "rounds": 3,
        "target_epsilon": 5.0,
        "batch_size": 5,
        "seed": 3,
        "out": str(out),
    }
    return MatchedConfig(**settings | changes)


@pytest.mark.slow
def test_every_system_runs_at_the_epsilon_asked_for(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/comparison/reproduce.py", "--scale=tiny", "--seeds=3"),
        *("--target_epsilon=5", f"--out={tmp_path}"),
        timeout=900,
    )
    assert result.returncode == 0, result.stderr
    found = pd.read_csv(tmp_path / "comparison" / "mnist_tiny.csv")
    assert found["system"].tolist() == [trained.NAMES[name] for name in SYSTEMS]
    assert found["accuracy"].between(0, 1).all()
    assert (found["delta"] == 1e-5).all()
    assert found["own_accuracy"].notna().tolist() == [False] * 4 + [True]
    epsilons = found.filter(regex=r"^released_model.*epsilon_rdp$").max(axis=1)
    assert epsilons.to_list() == pytest.approx([5.0] * 5, rel=1e-3)
    assert (epsilons <= 5.001).all()


@each
def test_without_noise_nothing_else_changes(system, tmp_path):
    noised = matched_settings.build_config(config(tmp_path), system)
    quiet = matched_settings.without_noise(noised)
    both = [dataclasses.asdict(built) for built in (noised, quiet)]
    changed = {name for name in both[0] if both[0][name] != both[1][name]}
    switches, noise = {"privacy", "scheme", "noise"}, {"clip_norm", "target_epsilon"}
    assert len(changed & switches) == 1
    assert changed <= switches | noise | {"noise_multiplier", "eps1", "eps2", "sigma_g"}
    assert quiet.label in ("none", "fl_top_0.05", "hierfavg", "gfl_none")


def test_gfls_noise_is_for_the_bound_that_the_comparison_has(tmp_path):
    two, one = (
        matched_settings.build_config(config(tmp_path, gradient_bound=bound), "gfl")
        for bound in (2.0, 1.0)
    )
    assert (two.gradient_bound, one.gradient_bound) == (2.0, 1.0)
    assert one.sigma_g == pytest.approx(two.sigma_g / 2, rel=1e-6)


@pytest.mark.slow
def test_without_noise_nobody_is_promised_anything(run_program, tmp_path):
    program = "scripts/papers/comparison/reproduce.py"
    given = ("--what=mnist_without_noise", "--scale=tiny", "--seeds=3")
    result = run_program(program, *given, f"--out={tmp_path}", timeout=900)
    assert result.returncode == 0, result.stderr
    found = pd.read_csv(tmp_path / "comparison" / "mnist_without_noise_tiny.csv")
    assert found["system"].tolist() == ["HDP", "FL-TOP", "HFL-DP", "GFL", "UDP-Alg"]
    epsilons = found.filter(like="epsilon").select_dtypes("number")
    assert not (epsilons < float("inf")).any(axis=None)


def test_another_epsilon_than_asked_for_is_refused(tmp_path, monkeypatch):
    row = dataclasses.make_dataclass("Row", ["epsilon_rdp"])(5.1)
    monkeypatch.setattr(trained, "read_run", lambda path: SimpleNamespace(accounts=[]))
    monkeypatch.setattr(trained, "released", lambda accounts: row)
    with pytest.raises(ArgumentError, match=r"target_epsilon is 5.0; .* which is 5.1"):
        trained.measure(tmp_path, target=5.0)


def test_gfls_noise_is_the_least_that_meets_the_target(tmp_path):
    asked = matched_settings.build_config(config(tmp_path), "gfl")
    plan = gfl.GflPlan(
        scheme="iid",
        mu=asked.mu,
        B=asked.gradient_bound,
        sigma_g=asked.sigma_g,
        dimension=65 * 10,
        clients=10,
        per_round=2,
    )

    def epsilon(one):
        return gfl_account.account([(one, 3)], 1e-5, ("rdp",))[-1].epsilon_rdp

    assert epsilon(plan) <= 5.0
    less = dataclasses.replace(plan, sigma_g=0.999 * plan.sigma_g)
    assert epsilon(less) > 5.0


@pytest.mark.parametrize("target", [0.3, 1.7, 40.0])
def test_least_is_on_the_safe_side_of_a_known_root(target):
    found = matched_settings._least(lambda x: 3.0 / x**2, target)
    assert 3.0 / found**2 <= target
    assert found == pytest.approx((3.0 / target) ** 0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_clients": None}, "num_clients is None"),
        ({"groups": 7}, "groups is 7"),
        ({"clients_per_round": 51}, "clients_per_round is 51"),
        ({"target_epsilon": 0.0}, "target_epsilon is 0"),
    ],
)
def test_a_bad_setting_names_the_flag(tmp_path, changes, named):
    with pytest.raises(ArgumentError, match=named):
        config(tmp_path, **changes)


@each
def test_what_all_runs_share_reaches_every_system(system, tmp_path):
    """Some settings of the command line did nothing."""
    changes = {
        "compute_dtype": "bfloat16",
        "log_every": 3,
        "quiet": True,
        "delta": 1e-4,
    }
    asked = config(tmp_path, evaluate_every=2, **changes)
    built = matched_settings.build_config(asked, system)
    for field in dataclasses.fields(RunConfig):
        if field.name not in ("model", "out"):
            own, given = getattr(built, field.name), getattr(asked, field.name)
            assert own == given, field.name
