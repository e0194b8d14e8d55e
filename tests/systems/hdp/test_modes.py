"""The comparison of none and noisy modes: order, and what is refused."""

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import NoisePlan, PoissonSampling, planner
from tff_hdp.systems.hdp.modes import compare


def test_a_plan_for_others_is_refused_before_anything_trains(hdp_config, tmp_path):
    other = NoisePlan(zone_sizes=(3, 4), sampling=PoissonSampling((0.5, 0.5)))
    promises = {"released_model": 5.0}
    found = planner.plan(other, promises, rounds=2, delta=1e-5, method="rdp")
    found.write(tmp_path / "plan.json")
    given = {"noise_multiplier": None, "plan": str(tmp_path / "plan.json")}
    with pytest.raises(ArgumentError, match=r"plan.json; allowed: a plan for this run"):
        compare(hdp_config(tmp_path / "demo", **given))
    assert not (tmp_path / "demo" / "none").exists()
