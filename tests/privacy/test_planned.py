"""A plan's file: what is written, read back and refused."""

import dataclasses
import functools
import json

import pytest

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    planned,
    worst,
)
from tff_hdp.privacy.accountant import account_history
from tff_hdp.privacy.promises import Kept, Promise
from tff_hdp.privacy.threat import AccountedRound

PLAN = NoisePlan(
    zone_sizes=(20,) * 4, sampling=PoissonSampling((0.3,) * 4), noising_clients=(6,) * 4
)


def planned_for(plan, kept):
    """Ten rounds of a plan that keep a promise, accounted by Renyi DP."""
    return planned.Planned(
        plan=plan,
        threat=ThreatModel(),
        rounds=10,
        delta=1e-5,
        method="rdp",
        kept=(kept,),
    )


@pytest.mark.parametrize(
    "sampling",
    [FullParticipation(), FixedSizeSampling((6,) * 4), PLAN.sampling],
    ids=str,
)
def test_a_plan_goes_through_its_file(tmp_path, sampling):
    plan = dataclasses.replace(PLAN, sampling=sampling, server_noise_multiplier=2.0)
    threat = ThreatModel(dropout_rate=0.05)
    kept = Kept(promise=Promise("aggregator", 3.0), epsilon=2.9, noise=1.0)
    found = planned.Planned(
        plan=plan, threat=threat, rounds=20, delta=1e-5, kept=(kept,)
    )
    path = tmp_path / "plan.json"
    found.write(path)
    read = planned.read_plan(path)
    assert read == found
    fields = json.loads(path.read_text())
    for wrong, words in (
        ({"format": None}, "format None, not 3: make it again with scripts/plan.py"),
        ({"method": "paper"}, "method is paper; allowed: rdp, pld"),
        ({"plan": {}}, "plan is"),
        ({"trusting": [1]}, "trusting is 1; allowed: 4 entries"),
        ({"trusting": ["x"]}, r"trusting\[0\] is x"),
        ({"noising": [1]}, r"noising\[0\] is 1; allowed: the id of a client"),
        ({"noise": "x"}, "noise is x; allowed: a finite number"),
        ({"rounds": 0}, "rounds is 0; allowed: a whole number >= 1"),
        ({"kept": [fields["kept"][0] | {"epsilon": "x"}]}, "epsilon is x"),
        ({"kept": [fields["kept"][0] | {"saved": -1.0}]}, "saved is -1.0"),
        (
            {"kept": [{"promise": fields["kept"][0]["promise"]}]},
            "Kept is epsilon,noise,saved; allowed: the fields",
        ),
        (
            {"kept": [{"promise": {"observer": "super_node", "epsilon": 1.0}}]},
            "Promise is level; allowed: the fields",
        ),
        ({"noising": ["a", "b", "a"]}, "noising is a; allowed: every client once"),
        # Read as none, they would be no promise and no level.
        ({"kept": {}}, "kept is {}; allowed: a sequence"),
        ({"kept": ""}, "kept is empty; allowed: a sequence"),
        (
            {"plan": fields["plan"] | {"upper_levels": {}}},
            "upper_levels is {}; allowed: a sequence",
        ),
        (
            {"plan": fields["plan"] | {"server_noise_multiplier": 1e308}},
            r"server_noise_multiplier is 1e\+308",
        ),
    ):
        path.write_text(json.dumps(fields | wrong))
        with pytest.raises(FileError, match=f"plan.json: no plan of .*{words}"):
            planned.read_plan(path)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(ThreatModel)])
def test_nothing_is_assumed_of_a_field_that_a_file_lacks(tmp_path, name):
    """The least would be: its epsilons would be smaller."""
    found = planned.Planned(plan=PLAN, threat=ThreatModel(), rounds=20, delta=1e-5)
    path = tmp_path / "plan.json"
    fields = found.to_dict()
    del fields["threat"][name]
    path.write_text(json.dumps(fields))
    with pytest.raises(FileError, match=f"ThreatModel is .*{name}.*; allowed"):
        planned.read_plan(path)


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    found = planned.Planned(
        plan=PLAN, threat=ThreatModel(), rounds=20, delta=1e-5, noise=float("nan")
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        found.write(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_a_file_that_is_nested_deep_is_refused(tmp_path):
    found = planned.Planned(plan=PLAN, threat=ThreatModel(), rounds=20, delta=1e-5)
    path = tmp_path / "plan.json"
    fields = found.to_dict()
    fields["plan"]["mixing"] = functools.reduce(lambda x, _: [x], range(800), [])
    path.write_text(json.dumps(fields))
    with pytest.raises(FileError, match=r"plan\.json: no plan of this version"):
        planned.read_plan(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noising_clients": (6, 2, 6, 6)}, r"noising_clients is .*\(6, 6, 6, 6\)"),
        ({"zone_sizes": (30, 20, 20, 20)}, "zone_sizes is"),
    ],
)
def test_rounds_of_other_clients_than_the_plans_are_refused(changes, said):
    """To those who noised in some rounds alone the aggregator's promise is not kept.

    The epsilon of the others alone, 5.75, was given for what is 5.82 for some.
    """
    plan = dataclasses.replace(
        PLAN, client_noise_multiplier=1.5, zone_noise_multipliers=(1.0,) * 4
    )
    kept = Kept(promise=Promise("aggregator", 5.8), epsilon=5.7, noise=1.0)
    made = planned_for(plan, kept)
    before = AccountedRound(dataclasses.replace(plan, **changes))
    with pytest.raises(ArgumentError, match=said):
        made.reached([(before, 5), (AccountedRound(plan), 5)])


@pytest.mark.parametrize("little", [0, 3])
def test_a_promise_is_kept_to_zones_that_only_earlier_rounds_tell_apart(little):
    """As where a resumed run's zones weigh something else."""
    plan = dataclasses.replace(PLAN, zone_noise_multipliers=(2.0,) * 4)
    noise = [2.0] * 4
    noise[little] = 0.5
    before = dataclasses.replace(plan, zone_noise_multipliers=noise)
    kept = Kept(promise=Promise("aggregator", 5.0), epsilon=4.0, noise=1.0)
    made = planned_for(plan, kept)
    history = [(AccountedRound(before), 5), (AccountedRound(plan), 5)]
    ((_, reached),) = made.reached(history)
    rows = account_history(history, 1e-5, ("rdp",))
    assert reached == pytest.approx(worst(rows, "aggregator").epsilon_rdp)
    alone = worst(account(before, 5, 1e-5, ("rdp",)), "aggregator").epsilon_rdp
    assert reached > alone > 5.0
