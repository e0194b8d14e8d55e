"""Whole runs with elections, faults and levels: sound ledgers, nothing hangs."""

import collections
import dataclasses
import functools
import json
import shutil

import numpy as np
import pandas as pd
import pytest

import tasks
from tests.thinning import thinned
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import (
    Clipping,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    planned,
    worst,
)
from tff_hdp.simulation import experiment
from tff_hdp.systems.hdp.faults import Faults
from tff_hdp.systems.hdp.federation import build_federation
from tff_hdp.systems.hdp.run import Hdp
from tff_hdp.systems.hdp.seats import read_seats

FAULTS = {
    "elect_super_nodes": "persistent",
    "election_protocol": "drawn",
    "drop_rate": 0.1,
    "supernode_failure_rate": 0.3,
    "byzantine": ("3:0.1",),
}


@pytest.fixture(scope="module")
def hdp_config(hdp_config):
    """Longer runs of less work, for faults to happen."""
    return functools.partial(hdp_config, rounds=6, local_epochs=1)


@pytest.fixture(autouse=True)
def one_trace(traced_once):
    """Of the runs of a plan: faults change no process."""
    traced_once(Hdp)


@pytest.fixture(scope="module")
def faulty(hdp_config, tmp_path_factory, run_hdp):
    """What came of a run through faults."""
    return run_hdp(hdp_config(tmp_path_factory.mktemp("faulty"), **FAULTS))


def read(path):
    return pd.read_csv(path / "metrics.csv")


# Account ----------------------------------------------------------------------


def test_who_is_offline_is_accounted_as_dropped_out(hdp_config, tmp_path):
    assert Faults(drop_rate=0.1).loss_rate == 0.1
    assert Faults(drop_rate=0.1, online_rate=0.8).loss_rate == pytest.approx(0.28)
    config = hdp_config(
        tmp_path, privacy="ldp", noise_multiplier=1.0, drop_rate=0.1, online_rate=0.8
    )
    made = build_federation(
        config,
        config.load_task(0),
        partition_seed=0,
        clipping=Clipping(clip_norm=1.0),
    )
    assert made.threat.dropout_rate == pytest.approx(0.28)


# Runs -------------------------------------------------------------------------


def test_a_run_through_faults(faulty):
    frame = read(faulty.path)
    assert frame["failed_super_nodes"].sum() > 0
    assert frame["elections"].sum() > 4
    assert (frame["rejected"] == frame["byzantine"]).all()
    assert frame["byzantine"].sum() > 0
    assert (frame["empty_zones"] >= frame["skipped_zones"]).all()
    # Central noise is the plan's whoever fails.
    assert [count for _, count in faulty.ledger.history] == [6]
    threat = faulty.ledger.history[0][0].threat
    assert threat.elected_super_nodes
    assert threat.dropout_rate == 0.1
    (released,) = [r for r in faulty.accounts if r.observer == "released_model"]
    assert released.noise_multiplier == pytest.approx(np.sqrt(3))
    privacy = json.loads((faulty.path / "privacy.json").read_text())
    assert any("skipped for the round" in note for note in privacy["notes"])
    exposure = pd.read_csv(faulty.path / "exposure.csv")
    delivered = 6 * 4 - frame["skipped_zones"].sum()
    assert exposure["aggregates_seen"].sum() == delivered
    assert "clients saw an aggregate" in faulty.summary


def test_a_killed_run_goes_on_with_the_same_seats(hdp_config, faulty, tmp_path):
    whole, parts = faulty.path, tmp_path
    for rounds in (3, 6):
        experiment.run(hdp_config(parts, **FAULTS | {"rounds": rounds}))
    columns = ["clients", "dropped", "byzantine", "skipped_zones", "elections"]
    pd.testing.assert_frame_equal(read(whole)[columns], read(parts)[columns])
    for name in ("round_00004.json", "round_00006.json"):
        texts = [(out / "elections" / name).read_text() for out in (whole, parts)]
        assert texts[0] == texts[1]
    assert (whole / "exposure.csv").read_text() == (parts / "exposure.csv").read_text()


@pytest.mark.parametrize("policy", thinned(["persistent", "rotate"], every=2))
def test_who_led_a_round_that_was_released_again_saw_it_again(
    hdp_config, faulty, tmp_path, policy
):
    config = hdp_config(tmp_path, **FAULTS | {"elect_super_nodes": policy})
    if policy == FAULTS["elect_super_nodes"]:
        shutil.copytree(faulty.path, tmp_path, dirs_exist_ok=True)
    else:
        experiment.run(config)
    held, before = seats_of(tmp_path), read(tmp_path)
    for number in (5, 6):
        (tmp_path / "checkpoints" / f"round_{number:06d}").write_bytes(b"broken")
    again = experiment.run(config)
    assert again.ledger.rounds == 8
    assert seats_of(tmp_path) == held
    assert read(tmp_path)["clients"].tolist() != before["clients"].tolist()
    leaders = [held[number] for number in (1, 2, 3, 4, 5, 6, 5, 6)]
    seen = collections.Counter(leader for zones in leaders for leader in zones)
    del seen[None]
    exposure = pd.read_csv(tmp_path / "exposure.csv", index_col="client")
    assert exposure["aggregates_seen"].to_dict() == seen
    # An end before the lost rounds takes back nothing of what was seen.
    for number in (5, 6):
        (tmp_path / "checkpoints" / f"round_{number:06d}").write_bytes(b"broken")
    text = (tmp_path / "exposure.csv").read_text()
    experiment.run(dataclasses.replace(config, rounds=4))
    assert (tmp_path / "exposure.csv").read_text() == text
    assert seats_of(tmp_path) == held


def seats_of(path):
    """Every round's super-nodes, zone by zone."""
    rounds = read_seats(path / "elections")
    return {n: [seat.super_node for seat in seats] for n, seats in rounds.items()}


@pytest.mark.parametrize(
    "name", thinned(["registry.json", "round_00001.json"], every=2)
)
def test_damaged_elections_are_refused_before_another_round(hdp_config, tmp_path, name):
    experiment.run(hdp_config(tmp_path, **FAULTS | {"rounds": 1}))
    before = read(tmp_path)
    (tmp_path / "elections" / name).write_text("[3]")
    with pytest.raises(FileError, match=f"elections/{name}: "):
        experiment.run(hdp_config(tmp_path, **FAULTS | {"rounds": 2}))
    pd.testing.assert_frame_equal(read(tmp_path), before)


@pytest.mark.slow
def test_a_run_keeps_to_the_zones_it_began_with(hdp_config, tmp_path):
    file, out = tmp_path / "zones.csv", tmp_path / "run"
    ids = tasks.load("digits", seed=5).train.client_ids

    def write(zone_of):
        rows = [f"{c},{zone_of(i)}" for i, c in enumerate(ids)]
        file.write_text("\n".join(["client,zone", *rows]) + "\n")

    write(lambda i: i % 3)
    settings = {"zoning": "file", "zoning_file": str(file), "zones": None}
    experiment.run(hdp_config(out, rounds=1, **settings))
    before = (out / "metrics.csv").read_text()
    for bad, message in (
        (lambda i: i // 70, "zoning_file is .*; allowed: the zones with which"),
        (lambda i: f"zone {i % 3}", "zoning_file is .*; allowed: the zones with which"),
        (lambda i: "" if i == 7 else 1, "zones.csv: line 9"),
    ):
        write(bad)
        with pytest.raises((ArgumentError, FileError), match=message):
            experiment.run(hdp_config(out, rounds=2, **settings))
        assert (out / "metrics.csv").read_text() == before
    write(lambda i: i % 3)
    assert experiment.run(hdp_config(out, rounds=2, **settings)).ledger.rounds == 2


@pytest.mark.usefixtures("rdp_alone")
def test_rounds_without_a_zones_client_noise_cost_more(hdp_config, tmp_path):
    changes = {"privacy": "ldp", "supernode_failure_rate": 0.5, "zones": 3}
    result = experiment.run(hdp_config(tmp_path, **changes))
    frame = read(tmp_path)
    assert frame["skipped_zones"].sum() > 0
    assert skips_told(result) == frame["skipped_zones"].sum()
    assert (np.diff(frame["epsilon_rdp"], prepend=0) > 0).all()
    (first, _), *_ = result.ledger.history
    unskipped = dataclasses.replace(first.threat, skipped_zones=0)
    rows = account(first.plan, 6, 1e-5, ("rdp",), threat=unskipped)
    whole = worst(rows, "released_model").epsilon_rdp
    assert frame["epsilon_rdp"].iloc[-1] > 1.05 * whole


@pytest.mark.parametrize(
    "changes",
    thinned(
        [{"privacy": "hdp", "secure_aggregation": "server"}, {"privacy": "ldp"}],
        every=2,
    ),
    ids=str,
)
def test_the_ledger_does_not_tell_to_which_zones_nobody_came(
    hdp_config, tmp_path, changes
):
    """That depends on the cohort, which is hidden; what faults skip does not."""
    faults = {"supernode_failure_rate": 0.2, "clients_per_round": 3.0, "rounds": 4}
    result = experiment.run(hdp_config(tmp_path, **faults, **changes))
    frame = read(tmp_path)
    assert frame["empty_zones"].sum() > frame["skipped_zones"].sum()
    assert skips_told(result) == frame["skipped_zones"].sum()


def skips_told(result):
    """How many zones the ledger says were skipped, over all rounds."""
    return sum(run.threat.skipped_zones * n for run, n in result.ledger.history)


def test_byzantine_clients_noise_is_not_counted(hdp_config, tmp_path):
    settings = hdp_config(
        tmp_path, privacy="c5", alpha=0.4, byzantine=("1:0", "7:0.1", "9:0")
    )
    federation = build_federation(
        settings,
        tasks.load("digits", seed=0),
        partition_seed=0,
        clipping=Clipping(),
    )
    # A tenth of each zone's 50 clients, of which 20 noise.
    assert federation.threat.colluding_clients == 4 * 5
    assert federation.threat.colluders_in_zone == 5


def test_byzantine_clients_tell_when_they_come_though_they_carry_no_noise(
    hdp_config, tmp_path
):
    settings = hdp_config(tmp_path, privacy="hdp", sampling="fixed", byzantine=("0.3",))
    threat = build_federation(
        settings,
        tasks.load("digits", seed=0),
        partition_seed=0,
        clipping=Clipping(),
    ).threat
    assert (threat.colluding_clients, threat.colluding_in_zone) == (0, 15)


def test_when_all_zones_are_skipped_only_their_noise_is_released(hdp_config, tmp_path):
    result = experiment.run(
        hdp_config(tmp_path, rounds=2, supernode_failure_rate=0.999)
    )
    frame = read(tmp_path)
    assert frame["skipped_zones"].tolist() == [4, 4]
    assert frame["clients"].tolist() == [0, 0]
    assert frame["update_norm"].tolist() == [0.0, 0.0]
    assert frame["loss"].nunique() == 2
    assert np.isfinite(frame["loss"]).all()
    assert result.ledger.rounds == 2


def test_without_noise_a_round_goes_on_without_the_skipped_zones(hdp_config, tmp_path):
    changes = {"privacy": "none", "noise_multiplier": None, "rounds": 8}
    faults = FAULTS | {"supernode_failure_rate": 0.6}
    experiment.run(hdp_config(tmp_path, cohort_chunk=0, **changes, **faults))
    frame = read(tmp_path)
    assert frame["skipped_zones"].sum() > 0
    assert frame["loss"].iloc[-1] < frame["loss"].iloc[0] - 0.05


@pytest.mark.parametrize(
    "changes",
    thinned(
        [
            {
                "zoning": "capability",
                "zones": 5,
                "levels": ("3", "2"),
                "mixing": "equal",
            },
            {
                "zone_sizes": ("20", "80", "100"),
                "zones": None,
                "mixing": "0.5,0.25,0.25",
            },
            {
                **{"zoning": "overlay", "levels": ("2",), "noising_levels": ("2",)},
                "privacy": "levels",
            },
            {"secure_aggregation": "zone", "privacy": "ldp", **FAULTS},
        ],
        every=4,
    ),
    ids=str,
)
def test_every_zoning_trains_and_is_accounted(hdp_config, tmp_path, changes):
    result = experiment.run(hdp_config(tmp_path, rounds=1, **changes))
    released = [r for r in result.accounts if r.observer == "released_model"]
    assert released
    assert all(row.epsilon_rdp for row in released)
    levels = {row.level for row in result.accounts if row.observer == "super_node"}
    assert len(levels) == 1 + len(changes.get("levels", ()))


@pytest.mark.parametrize(
    "changes",
    [{"privacy": "ldp"}, {"privacy": "hdp", "secure_aggregation": "server"}],
    ids=str,
)
def test_a_target_that_skips_would_miss_is_refused(hdp_config, tmp_path, changes):
    target = {"noise_multiplier": None, "target_epsilon": 4.0}
    with pytest.raises(ArgumentError, match=r"target_epsilon is 4.0; .*skip a zone"):
        experiment.run(hdp_config(tmp_path, **target, **changes, **FAULTS))


def test_a_known_cohort_and_a_planners_noise_reach_the_account(hdp_config, tmp_path):
    sampling = PoissonSampling((40 / 200,) * 4)
    noise = planned.Planned(
        plan=NoisePlan(
            zone_sizes=(50,) * 4,
            sampling=sampling,
            zone_noise_multipliers=(1.0, 2.0, 3.0, 4.0),
        ),
        threat=ThreatModel(cohort_known=True),
        rounds=6,
        delta=1e-5,
    )
    noise.write(tmp_path / "plan.json")
    settings = hdp_config(
        tmp_path / "run",
        plan=str(tmp_path / "plan.json"),
        noise_multiplier=None,
        cohort_known=True,
        zone_sizes=("50",) * 4,
        clients_per_round=40.0,
    )
    build = functools.partial(
        build_federation,
        task=tasks.load("digits", seed=0),
        partition_seed=0,
        clipping=Clipping(),
    )
    federation = build(settings)
    assert federation.threat.cohort_known
    assert federation.plan.zone_noise_multipliers == (1.0, 2.0, 3.0, 4.0)
    rows = account(federation.plan, 1, 1e-5, ("rdp",), threat=federation.threat)
    seen = [r for r in rows if r.observer == "aggregator"]
    assert [r.noise_multiplier for r in seen] == [1.0, 2.0, 3.0, 4.0]
    assert all("revealed" in r.sampling for r in seen)
    other = dataclasses.replace(settings, clients_per_round=41.0)
    with pytest.raises(ArgumentError, match=r"plan is .*this run's clients_per_round"):
        build(other)
    with pytest.raises(ArgumentError, match=r"target_epsilon is 2.0; .*beside plan"):
        dataclasses.replace(settings, target_epsilon=2.0)
