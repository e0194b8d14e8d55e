"""Bad settings are refused by a line that names flag and value."""

import math

import pytest

from tff_hdp import systems
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.hdp.config import HdpConfig

GOOD = {"privacy": "hdp", "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": math.nan}, "noise_multiplier is nan"),
        ({"noise_multiplier": -1.0}, "noise_multiplier is -1.0"),
        ({"noise_multiplier": "1"}, "noise_multiplier is '1'; allowed: a finite"),
        ({"noise_multiplier": math.inf}, "noise_multiplier is inf"),
        ({"noise_multiplier": 1e-300}, "noise_multiplier is 1e-300"),
        ({"seed": -1}, "seed is -1; allowed: 0..4294967295"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"noise_multiplier": None}, "noise_multiplier is None; .*target_epsilon"),
        ({"target_epsilon": 1.0}, "noise_multiplier is 1.0; allowed: exactly one of"),
        ({"privacy": "none"}, "noise_multiplier is 1.0; allowed: nothing"),
        ({"privacy": "dp"}, "privacy is dp; allowed: none, ldp"),
        ({"privacy": "c3"}, r"beta is None; allowed: \[0, 1\]"),
        ({"privacy": "c5", "alpha": 1.5}, "alpha is 1.5"),
        ({"alpha": 0.5}, "alpha is 0.5; allowed: only with privacy=c5, c7"),
        ({"delta": 0.0}, r"delta is 0.0; allowed: \[1e-300, 1\)"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0; allowed: .*or auto"),
        ({"clip_norm": math.nan}, "clip_norm is nan"),
        ({"clip_norm": "big"}, "clip_norm is big"),
        ({"clients_per_round": 0.0}, "clients_per_round is 0.0"),
        ({"rounds": 0}, "rounds is 0"),
        ({"zones": 0}, "zones is 0"),
        ({"client_learning_rate": math.nan}, "client_learning_rate is nan"),
        ({"workers": ("h:1",)}, "workers is h:1; .*runtime=cluster"),
        ({"sampling": "all"}, "sampling is all; allowed: poisson, fixed"),
        ({"runtime": "gpu"}, "runtime is gpu; allowed: in_process, native"),
        ({"clipping": "adaptive"}, "clipping is adaptive; .*privacy=cdp"),
        (
            {"algorithm": "fedsgd", "local_epochs": 5},
            "local_epochs is 5; allowed: 1",
        ),
        (
            {"algorithm": "fedsgd", "client_optimizer": "adam"},
            "client_optimizer is adam; allowed: sgd with",
        ),
        (
            {"algorithm": "fedsgd", "client_learning_rate": 0.5},
            "client_learning_rate is 0.5; allowed: only with algorithm=fedavg",
        ),
        (
            {"algorithm": "fedsgd", "batch_size": 7},
            "batch_size is 7; allowed: only with algorithm=fedavg",
        ),
        ({"pilot_rounds": 3}, "pilot_rounds is 3; allowed: only with clip_norm=auto"),
        (
            {"privacy": "none", "noise_multiplier": 0.0},
            "noise_multiplier is 0.0; allowed: nothing with privacy=none",
        ),
        ({"local_epochs": 2**63 - 1}, "local_epochs is 9223.*; allowed: at most 10000"),
        ({"rounds": 10**9 + 1}, "rounds is 1000000001; allowed: at most 1000000000"),
        ({"example_cap": 10}, "example_cap is 10; .*weighting=examples"),
        ({"target_observer": "aggregator"}, "target_observer .*target_epsilon"),
        ({"zone_key": "land"}, "zone_key is land; allowed: only with zoning=key"),
        ({"voters": 5}, "voters is 5; allowed: only with elect_super_nodes"),
        ({"election_protocol": "drawn"}, "election_protocol .*elect_super_nodes"),
        ({"election_fault_model": "crash"}, "election_fault_model .*elect_super"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}") as error:
        HdpConfig(**GOOD | changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise_multiplier": None, "target_epsilon": 8.0},
        {"privacy": "none", "noise_multiplier": None},
        {"privacy": "c7", "alpha": 0.3, "beta": 0.3},
        {"privacy": "cdp", "clipping": "adaptive"},
        {"clip_norm": "auto"},
        {"algorithm": "fedsgd", "local_epochs": 1},
    ],
)
def test_good_settings_pass_and_serialise(changes):
    config = HdpConfig(**GOOD | changes)
    assert HdpConfig(**config.to_dict()) == config


@pytest.mark.parametrize("system", ["hfl_dp", "gfl", "fl_top", "udp_hypernet"])
def test_a_system_with_noise_of_its_own_refuses_a_plan(system):
    with pytest.raises(ArgumentError, match=f"plan is p.json; .*nothing with {system}"):
        systems.config_class(system)(plan="p.json")


@pytest.mark.parametrize("name", ["dimension", "examples_per_client", "repetitions"])
def test_gfl_refuses_what_only_its_own_task_has(name):
    config_class = systems.config_class("gfl")
    assert getattr(config_class(**{name: 7}), name) == 7
    with pytest.raises(ArgumentError, match=f"{name} is 7; .*task=gfl_logistic"):
        config_class(task="digits", **{name: 7})


def test_what_is_left_without_privacy_is_whole():
    asked = HdpConfig(
        **GOOD,
        elect_super_nodes="rotate",
        voters=5,
        election_protocol="drawn",
        min_capability=0.5,
        capability_file="c.csv",
        secure_aggregation="zone",
        secure_bits=28,
        rounds=7,
    )
    bare = asked.without_privacy()
    assert (bare.privacy, bare.elect_super_nodes, bare.rounds) == ("none", "none", 7)
    assert bare == HdpConfig(privacy="none", rounds=7, out=asked.out)


@pytest.mark.parametrize(
    ("system", "name"),
    [
        *[(name, "clip_norm") for name in ("hdp", "hfl_dp", "fl_top", "udp_hypernet")],
        *[("gfl", "gradient_bound"), ("udp_hypernet", "sigma")],
    ],
)
@pytest.mark.parametrize("value", [1e-13, 1e13, 1e300])
def test_a_bound_whose_square_float32_loses_is_refused(system, name, value):
    needed = {
        "hdp": GOOD,
        "fl_top": {"scheme": "fl_top_dp"},
        "udp_hypernet": {"noise_multiplier": 1.0} if name == "clip_norm" else {},
    }
    given = needed.get(system, {}) | {name: value}
    with pytest.raises(ArgumentError, match=rf"^{name} is .*1e\+12, whose squares"):
        systems.config_class(system)(**given)


@pytest.mark.parametrize("system", ["hdp", "fl_top", "udp_hypernet"])
def test_a_multiplier_that_nobody_means_is_refused(system):
    given = {"fl_top": {"scheme": "fl_top_dp"}}.get(system, {})
    with pytest.raises(
        ArgumentError, match=r"^noise_multiplier is 10000000.0; allowed: 1e-6"
    ):
        systems.config_class(system)(noise_multiplier=1e7, **given)
