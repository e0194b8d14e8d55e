"""A run under a plan: held to what it promises, in a folder that stands alone."""

import dataclasses
import functools
import json
import math
import os
import re
from types import SimpleNamespace

import pytest

import tasks
from tff_hdp import systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    planner,
    worst,
)
from tff_hdp.privacy.planned import Planned
from tff_hdp.privacy.promises import Kept, Promise
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.simulation import experiment, report
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.simulation.run_folder import RunFolder, _promise_note
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import build_federation
from tff_hdp.systems.hdp.planned import (
    check_promises,
    kept_promises,
    with_own_plan,
    with_plan_copied,
)

FEDERATION = NoisePlan(
    zone_sizes=(50,) * 4,
    sampling=PoissonSampling((40 / 200,) * 4),
    noising_clients=(5,) * 4,
)
PROMISES = {"super_node": 40.0, "released_model": 6.0}


@pytest.fixture(scope="module")
def made():
    return planner.plan(FEDERATION, PROMISES, rounds=2, delta=1e-5, method="rdp")


def settings(hdp_config, tmp_path, made, **changes):
    made.write(tmp_path / "plan.json")
    given = {
        "plan": str(tmp_path / "plan.json"),
        "noise_multiplier": None,
        "zone_sizes": ("50",) * 4,
        "clients_per_round": 40.0,
        "rounds": 2,
    }
    return hdp_config(tmp_path / "run", **given | changes)


def build(config):
    task = tasks.load("digits", seed=0)
    return build_federation(config, task, partition_seed=0, clipping=Clipping())


def test_the_file_given_may_go_once_a_run_has_begun(hdp_config, tmp_path, made):
    config = settings(hdp_config, tmp_path, made)
    with RunFolder(config) as folder:
        own = with_plan_copied(with_own_plan(config, folder), folder)
        (tmp_path / "plan.json").unlink()
        assert build(own).plan.node_noise == made.plan.node_noise
        assert with_own_plan(config, folder) == own
        # What is there is not written again, as where a model is tested.
        copy = folder.path / "plan.json"
        os.utime(copy, (1, 1))
        assert with_plan_copied(own, folder) == own and copy.stat().st_mtime == 1


def test_a_refusal_at_the_first_start_names_the_file_given(hdp_config, tmp_path, made):
    """The folder's copy goes with the folder."""
    given = re.escape(str(tmp_path / "plan.json"))
    for changes, words in (
        ({"mixing": "equal"}, f"plan is {given}; allowed: a plan for"),
        ({"rounds": 3}, f"which the promises of {given} are for"),
    ):
        with pytest.raises(ArgumentError, match=words):
            experiment.run(settings(hdp_config, tmp_path, made, **changes))
        assert not (tmp_path / "run").exists()


def test_a_plan_that_is_changed_before_it_is_copied_is_refused(
    hdp_config, tmp_path, made
):
    config = settings(hdp_config, tmp_path, made)
    with RunFolder(config) as folder:
        own = with_own_plan(config, folder)
        (tmp_path / "plan.json").write_text("{}")
        with pytest.raises(FileError, match="is not the plan that the run in"):
            with_plan_copied(own, folder)
        assert not (folder.path / "plan.json").exists()


def test_a_run_may_lose_as_many_clients_as_planned(hdp_config, tmp_path):
    """In floating point 1 - .95 is more than .05."""
    given = {"rounds": 2, "delta": 1e-5, "method": "rdp"}
    threat = ThreatModel(dropout_rate=0.05)
    kept = planner.plan(FEDERATION, PROMISES, threat=threat, **given)
    found = build(settings(hdp_config, tmp_path, kept, online_rate=0.95))
    assert found.threat.dropout_rate > 0.05
    with pytest.raises(ArgumentError, match=r"online_rate is 0\.94; allowed: what"):
        build(settings(hdp_config, tmp_path, kept, online_rate=0.94))


def test_the_drop_rate_that_a_refusal_allows_is_taken(hdp_config, tmp_path):
    given = {"rounds": 2, "delta": 1e-5, "method": "rdp"}
    threat = ThreatModel(dropout_rate=0.1234567)
    kept = planner.plan(FEDERATION, PROMISES, threat=threat, **given)
    with pytest.raises(ArgumentError, match="allowed: at most") as caught:
        build(settings(hdp_config, tmp_path, kept, drop_rate=0.2))
    (most,) = re.findall(r"at most (\S+),", caught.value.allowed)
    build(settings(hdp_config, tmp_path, kept, drop_rate=float(most)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 3}, "rounds is 3; allowed: at most 2, which the promises of"),
        ({"delta": 1e-7}, "delta is 1e-07; allowed: at least 1e-05, which"),
        ({"drop_rate": 0.5}, "drop_rate is 0.5; allowed: at most 0.0, which"),
        ({"online_rate": 0.9}, "online_rate is 0.9; allowed: what with drop_rate"),
        ({"cohort_known": True}, "cohort_known is True; allowed: False, which"),
        ({"supernode_failure_rate": 0.1}, "supernode_failure_rate is 0.1; allowed: 0,"),
        (
            {"elect_super_nodes": "rotate", "election_protocol": "drawn"},
            "elect_super_nodes is rotate; allowed: none, which",
        ),
        (
            {"byzantine": ("0.2",)},
            "byzantine is 0.2; allowed: a share of at most 0 noising clients and",
        ),
        (
            {"weighting": "examples", "mixing": "equal"},
            "plan is .*plan.json; allowed: a plan for this run's mixing",
        ),
    ],
    ids=str,
)
def test_a_run_that_contradicts_its_plan_is_refused(
    hdp_config, tmp_path, made, changes, words
):
    with pytest.raises(ArgumentError, match=words) as caught:
        build(settings(hdp_config, tmp_path, made, **changes))
    assert "\n" not in str(caught.value)


def test_a_run_has_the_levels_of_its_plan(hdp_config, tmp_path):
    """As many nodes are the plan's, not dealt at random; others are refused."""
    federation = dataclasses.replace(
        FEDERATION, upper_levels=(Level((0, 1, 1, 1), (0.0, 0.0)),)
    )
    made = planner.plan(federation, PROMISES, rounds=2, delta=1e-5, method="rdp")
    run = build(settings(hdp_config, tmp_path, made, levels=("2",)))
    assert run.zoning.parents == ((0, 1, 1, 1),)
    assert run.plan.upper_levels == made.plan.upper_levels
    for levels in ((), ("3",), ("2", "1")):
        with pytest.raises(ArgumentError, match="a plan for this run's levels, "):
            build(settings(hdp_config, tmp_path, made, levels=levels))


def test_clients_that_unmask_sums_are_refused_where_sums_were_to_hold(
    hdp_config, tmp_path, made
):
    config = settings(hdp_config, tmp_path, made)
    threat = dataclasses.replace(made.threat, secure_sums_hold=False)
    with pytest.raises(ArgumentError, match=r"byzantine is .* unmask secure sums"):
        check_promises(config, made.plan, threat)
    weaker = dataclasses.replace(made, threat=threat)
    check_promises(settings(hdp_config, tmp_path, weaker), made.plan, threat)


def test_byzantine_clients_without_noise_who_know_nothing_break_no_promise(
    hdp_config, tmp_path
):
    """Of fixed cohorts, or of peers that mask together, they know who came."""
    federation = dataclasses.replace(FEDERATION, noising_clients=(0,) * 4)
    made = planner.plan(
        federation, {"released_model": 6.0}, rounds=2, delta=1e-5, method="rdp"
    )
    config = settings(hdp_config, tmp_path, made, byzantine=("0.1",))
    threat = build(config).threat
    assert (threat.colluding_clients, threat.colluders_in_zone) == (0, 5)
    told = dataclasses.replace(threat, peers_known=True)
    knowing = dataclasses.replace(made, threat=ThreatModel(peers_known=True))
    config = settings(hdp_config, tmp_path, knowing, byzantine=("0.1",))
    with pytest.raises(ArgumentError, match=r"byzantine is .*0 of a zone"):
        check_promises(config, made.plan, told)


def test_byzantine_clients_who_may_have_their_zone_left_out_are_counted(
    hdp_config, tmp_path
):
    """By staying away they decide that a client's coming shows its zone."""
    sums = {"secure_aggregation": True, "min_zone_clients": 2}
    federation = dataclasses.replace(FEDERATION, noising_clients=(0,) * 4, **sums)
    made = planner.plan(
        federation,
        {"released_model": 6.0},
        rounds=2,
        delta=1e-5,
        threat=ThreatModel(secure_sums_hold=False),
        method="rdp",
    )
    sums = {"byzantine": ("0.1",), "secure_aggregation": "zone"}
    with pytest.raises(ArgumentError, match=r"byzantine is .*0 of a zone"):
        build(settings(hdp_config, tmp_path, made, **sums))


@pytest.mark.parametrize("changes", [{"rounds": 1}, {"delta": 1e-3}], ids=str)
def test_less_than_was_planned_for_is_fine(hdp_config, tmp_path, made, changes):
    federation = build(settings(hdp_config, tmp_path, made, **changes))
    assert federation.plan.client_noise_multiplier == made.plan.client_noise_multiplier


def test_a_sum_that_was_not_planned_for_is_accounted_first(hdp_config, tmp_path):
    """Weighted clients in zones that count alike: the model's noise is another."""
    everybody = dataclasses.replace(
        FEDERATION, mixing="equal", noising_clients=(50,) * 4
    )
    own, options = {"super_node": 8.0}, {"rounds": 2, "delta": 1e-5, "method": "rdp"}
    alone = planner.plan(everybody, own, **options).plan
    epsilon = worst(account(alone, 2, 1e-5, ("rdp",)), "released_model").epsilon_rdp
    far = {"released_model": 1.0001 * epsilon}
    found = planner.plan(everybody, own | far, **options)
    changes = {"weighting": "examples", "mixing": "equal"}
    with pytest.raises(ArgumentError, match=r"a plan whose released_model<=.* run"):
        build(settings(hdp_config, tmp_path, found, **changes))


def test_a_file_whose_noise_is_not_that_of_its_promises_starts_no_run(
    hdp_config, tmp_path, made
):
    less = tuple(z / 2 for z in made.plan.zone_noise_multipliers)
    plan = dataclasses.replace(
        made.plan, zone_noise_multipliers=less, client_noise_multiplier=1e-3
    )
    config = settings(hdp_config, tmp_path, dataclasses.replace(made, plan=plan))
    with pytest.raises(ArgumentError, match=r"a plan whose .*<=.* this run keeps; it"):
        check_promises(config, plan, ThreatModel())


def test_a_clip_that_was_not_planned_for_is_accounted_first(hdp_config, tmp_path):
    """A zeroed update moves adaptive clipping's count too, and twice as far."""
    central = dataclasses.replace(FEDERATION, noising_clients=(0,) * 4)
    threat = ThreatModel(neighbours="zero_out")
    made = planner.plan(
        central, {"released_model": 2.0}, rounds=2, delta=1e-5, threat=threat
    )
    config = settings(hdp_config, tmp_path, made)
    layers, adaptive = (
        dataclasses.replace(made.plan, clipping=Clipping(kind=kind))
        for kind in ("per_layer", "adaptive")
    )
    check_promises(config, layers, ThreatModel())
    rows = account(adaptive, 2, 1e-5, threat=threat)
    assert worst(rows, "released_model", method="pld").epsilon_pld > 2.0
    with pytest.raises(ArgumentError, match=r"a plan whose released_model<=2 this run"):
        check_promises(config, adaptive, ThreatModel())


@pytest.mark.slow
def test_a_run_says_what_came_of_its_promises_and_stands_alone(
    hdp_config, tmp_path, made
):
    config = settings(hdp_config, tmp_path, made, rounds=1)
    path = experiment.run(config).path
    privacy = json.loads((path / "privacy.json").read_text())
    one = {each["promise"]: each for each in privacy["promises"]}
    assert set(one) == {"super_node<=40", "released_model<=6"}
    assert all(each["kept"] and each["delta"] == 1e-5 for each in one.values())
    assert 0 < one["released_model<=6"]["epsilon"] < 6
    for name, each in one.items():
        note = next(n for n in privacy["notes"] if n.startswith(f"Promised {name}"))
        rows = [a for a in privacy["accounts"] if name.startswith(a["observer"])]
        assert {f"{a['neighbours']} neighbours; {a['sampling']}" for a in rows} == set(
            each["rests_on"]
        )
        assert all(words in note for words in ("delta 1e-05", *each["rests_on"]))
    assert "Promised released_model<=6: kept, epsilon" in " ".join(privacy["notes"])
    two = experiment.run(dataclasses.replace(config, rounds=2))
    reached = dict(
        zip(
            ("super_node<=40", "released_model<=6"),
            (kept.epsilon for kept in made.kept),
            strict=True,
        )
    )
    for each in json.loads((path / "privacy.json").read_text())["promises"]:
        # Fewer coordinates than planned for draw fewer numbers.
        assert each["epsilon"] == pytest.approx(reached[each["promise"]], rel=1e-3)
    assert report.read_run(two.path).accounts == two.accounts
    with pytest.raises(ArgumentError, match="rounds is 3; allowed: at most 2"):
        experiment.run(dataclasses.replace(config, rounds=3))
    (tmp_path / "plan.json").unlink()
    assert evaluate_run(systems.config_of(path)).accuracy >= 0
    config.check_plan()  # as the program does first
    experiment.run(dataclasses.replace(config, rounds=2))
    # Another plan under that name is not the run's.
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(FileError, match="is not the plan that the run in"):
        experiment.run(dataclasses.replace(config, rounds=2))
    (tmp_path / "plan.json").unlink()
    (path / "plan.json").write_text("{}")
    with pytest.raises(FileError, match=r"run/plan.json: is not the plan"):
        experiment.run(dataclasses.replace(config, rounds=2))


def test_rounds_that_are_run_again_break_no_promise(hdp_config, tmp_path, made):
    """The plan is for two; one that was released and lost would be a third."""
    config = settings(hdp_config, tmp_path, made, rounds=2)
    path = experiment.run(config).path
    (path / "checkpoints" / "round_000002").unlink()
    before = (path / "journal.jsonl").read_bytes()
    with pytest.raises(
        ArgumentError, match=r"rounds is 2; allowed: at most 1: .* for 2 rounds, and 1"
    ):
        experiment.run(config)
    assert (path / "journal.jsonl").read_bytes() == before


def test_promises_are_accounted_with_what_the_plan_assumes(made):
    strict = dataclasses.replace(made, threat=ThreatModel(cohort_known=True))
    kept = Kept(promise=Promise("aggregator", 20.0), epsilon=20.0, noise=1.0)
    strict = dataclasses.replace(strict, kept=(kept,))
    noisy = dataclasses.replace(made.plan, zone_noise_multipliers=(2.0,) * 4)
    epsilon_of = functools.partial(
        strict.reached, [(AccountedRound(noisy, ThreatModel()), 2)]
    )
    ((_, known),) = epsilon_of()
    hidden = dataclasses.replace(strict, threat=ThreatModel())
    ((_, guessed),) = hidden.reached([(AccountedRound(noisy, ThreatModel()), 2)])
    assert guessed <= known < math.inf
    assert strict.reached([]) == [(kept.promise, 0.0)]


def broken():
    """A plan whose second promise alone is kept by two rounds of it."""
    plan = NoisePlan(
        zone_sizes=(10,) * 3,
        sampling=FullParticipation(),
        zone_noise_multipliers=(8.0,) * 3,
    )
    kept = tuple(
        Kept(promise=Promise(observer, epsilon), epsilon=epsilon, noise=1.0)
        for observer, epsilon in (("aggregator", 0.1), ("released_model", 9.0))
    )
    return Planned(
        plan=plan,
        threat=ThreatModel(),
        rounds=2,
        delta=1e-5,
        method="rdp",
        kept=kept,
    )


def test_a_promise_that_was_broken_is_told(tmp_path):
    made = broken()
    made.write(tmp_path / "plan.json")
    config = SimpleNamespace(plan=tmp_path / "plan.json")
    found = kept_promises(config, [(AccountedRound(made.plan), 2)])
    assert [promise["kept"] for promise in found] == [False, True]
    assert ["NOT KEPT" in _promise_note(promise) for promise in found] == [True, False]


def test_a_runs_copy_of_its_plan_outlives_a_loss_of_power(tmp_path, monkeypatch):
    flush, flushed = os.fsync, []

    def noting(descriptor):
        flush(descriptor)
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", noting)
    broken().write(tmp_path / "given.json")
    out = tmp_path / "run"
    out.mkdir()
    config = HdpConfig(plan=str(tmp_path / "given.json"))
    with_plan_copied(config, SimpleNamespace(path=out, resolved={}))
    assert any("plan.json" in path.rpartition("/")[2] for path in flushed)
