"""The comparison of none and noisy modes: order, and what is refused."""

import gc
import json
import pathlib
import types

import pytest

import tasks
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import NoisePlan, PoissonSampling, planner
from tff_hdp.simulation import classifier
from tff_hdp.systems.hdp import modes
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


def test_without_noise_nobodys_epsilon_is_aimed_at(hdp_config, tmp_path, monkeypatch):
    """The last mode to train must not be refused for a setting of the others."""
    asked = []

    def run(config, partition_seed):
        asked.append(config)
        path = pathlib.Path(config.out)
        path.mkdir(parents=True)
        record = {"resolved": {"partition_seed": 1}}
        (path / "config.json").write_text(json.dumps(record))
        return types.SimpleNamespace(path=path)

    monkeypatch.setattr(modes.experiment, "run", run)
    monkeypatch.setattr(modes.report, "read_run", lambda path: path)
    monkeypatch.setattr(modes.report, "write_comparison", lambda runs, folder: None)
    aims = {"target_epsilon": 8.0, "target_observer": "aggregator"}
    compare(hdp_config(tmp_path, noise_multiplier=None, **aims))
    found = [(config.privacy, config.target_observer) for config in asked]
    assert found == [
        *((mode, "aggregator") for mode in ("ldp", "hdp", "cdp")),
        ("none", "released_model"),
    ]


@pytest.mark.slow
def test_modes_share_data_and_evaluation(hdp_config, tmp_path, monkeypatch):
    gc.collect()
    called, before = [], len(classifier._EVALUATIONS)
    for module, name in ((tasks, "load_task"), (classifier, "build_evaluation")):
        whole = getattr(module, name)

        def counted(*args, name=name, whole=whole, **options):
            called.append(name)
            return whole(*args, **options)

        monkeypatch.setattr(module, name, counted)
    compare(hdp_config(tmp_path / "demo"), ("none", "hdp"))
    assert called == ["load_task", "build_evaluation"]
    gc.collect()
    assert len(classifier._EVALUATIONS) == before
    # Afterwards nothing is kept that a later run would find.
    compare(hdp_config(tmp_path / "again"), ("none",))
    assert called == ["load_task", "build_evaluation"] * 2
