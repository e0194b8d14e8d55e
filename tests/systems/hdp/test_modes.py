"""The comparison of none and noisy modes: order, and what is refused."""

import gc
import json
import pathlib

import pytest

import tasks
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import NoisePlan, PoissonSampling, planner
from tff_hdp.simulation import classifier
from tff_hdp.simulation.journal import Journal
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


def stubbed(monkeypatch, drawn=(1,)):
    """The settings of runs that are asked for, of which none trains.

    A run that is told no partition takes the next that is drawn.
    """
    asked, drawn = [], iter(drawn)

    def run(config, partition_seed):
        asked.append(config)
        path = pathlib.Path(config.out)
        if not path.exists():
            path.mkdir(parents=True)
            is_drawn = partition_seed is None
            dealt_by(path, next(drawn) if is_drawn else partition_seed)

    monkeypatch.setattr(modes.experiment, "run", run)
    monkeypatch.setattr(modes.report, "read_run", lambda path: path)
    monkeypatch.setattr(modes.report, "write_comparison", lambda runs, folder: None)
    return asked


def dealt_by(path, seed):
    record = {"resolved": {"partition_seed": seed}}
    (path / "config.json").write_text(json.dumps(record))
    (path / "journal.jsonl").unlink(missing_ok=True)
    Journal(path / "journal.jsonl").begin(record)


def test_modes_added_later_are_of_the_partition_that_is_there(
    hdp_config, tmp_path, monkeypatch
):
    stubbed(monkeypatch)
    for mode in ("hdp", "none"):
        (tmp_path / mode).mkdir()
        dealt_by(tmp_path / mode, 77)
    assert compare(hdp_config(tmp_path)) == [tmp_path / mode for mode in modes.MODES]
    assert modes._partition_of(tmp_path) == 77
    asked = stubbed(monkeypatch)
    (tmp_path / "cdp" / "config.json").write_text("{damaged")
    assert modes._partition_of(tmp_path) == 77
    dealt_by(tmp_path / "ldp", 78)
    with pytest.raises(ArgumentError, match=r"runs of one partition; .*'ldp': 78"):
        compare(hdp_config(tmp_path))
    assert not asked


def test_modes_asked_for_one_after_the_other_are_of_one_partition(
    hdp_config, tmp_path, monkeypatch
):
    """Others drew one of their own, and then all together were refused."""
    stubbed(monkeypatch, drawn=(1, 2))
    compare(hdp_config(tmp_path), ("none", "hdp"))
    compare(hdp_config(tmp_path), ("cdp", "ldp"))
    compare(hdp_config(tmp_path))


@pytest.mark.parametrize(
    "harm", [lambda path: path.write_text("{"), pathlib.Path.unlink]
)
def test_a_run_whose_settings_are_lost_is_of_the_same_partition_still(
    hdp_config, tmp_path, monkeypatch, harm
):
    stubbed(monkeypatch, drawn=(1, 2))
    compare(hdp_config(tmp_path), ("hdp",))
    harm(tmp_path / "hdp" / "config.json")
    compare(hdp_config(tmp_path), ("cdp",))
    assert json.loads((tmp_path / "cdp" / "config.json").read_text()) == {
        "resolved": {"partition_seed": 1}
    }


def test_without_noise_nobodys_epsilon_is_aimed_at(hdp_config, tmp_path, monkeypatch):
    """The last mode to train must not be refused for a setting of the others."""
    asked = stubbed(monkeypatch)
    aims = {"target_epsilon": 8.0, "target_observer": "aggregator"}
    levels = {"levels": ("2",), "noising_levels": ("2",)}
    compare(hdp_config(tmp_path, noise_multiplier=None, **aims, **levels))
    found = [(c.privacy, c.target_observer, c.noising_levels) for c in asked]
    assert found == [
        *((mode, "aggregator", (2,)) for mode in ("cdp", "hdp", "ldp")),
        ("none", "released_model", ()),
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
