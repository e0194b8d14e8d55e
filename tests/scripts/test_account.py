import csv
import dataclasses
import io
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "account.py"
# Where epsilons by PLD, which take seconds, say nothing: it is not resolved there.
BY_RDP_ALONE = "--delta=1e-13"


# Runs command lines one after the other in one process, to import only once.
DRIVER = """
import contextlib, io, json, runpy, sys
from absl import flags
from tff_hdp import cli
script = runpy.run_path(sys.argv[1], run_name="account")
own = set(flags.FLAGS)
for line in sys.stdin:
    for name in set(flags.FLAGS) - own:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
    sys.argv = ["account.py", *json.loads(line)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        script["define_flags"]()
        code = cli.run(script["main"])
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def driver():
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    yield process
    process.stdin.close()
    process.wait(timeout=60)


@pytest.fixture
def run(driver):
    def call(*arguments, code=0):
        driver.stdin.write(json.dumps(arguments) + "\n")
        driver.stdin.flush()
        found, out, err = json.loads(driver.stdout.readline())
        assert found == code, err
        return out if code == 0 else err

    return call


@pytest.fixture
def rows(run):
    return lambda *arguments: json.loads(run(*arguments, "--format=json"))


def test_json_is_a_list_of_the_rows_documented(rows):
    table = rows("--privacy=hdp")
    assert [r["observer"] for r in table] == [
        "super_node",
        "aggregator",
        "released_model",
        "fellow_super_node",
    ]
    for row in table:
        assert row["client_kind"] == "hdp"
        assert row["zone"] is None
        assert isinstance(row["assumptions"], str) and row["assumptions"]
    assert table[0]["epsilon_rdp"] is None
    assert table[1]["noise_multiplier"] == 1.0
    assert table[1]["epsilon_pld"] == pytest.approx(21.540954, rel=1e-4)
    assert table[2]["epsilon_rdp"] == pytest.approx(4.436601, rel=1e-4)
    assert table[2]["epsilon_paper"] == pytest.approx(7.84478, rel=1e-5)
    # A super-node of another zone subtracts the noise that it added itself.
    assert table[3]["noise_multiplier"] == pytest.approx(3.0)
    assert table[3]["epsilon_pld"] == pytest.approx(4.355, abs=1e-3)
    assert table[3]["epsilon_paper"] is None


def test_flags_reach_the_plan(run, rows):
    table = rows(
        "--privacy=c3",
        "--beta=0.5",
        "--zone_sizes=10,40",
        "--clients_per_round=25",
        "--mixing=equal",
        "--secure_aggregation=zone",
        "--noise_multiplier=2",
        "--rounds=3",
        "--delta=1e-4",
    )
    assert {r["delta"] for r in table} == {1e-4}
    own = [r for r in table if r["observer"] == "super_node"]
    assert any("secure aggregation" in r["assumptions"] for r in own)
    released = [r for r in table if r["observer"] == "released_model"]
    assert {r["client_kind"] for r in released} == {"ldp", "hdp"}
    # Equal mixing of unequal zones: every zone's clients weigh differently.
    assert len({r["noise_multiplier"] for r in released}) == 2
    shown = run("--mixing=equal", "--zone_sizes=9,99", "--rounds=2", BY_RDP_ALONE)
    assert "worst hdp clients against released_model: zone 0" in shown
    seen = [
        r for r in table if r["observer"] == "aggregator" and r["client_kind"] == "hdp"
    ]
    assert {r["noise_multiplier"] for r in seen} == {2.0}
    one_round = ("--privacy=hdp", "--rounds=1", BY_RDP_ALONE)
    colluding = rows("--colluding_super_nodes=6", *one_round)
    assert colluding[2]["noise_multiplier"] == pytest.approx(2.0)
    known = rows("--cohort_known", *one_round)
    assert "revealed" in known[1]["sampling"] and "hidden" in known[2]["sampling"]


def test_zones_of_a_file(rows, run, tmp_path):
    file = tmp_path / "zones.csv"
    lines = [f"c{i},{'a' if i < 3 else 'b'},r{int(i > 8)}" for i in range(12)]
    file.write_text("client,zone,region\n" + "\n".join(lines).replace(",r1", ",r0"))
    table = rows(f"--zoning_file={file}", "--clients_per_round=6", "--rounds=1")
    assert [r["level"] for r in table if r["observer"] == "super_node"] == [1, 2]
    by_hand = rows(
        "--zone_sizes=3,9", "--levels=1", "--clients_per_round=6", "--rounds=1"
    )
    assert table == by_hand
    message = run(f"--zoning_file={file}", "--zone_sizes=3,9", code=2)
    assert "--zone_sizes is 3,9; allowed: none with zoning_file" in message
    message = run(f"--zoning_file={file}", "--zones=3", code=2)
    assert "--zones is 3; allowed: 2, as zoning_file has" in message
    secure = ("--secure_aggregation=server", "--clients_per_round=6")
    message = run(f"--zoning_file={file}", *secure, code=2)
    assert "allowed: one without levels with secure_aggregation=server" in message
    missing = run("--zoning_file=no_such.csv", code=2)
    assert "--zoning_file is no_such.csv: No such file or directory" in missing
    assert f"--zoning_file is {tmp_path}; allowed: a .csv" in run(
        f"--zoning_file={tmp_path}", code=2
    )
    assert "--plan is no.json: No such file" in run("--plan=no.json", code=2)


def test_a_planners_file_is_accounted(rows, run, tmp_path):
    from tff_hdp.privacy import NoisePlan, PoissonSampling, planner

    federation = NoisePlan(zone_sizes=(20,) * 3, sampling=PoissonSampling((0.3,) * 3))
    promises = {"aggregator": 5.0, "released_model": 3.0}
    made = planner.plan(federation, promises, rounds=4, delta=1e-6, method="rdp")
    path = tmp_path / "plan.json"
    made.write(path)
    table = rows(f"--plan={path}")
    assert {r["delta"] for r in table} == {1e-6}
    for row in table[1:3]:
        assert row["epsilon_rdp"] <= promises[row["observer"]]
    # The aggregator's promise needs more noise than the model's does.
    assert table[1]["epsilon_rdp"] == pytest.approx(5.0, rel=1e-3)
    assert f"4 rounds, of the plan in {path}" in run(f"--plan={path}")


@pytest.mark.parametrize(
    "asked",
    [
        {"rounds": 100_000},
        {"rounds": 200},
        {"colluding_super_nodes": 9},
        {"cohort_known": True, "delta": 1e-12},
        {"noise_multiplier": 9.0},
        {"calibrate": 2.0},
        {"figure": "epsilon.png"},
    ],
    ids=str,
)
def test_what_a_plans_file_decides_is_refused_beside_it(run, tmp_path, asked):
    flags = [f"--{name}={value}" for name, value in asked.items()]
    line = run(f"--plan={tmp_path / 'plan.json'}", *flags, code=2)
    name, value = next(iter(asked.items()))
    shown = f"error: --{name} is {value}; allowed: nothing beside plan"
    assert line.startswith(shown) and line.count("\n") == 1


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ("poisson", "Poisson, q = 0.2, participation hidden"),
        ("revealed", "Poisson, q = 0.2, participation revealed"),
        ("fixed", "10 of 50 clients, participation hidden"),
        ("full", "every client every round"),
    ],
)
def test_sampling(rows, sampling, words):
    table = rows("--privacy=cdp", f"--sampling={sampling}", "--rounds=2")
    released = [r for r in table if r["observer"] == "released_model"]
    assert released[0]["sampling"] == words
    assert released[0]["epsilon_rdp"] > 0


def test_csv_and_table_hold_the_same_numbers(run, rows):
    table = rows("--privacy=c6", "--beta=0.5")
    read = list(
        csv.DictReader(io.StringIO(run("--privacy=c6", "--beta=0.5", "--format=csv")))
    )
    assert len(read) == len(table)
    for one, other in zip(read, table, strict=True):
        expected = other["epsilon_pld"]
        found = one["epsilon_pld"]
        assert found == ("" if expected is None else repr(expected))
    shown = run("--privacy=c6", "--beta=0.5")
    assert "6.12 " in shown
    assert "no guarantee" in shown


def test_what_was_not_given_is_said_beside_the_table(run):
    """An epsilon of 200 rounds read as one of the 60 that a reader had in mind."""
    assert "\n200 rounds, 500 clients, zones: 10\n" in run(BY_RDP_ALONE)
    given = ("--rounds=60", "--zone_sizes=40,60", "--clients_per_round=50")
    assert "\n60 rounds, 100 clients, zones: 2\n" in run(*given)


def test_the_worst_of_levels_that_treat_all_zones_alike_is_no_zones(run):
    shown = run(
        *("--privacy=c7", "--alpha=0.5", "--beta=0.5", "--rounds=5"),
        *("--levels=5,2", "--noising_levels=2", BY_RDP_ALONE),
    )
    assert "worst ldp clients against super_node: all zones, epsilon" in shown
    assert "worst hdp clients against aggregator: zone 6, epsilon" in shown
    assert "None" not in shown


def test_the_worst_zone_is_that_of_the_epsilon_beside_it(rows, run, tmp_path):
    """By PLD another one is worst off."""
    from tff_hdp.privacy import NoisePlan, PoissonSampling, planner

    rates = PoissonSampling((0.02, 0.1, 0.9))
    zones = NoisePlan(zone_sizes=(5, 200, 20), sampling=rates, mixing="equal")
    made = planner.plan(zones, {"aggregator": 5.0}, rounds=1, delta=1e-5, method="rdp")
    noised = dataclasses.replace(zones, zone_noise_multipliers=(4.0, 1.0, 2.0))
    path = tmp_path / "plan.json"
    dataclasses.replace(made, plan=noised).write(path)
    seen = [r for r in rows(f"--plan={path}") if r["observer"] == "aggregator"]
    by = {m: max(seen, key=lambda r: r[f"epsilon_{m}"]) for m in ("rdp", "pld")}
    assert by["rdp"]["zone"] != by["pld"]["zone"]
    line = "clients against aggregator: zone {zone}, epsilon {epsilon_rdp:.4g} (RDP)"
    assert line.format(**by["rdp"]) in run(f"--plan={path}")


def test_calibrate_meets_its_target(rows):
    table = rows("--privacy=ldp", "--calibrate=2", "--observer=aggregator")
    seen = next(r for r in table if r["observer"] == "aggregator")
    assert seen["epsilon_rdp"] == pytest.approx(2.0, rel=5e-4)
    assert seen["epsilon_rdp"] <= 2.0


def test_comparison_at_equal_release(run, rows, tmp_path):
    path = tmp_path / "compare.png"
    table = rows("--compare=release", "--noise_multiplier=3", f"--figure={path}")
    released = [r for r in table if r["observer"] == "released_model"]
    assert [r["mode"] for r in released] == ["ldp", "hdp", "cdp"]
    for r in released:
        assert r["noise_multiplier"] == pytest.approx(3.0)
    # The same noise in the model; what differs is who must be trusted.
    assert released[1]["epsilon_pld"] == pytest.approx(
        released[2]["epsilon_pld"], rel=1e-4
    )
    unprotected = {
        (r["mode"], r["observer"]) for r in table if r["epsilon_pld"] is None
    }
    assert unprotected == {
        ("hdp", "super_node"),
        ("cdp", "super_node"),
        ("cdp", "aggregator"),
    }
    assert path.read_bytes().startswith(b"\x89PNG")
    multiplier = ("--compare=multiplier", "--noise_multiplier=1")
    same = rows(*multiplier, "--rounds=2", BY_RDP_ALONE)
    assert {r["party_noise_multiplier"] for r in same} == {1.0}


@pytest.mark.parametrize(
    "given", ["--colluding_super_nodes=10", "--zones=1 --colluding_super_nodes=1"]
)
def test_no_noise_cannot_be_made_equal(run, given):
    done = run("--compare=release", *given.split(), "--rounds=1", code=2)
    assert "--compare is release; allowed: multiplier: with privacy=hdp no" in done


@pytest.mark.parametrize(
    "given", ["--calibrate=2", "--privacy=c4", "--privacy=hdp", "--method=rdp"]
)
def test_a_comparison_leaves_no_flag_out(run, given):
    name, _, value = given.removeprefix("--").partition("=")
    done = run("--compare=multiplier", given, code=2)
    assert f"--{name} is {value}" in done


def test_figure(run, tmp_path):
    path = tmp_path / "epsilon.png"
    run(
        "--privacy=c7",
        "--alpha=0.5",
        "--beta=0.5",
        "--zones=2",
        "--rounds=2",
        BY_RDP_ALONE,
        f"--figure={path}",
    )
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds=many"], ["--rounds", "many"]),
        (["--delta=2"], ["--delta", "2", "[1e-300, 1)"]),
        (["--privacy=c9"], ["--privacy", "c9", "cdp"]),
        (["--zones=0"], ["--zones", "0", "1..500"]),
        (["--noise_multiplier=nan"], ["--noise_multiplier", "nan", "a finite number"]),
        (["--noise_multiplier=-1"], ["--noise_multiplier", "-1", "1e-6..1e6"]),
        (["--noise_multiplier=1e-300"], ["--noise_multiplier", "1e-300", "1e-6..1e6"]),
        (["--rounds=100000000000000000000"], ["--rounds", "a whole number below 2^63"]),
        (["--delta=1e-318"], ["--delta", "[1e-300, 1)"]),
        (["--clients=1000000000000"], ["--clients", "1..1000000000"]),
        ([f"--zone_sizes={10**20}"], ["--zone_sizes", "at most 1000000000 clients"]),
        (["--zones=20000", "--clients=30000"], ["--zones", "1..10000"]),
        (["--clients_per_round=1e-300"], ["--clients_per_round", "1e-09..500"]),
        (
            ["--clients=1000000", "--sampling=fixed", "--clients_per_round=200000"],
            ["--clients_per_round", "up to 100000"],
        ),
        (
            ["--zone_sizes=1,99,900", "--clients_per_round=3", "--sampling=fixed"],
            ["--clients_per_round", "3", "one client in each of 3 zones"],
        ),
        (["--privacy=c3"], ["--beta", "None", "[0, 1]"]),
        (["--alpha=0.5"], ["--alpha", "0.5", "c5, c7"]),
        (["--privacy=c3", "--beta=.33"], ["--beta", "0.33", "whole number"]),
        (["--colluding_super_nodes=11"], ["--colluding_super_nodes", "11", "0..10"]),
        (["--zone_sizes=5,x"], ["--zone_sizes", "5,x", "whole numbers"]),
        (["--zone_sizes=5,0"], ["--zone_sizes", "5,0", ">= 1"]),
        (["--clients_per_round=900"], ["--clients_per_round", "900", "500"]),
        (["--calibrate=0"], ["--calibrate", "0"]),
        (["--calibrate=2", "--noise_multiplier=7"], ["--noise_multiplier", "7.0"]),
        (["--calibrate=2", "--noise_multiplier=1"], ["--noise_multiplier is 1.0"]),
        (["--calibrate=2", "--rounds=0"], ["--rounds", "0"]),
        # What would do nothing.
        (["--observer=aggregator"], ["--observer is aggregator", "with calibrate"]),
        (["--client_kind=hdp"], ["--client_kind is hdp", "only with calibrate"]),
        (["--method=pld"], ["--method is pld", "only with calibrate"]),
        (["--zones=5", "--zone_sizes=99,99"], ["--zones is 5", "2, as zone_sizes has"]),
        (
            ["--sampling=full", "--clients_per_round=7"],
            ["--clients_per_round is 7.0", "500, all, with full sampling"],
        ),
        (
            ["--sampling=full", "--clients_per_round=100"],
            ["--clients_per_round is 100.0", "500, all, with full sampling"],
        ),
        (["--dropout_rate=1"], ["--dropout_rate", "1", "[0, 1)"]),
        # The names of training; a plan's own are no flags.
        (["--secure_aggregation=all"], ["--secure_aggregation", "none|zone|server"]),
        (
            ["--secure_aggregation=server", "--zones=1"],
            ["--zones is 1", "at least 2 with secure_aggregation=server"],
        ),
        (
            ["--secure_aggregation=both", "--levels=2"],
            ["--levels is 2", "none with secure_aggregation=both"],
        ),
        (
            ["--secure_aggregation=server", "--mixing=equal"],
            ["--mixing is equal", "weighted with secure_aggregation=server"],
        ),
        (
            ["--privacy=ldp", "--neighbours=add_or_remove"],
            ["--neighbours", "add_or_remove", "zero_out"],
        ),
        (
            ["--privacy=cdp", "--calibrate=1", "--observer=aggregator"],
            ["--observer", "aggregator", "no noise is added before this observer"],
        ),
        (["--figure=/no/such/folder/x.png"], ["--figure", "/no/such/folder/x.png"]),
        (["extra"], ["extra"]),
        (["--bogus"], ["bogus"]),
    ],
)
def test_bad_flags_are_one_line_and_code_2(run, arguments, words):
    message = run(*arguments, code=2)
    assert len(message.strip().splitlines()) == 1, message
    for word in words:
        assert word in message
