"""scripts/plan.py: shares and files of trust, what it prints, and accuracy."""

import dataclasses
import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from absl import flags

from scripts import plan as program
from scripts.parts import plan_costs, plan_text, sweep_runs
from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import Clipping, planned, planner
from tff_hdp.privacy.promises import Kept
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import build_federation


def config(**options):
    settings = {
        "clients": 60,
        "zones": 3,
        "clients_per_round": 18,
        "rounds": 5,
        "method": "rdp",
        "promises": ("aggregator<=9", "released_model<=5"),
    }
    return program.PlanConfig(**settings | options)


@pytest.fixture
def stub_planner(monkeypatch):
    """Plans at once: noise of 1 for super-node and aggregator, none for the model."""

    def plan(federation, promises, *, rounds, delta, threat, **_):
        zones = (1.0,) * federation.num_zones
        for promise in promises:
            if promise.observer == "super_node":
                noise = {"client_noise_multiplier": 1.0}
            elif promise.observer == "aggregator":
                noise = {"zone_noise_multipliers": zones}
            else:
                noise = {}
            federation = dataclasses.replace(federation, **noise)
        return planned.Planned(
            plan=federation,
            threat=threat,
            rounds=rounds,
            delta=delta,
            method="rdp",
            kept=tuple(
                Kept(promise=promise, epsilon=1.0, noise=1.0) for promise in promises
            ),
        )

    monkeypatch.setattr(planner, "plan", plan)


def test_what_is_printed_says_what_binds_and_how_to_train(tmp_path):
    asked = config(trust_nobody=0.3, promises=("super_node<=20", "released_model<=4"))
    text = plan_text.as_text(asked, asked.planned())
    assert "super_node<=20" in text and "10 % more saves" in text
    assert re.search(r"^binds: .*released_model<=4$", text, re.M)
    out = config(out=str(tmp_path / "my plan.json"), relax=False)
    found = out.planned()
    found.write(out.out)
    last = plan_text.as_text(out, found).splitlines()[-1]
    assert last.startswith(f"python scripts/train.py '--plan={out.out}' ")
    trains_with(last, found.plan)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": "fixed"},
        {"sampling": "full", "zone_sizes": (10, 20, 30), "clients_per_round": 60},
        {"levels": (1,), "mixing": "equal"},
        # Of few zones a random deal may be the plan's by chance.
        {"levels": (5, 2), "zones": 10, "zone_sizes": (6,) * 10},
        {"secure_aggregation": "both", "sampling": "fixed"},
        {"elected_super_nodes": True, "dropout_rate": 0.1, "cohort_known": True},
        {"secure_aggregation": "zone", "peers_known": True},
        # Of more digits than are shown elsewhere, rounded up by six.
        {"dropout_rate": 0.1234567},
    ],
    ids=str,
)
def test_the_command_trains_the_federation_that_was_planned(
    options, tmp_path, stub_planner
):
    loose = ("aggregator<=900", "released_model<=900")
    asked = config(out=str(tmp_path / "plan.json"), promises=loose, **options)
    found = asked.planned()
    found.write(asked.out)
    trains_with(plan_text.as_text(asked, found).splitlines()[-1], found.plan)


def test_what_training_cannot_be_told_is_said(tmp_path, stub_planner):
    told = {"colluding_clients": 2, "neighbours": "zero_out", "sampling": "revealed"}
    asked = config(out=str(tmp_path / "plan.json"), trust_nobody=0.2, **told)
    flags = "--colluding_clients, --neighbours, --sampling=revealed"
    text = plan_text.as_text(asked, asked.planned())
    assert f"\nscripts/train.py cannot be given {flags}: its account" in text
    asked = config(trust_nobody=0.2, elected_super_nodes=True)
    assert asked.untold() == ["--elected_super_nodes"]
    assert not [flag for flag in asked.train_flags() if "elect" in flag]


def test_training_is_told_numbers_with_all_their_digits():
    told = config(dropout_rate=0.1234567, delta=1.23456789e-5).train_flags()
    values = dict(flag.removeprefix("--").split("=") for flag in told)
    assert float(values["drop_rate"]) == 0.1234567
    assert float(values["delta"]) == 1.23456789e-5


@pytest.mark.parametrize(
    "words", ["super_node:2<=9", " super_node:2  <= 9 ", "super_node : 2<=9.0"]
)
def test_promises_may_have_spaces(words):
    assert str(program._promise(words)) == "super_node:2<=9"


def test_shares_of_trust_may_add_up_to_one():
    asked = config(trust_nobody=0.9, trust_server=0.1)
    assert asked._trust() == ((18, 18, 18), (2, 2, 2))


def trains_with(command, plan):
    """Reads the command as the program would; a run of it has the plan's noise."""
    own = flags.FlagValues()
    cli.define_flags(HdpConfig, own)
    assert own(shlex.split(command)[1:]) == ["scripts/train.py"]
    settings = cli.config_from_flags(HdpConfig, own)
    federation = build_federation(
        settings,
        settings.load_task(0),
        partition_seed=0,
        clipping=Clipping(),
    )
    made = federation.plan
    for name in (
        *("zone_sizes", "sampling", "upper_levels", "mixing", "noising_clients"),
        *("client_noise_multiplier", "zone_noise_multipliers"),
        *("server_noise_multiplier", "secure_aggregation", "secure_server"),
    ):
        assert getattr(made, name) == getattr(plan, name), name
    return federation


def test_what_each_promise_costs_in_accuracy(tmp_path, monkeypatch, stub_planner):
    promises = ("released_model<=1e3", "aggregator<=9", "super_node<=20")
    asked = config(
        trust_nobody=0.3,
        promises=promises,
        task="digits",
        task_rounds=4,
        task_out=str(tmp_path),
        seeds=("0", "1"),
    )
    started = []

    def run_jobs(jobs, at_once):
        for job in jobs:
            started.append(job.path)
            accuracy = 0.9 if job.config.plan is None else 0.8
            accuracy += job.config.seed / 100
            leave_a_run(job, accuracy)
        return []

    monkeypatch.setattr(sweep_runs, "run_jobs", run_jobs)
    reached = plan_costs.train(asked, ["--clip_norm=0.25"])
    said = [each.promise for each in reached]
    assert said == [
        "no promise",
        "super_node<=20",
        "aggregator<=9",
        "released_model<=1000",
    ]
    assert [each.accuracy for each in reached] == pytest.approx([0.905, *[0.805] * 3])
    assert {each.rounds for each in reached} == {4}
    # The last promise is kept by others' noise, and needs no training of its own.
    assert len(started) == len(set(started)) == 6
    text = plan_text.as_text(asked, asked.planned(), reached)
    assert re.search(r"^no promise +0\.905 ± 0\.007$", text, re.M)
    assert re.search(r"^super_node<=20 +0\.805 ± 0\.007 +0\.100$", text, re.M)
    kept = pd.read_csv(tmp_path / "accuracy.csv")
    assert kept["kept"].tolist() == said and set(kept["runs"]) == {2}
    assert kept["accuracy"].tolist() == pytest.approx([0.905, *[0.805] * 3])
    assert kept["sd"].tolist() == pytest.approx([0.01 / 2**0.5] * 4, abs=1e-3)
    assert kept["this one costs"].tolist()[1:] == pytest.approx([0.1, 0.0, 0.0])
    # The same again is the same runs; other settings are others.
    plan_costs.train(asked, ["--clip_norm=0.25"])
    assert len(set(started)) == 6
    plan_costs.train(asked, ["--clip_norm=0.5"])
    assert len(set(started)) == 12
    monkeypatch.setattr(sweep_runs, "run_jobs", lambda jobs, at_once: jobs)
    with pytest.raises(ArgumentError, match=r"task is digits; .*these flags"):
        plan_costs.train(asked, [])


def leave_a_run(job, accuracy):
    """What a run leaves, as far as tables read it."""
    last = job.path / "model" / "last"
    last.mkdir(parents=True, exist_ok=True)
    rounds, plan = job.config.rounds, job.config.plan
    card = {"metric": "accuracy", "round": rounds, "value": accuracy}
    privacy = {"last_round": rounds, "privacy": "plan", "notes": [], "accounts": []}
    privacy["journal"] = [0, None]
    (job.path / "journal.jsonl").touch()
    record = {"flags": job.config.to_dict(), "git_commit": "abc"}
    (last / "card.json").write_text(json.dumps(card))
    (job.path / "privacy.json").write_text(json.dumps(privacy))
    (job.path / "config.json").write_text(json.dumps(record))
    rows = [f"{number},{accuracy}\n" for number in range(1, rounds + 1)]
    (job.path / "metrics.csv").write_text("round,accuracy\n" + "".join(rows))
    assert (plan is None) == (job.config.privacy == "none")


def test_trust_by_file(tmp_path):
    zones, trust = tmp_path / "zones.csv", tmp_path / "trust.csv"
    zones.write_text("client,zone\n" + "".join(f"c{i},z{i % 2}\n" for i in range(20)))
    words = ["nobody"] * 4 + ["super_node"] * 10 + ["server"] * 6
    rows = [f"c{i},{word}\n" for i, word in enumerate(words)]
    trust.write_text("client,trust\n" + "".join(rows))
    files = {"zoning_file": str(zones), "trust_file": str(trust)}
    options = {"clients": None, "zones": None, "clients_per_round": 10, **files}
    asked = config(**options)
    assert asked._trust() == ((2, 2), (3, 3))
    shares = config(clients=20, zones=2, trust_nobody=0.2, trust_server=0.3)
    assert shares._trust() == asked._trust()
    for text, message in (
        ("".join(rows[:-1]), "trust.csv: trust is without 'c19'"),
        ("".join(rows) + "c3,nobody\n", "trust.csv: client 'c3' stands there twice"),
        ("".join(rows) + "c20,nobody\n", "trust.csv: trust is given for 'c20'"),
        ("".join(rows).replace("server", "all"), "client 'c14' trusts 'all'; allowed:"),
    ):
        trust.write_text("client,trust\n" + text)
        with pytest.raises(FileError, match=message):
            config(**options)._trust()
    trust.write_bytes(b"client,trust\n\xff,server\n")
    with pytest.raises(FileError, match=r"trust\.csv: not UTF-8"):
        config(**options)._trust()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "client,trust\na,super_node,nobody\nb,server\n",
            "line 2 has 3 cells, the hea",
        ),
        ("client,trust,trust\na,nobody,server\nb,server,server\n", "'trust' twice"),
    ],
)
def test_nobody_is_taken_to_trust_whom_a_shifted_cell_names(tmp_path, text, message):
    zones, trust = tmp_path / "zones.csv", tmp_path / "trust.csv"
    zones.write_text("client,zone\na,z\nb,z\n")
    trust.write_text(text)
    files = {"zoning_file": str(zones), "trust_file": str(trust)}
    options = {"clients": None, "zones": None, "clients_per_round": 1, **files}
    with pytest.raises(FileError, match=rf"trust\.csv: .*{message}"):
        config(**options)._trust()


def test_noise_is_carried_by_those_who_trust_nobody(tmp_path, stub_planner):
    """It used to be by the first of each zone, whoever they were."""
    ids = HdpConfig(task="digits", num_clients=20, noise_multiplier=1.0)
    ids = ids.load_task(0).train.client_ids
    zones, trust = tmp_path / "zones.csv", tmp_path / "trust.csv"
    rows = [f"{client},z{i % 2}\n" for i, client in enumerate(ids)]
    zones.write_text("client,zone\n" + "".join(rows))
    wary = {ids[i] for i in (9, 16, 18, 19)}
    words = [f"{c},{'nobody' if c in wary else 'super_node'}\n" for c in ids]
    trust.write_text("client,trust\n" + "".join(words))
    asked = config(
        **{"clients": None, "zones": None, "clients_per_round": 10},
        promises=("super_node<=900",),
        **{"zoning_file": str(zones), "trust_file": str(trust)},
        out=str(tmp_path / "plan.json"),
    )
    found = asked.planned()
    found.write(asked.out)
    federation = trains_with(
        plan_text.as_text(asked, found).splitlines()[-1], found.plan
    )
    carry = np.flatnonzero(federation.carries_noise)
    assert {federation.zoning.client_ids[i] for i in carry} == wary
    # Of clients by other names, or in other zones, nobody knows who is meant.
    for noising in ((*found.noising[:3], "a stranger"), found.noising[:3]):
        dataclasses.replace(found, noising=noising).write(asked.out)
        with pytest.raises(ArgumentError, match="whose noising clients are this run's"):
            trains_with(plan_text.as_text(asked, found).splitlines()[-1], found.plan)


def test_with_a_task_the_command_trains_its_clients_and_not_the_files(
    tmp_path, stub_planner
):
    zones = tmp_path / "zones.csv"
    zones.write_text("client,zone\n" + "".join(f"c{i},z{i % 2}\n" for i in range(20)))
    asked = config(
        **{"clients": None, "zones": None, "clients_per_round": 10},
        promises=("released_model<=50",),
        **{"zoning_file": str(zones), "out": str(tmp_path / "plan.json")},
    )
    found = asked.planned()
    found.write(asked.out)
    of_file = plan_text.as_text(asked, found).splitlines()[-1]
    assert f"--zoning_file={zones}" in of_file
    asked = dataclasses.replace(asked, task="digits")
    of_task = plan_text.as_text(asked, found).splitlines()[-1]
    assert "--zoning" not in of_task
    assert "--zone_sizes=10,10" in of_task and "--task=digits" in of_task


def test_with_a_task_the_command_trains_where_the_file_names_other_clients(
    tmp_path, monkeypatch, stub_planner
):
    """It used to be refused: of the task's clients none is called as the file's."""
    zones, trust = tmp_path / "zones.csv", tmp_path / "trust.csv"
    zones.write_text("client,zone\n" + "".join(f"c{i},z{i % 2}\n" for i in range(20)))
    words = ["super_node"] * 16 + ["nobody"] * 4
    rows = [f"c{i},{word}\n" for i, word in enumerate(words)]
    trust.write_text("client,trust\n" + "".join(rows))
    asked = config(
        **{"clients": None, "zones": None, "clients_per_round": 10},
        promises=("super_node<=900", "aggregator<=900"),
        **{"zoning_file": str(zones), "trust_file": str(trust)},
        **{"task": "digits", "task_out": str(tmp_path / "task"), "seeds": ("0",)},
        out=str(tmp_path / "plan.json"),
    )
    found = asked.planned()
    found.write(asked.out)

    def run_jobs(jobs, at_once):
        for job in jobs:
            leave_a_run(job, 0.5)
        return []

    monkeypatch.setattr(sweep_runs, "run_jobs", run_jobs)
    text = plan_text.as_text(asked, found, plan_costs.train(asked, []))
    said, _, command = text.splitlines()[-3:]
    trains_with(command, found.plan)
    assert said.startswith(f"{asked.out} is for the clients that it names.")
    # What is written for the federation's own clients names them still.
    assert planned.read_plan(asked.out).noising == ("c16", "c17", "c18", "c19")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"promises": ("aggregator=3",)}, "promises is aggregator=3; allowed: OBS"),
        ({"promises": ("aggregator<=x",)}, "promises is aggregator<=x; allowed: OBS"),
        ({"promises": ("aggregator:2<=8",)}, "aggregator:2; .*for a super_node only"),
        ({"promises": ("super_node<=8",)}, "super_node<=8; .*no client trusts nobody"),
        ({"promises": ("super_node:2<=8",)}, "super_node:2<=8; .*: super_node, aggr"),
        ({"promises": ()}, "promises is empty; allowed: one or more"),
        ({"task": "nonsense"}, "task is nonsense; allowed: digits"),
        ({"seeds": ("a",)}, "seeds is a; allowed: one or more, different whole"),
        ({"seeds": ("0", "0")}, "seeds is 0,0; allowed: one or more, different whole"),
        ({"seeds": ("7",)}, "seeds is 7; allowed: only with task"),
        ({"jobs": 2}, "jobs is 2; allowed: only with task"),
        ({"task_rounds": 3}, "task_rounds is 3; allowed: only with task"),
        ({"task_out": "x"}, "task_out is x; allowed: only with task"),
        ({"trust_nobody": 1.5}, "trust_nobody is 1.5"),
        ({"trust_nobody": 0.008}, "is 0.008; allowed: 0, or a share of the 60 clients"),
        ({"trust_nobody": 0.5, "trust_server": 0.6}, "trust_server is 0.6"),
        ({"trust_file": "x.csv"}, "trust_file is x.csv; .*zoning_file only"),
    ],
)
def test_what_cannot_be_asked(options, words):
    with pytest.raises(ArgumentError, match=words):
        config(**options).planned()


def test_the_pilot_of_a_planned_run_is_without_its_plan(hdp_config, tmp_path):
    """It used to be refused, as settings beside a plan."""
    planned = {"noise_multiplier": None, "plan": "plan.json", "clip_norm": "auto"}
    pilot = hdp_config(tmp_path, **planned).without_privacy()
    assert (pilot.privacy, pilot.plan) == ("none", None)
