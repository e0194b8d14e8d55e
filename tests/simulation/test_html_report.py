"""The page of a run: whole, closed, escaped, and true to the folder."""

import dataclasses
import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from tff_hdp import systems
from tff_hdp.errors import FileError
from tff_hdp.privacy import (
    FixedSizeSampling,
    Ledger,
    Level,
    PoissonSampling,
    account,
    configurations,
    table,
)
from tff_hdp.privacy.table import statements
from tff_hdp.simulation import plain_words
from tff_hdp.simulation.html_report import epsilon_curves, html_report
from tff_hdp.simulation.report import Run

PLAN = configurations.c2(
    zone_sizes=(10, 10), sampling=PoissonSampling((0.5,) * 2), noise_multiplier=2.0
)
NASTY = "<script>alert('x')</script> & \"q\""


@pytest.fixture
def run(tmp_path):
    ledger = Ledger()
    ledger.record(PLAN, 5)
    record = {
        "system": "hdp",
        "resolved": {"task": f"Source: {NASTY}.\nModel: small."},
        "versions": {"numpy": "1"},
        "git_commit": "abc",
    }
    privacy = {"last_round": 4, "rounds": 5}
    (tmp_path / "config.json").write_text(json.dumps(record))
    (tmp_path / "privacy.json").write_text(json.dumps(privacy))
    return Run(
        path=tmp_path,
        label="hdp",
        flags={"task": "digits", "delta": 1e-5, "drop_rate": 0.1, "out": NASTY},
        metrics=pd.DataFrame(
            {"round": [1, 2, 3, 4], "accuracy": [0.1, None, 0.2, 0.4], "rejected": 2}
        ),
        accounts=account(PLAN, 5, 1e-5),
        notes=[NASTY],
    )


def page(run, **changes):
    ledger = Ledger()
    ledger.record(PLAN, 5)
    curves = epsilon_curves(ledger.state_dict(), Ledger, 1e-5)
    given = {"command": f"python x --out={NASTY}", "curves": curves, "observers": {}}
    return html_report(run, headline="accuracy", **given | changes)


def read(text):
    """The page's tree: what is no XML is an error."""
    start, _, rest = text.partition("\n")
    assert start == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def counts(text):
    """What a page says was counted without noise."""
    return re.findall(r"Counted without noise.*? operator", text)[0]


def words(tree):
    return " ".join(" ".join(tree.itertext()).split())


def test_nothing_of_the_folder_becomes_markup_and_nothing_is_loaded(run):
    attacks = run.path / "attacks" / "one"
    attacks.mkdir(parents=True)
    (attacks / "rows.json").write_text(
        json.dumps([{"attack": NASTY, NASTY: 1.5}, {"observer": "aggregator"}])
    )
    text = page(run)
    tree = read(text)
    assert not [e for e in tree.iter() if e.tag.endswith("script")]
    assert words(tree).count("alert('x')") >= 6
    for found in re.findall(r'(?:src|href)="(.*?)"', text):
        assert found.startswith("#"), found
    assert "default-src 'none'" in text
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids))


def test_every_promise_is_said_with_all_it_rests_on(run):
    text = words(read(page(run)))
    for row in run.accounts:
        if row.epsilon_pld is not None:
            assert f"epsilon = {row.epsilon_pld:.4g} at delta = 1e-05" in text
            assert f"[{row.observer}]" in text
        for statement in (row.sampling, *row.assumptions.split("; ")):
            assert statement in text
    assert "neighbours add or remove one client" in text
    assert "promised nothing against the client's own super-node" in text
    assert "1 rounds were released, lost and run again" in text
    assert "drop_rate = 0.1" in text
    # How many were rejected is no epsilon's.
    assert "rejected. They are in metrics.csv" in text and "8" not in counts(text)
    assert "0.4 after round 4" in text


def test_super_nodes_of_every_level_have_words_of_their_own(run):
    plan = configurations.c2(
        zone_sizes=(10,) * 3,
        sampling=PoissonSampling((0.5,) * 3),
        noise_multiplier=2.0,
    )
    upper = (Level((0, 0, 1), (3.0, 3.0)), Level((0, 0), (0.0,)))
    plan = dataclasses.replace(plan, upper_levels=upper)
    ledger = Ledger()
    ledger.record(plan, 5)
    curves = epsilon_curves(ledger.state_dict(), Ledger, 1e-5)
    levelled = dataclasses.replace(run, accounts=account(plan, 5, 1e-5))
    tree = read(page(levelled, curves=curves))
    names = ["super_node", "super_node, level 2", "super_node, level 3", "aggregator"]
    glance = [row.findtext("td") for row in tree.find("body/table/tbody")]
    assert list(dict.fromkeys(glance))[:4] == names
    for row, element in zip(levelled.accounts, tree.iter("div"), strict=True):
        said, own = element.findtext("p"), "own super-node, which gets its zone's"
        assert (own in said) == (names[0] == row.observer and row.level == 1)
        if row.level in (2, 3):
            assert f"epsilon = {row.epsilon_pld:.4g}" in said
            assert f"of level {row.level} above the client" in said
            assert f"gets what those of level {row.level - 1} send" in said
    rdp = account(plan, 5, 1e-5, ("rdp",))
    for level, name in enumerate(names[1:3], 2):
        worst = max(r.epsilon_rdp for r in rdp if r.level == level)
        assert curves[name][5] == worst


def test_no_more_is_said_to_be_seen_than_secure_sums_show(run):
    plan = dataclasses.replace(PLAN, secure_aggregation=True)
    secure = dataclasses.replace(run, accounts=account(plan, 5, 1e-5))
    text = words(read(page(secure)))
    assert "its zone's updates, or by secure aggregation their sum" in text


def test_a_fellow_client_is_not_said_to_add_noise_that_no_client_adds(row):
    plan = configurations.c4(
        zone_sizes=(10,), sampling=FixedSizeSampling((5,)), noise_multiplier=2.0
    )
    said = plain_words.promise(row(account(plan, 5, 1e-5), "fellow_client"), {})
    assert "knows when it takes part, and its own noise if it adds any" in said
    assert "noises its update" not in said


def test_every_condition_is_in_plain_words_too(run):
    """The account's own terms are small print, and nothing else is."""
    tree = read(page(run))
    items = [e for e in tree.iter("li") if e.find("small") is not None]
    assert len(items) == sum(len(statements(row.to_dict())) for row in run.accounts)
    for item in items:
        assert item.text and item.text.strip().endswith(".")
        for jargon in ("PLD", "grid", "Poisson", "q =", "numbers"):
            assert jargon not in item.text
    small = " ".join("".join(e.itertext()) for e in tree.iter("small"))
    for exact in ("Poisson, q = 0.5", "noise of finite precision", "PLD on a grid"):
        assert exact in small


def test_every_code_but_that_of_all_else_has_plain_words():
    codes = {code for code, _ in table._CODES} - {"O"}
    assert codes == plain_words._PLAIN.keys()


def test_a_run_without_noise_promises_nothing(run):
    bare = dataclasses.replace(run, accounts=[])
    text = words(read(page(bare, curves={})))
    assert "no observer is promised anything" in text
    assert "rejected: 8 in all" in text
    assert "epsilon =" not in text


def test_faults_that_were_asked_for_are_said_and_no_others(run):
    flags = run.flags | {"drop_rate": 0.0, "online_rate": 0.8, "byzantine": "1:0,9:0.1"}
    for given, wanted in (
        ({}, {"drop_rate = 0.1"}),
        ({"online_rate": 1.0}, {"drop_rate = 0.1"}),
        (flags, {"online_rate = 0.8", "byzantine = 1:0,9:0.1"}),
        ({"drop_rate": 0.0}, set()),
    ):
        text = words(read(page(dataclasses.replace(run, flags=run.flags | given))))
        found = re.findall(r"Asked for: (\w+ = [\w:,.]*\w)\.", text)
        assert set(found) == wanted


def test_curves_are_accounts_of_the_first_rounds():
    ledger = Ledger()
    ledger.record(PLAN, 2)
    other = dataclasses.replace(PLAN, sampling=PoissonSampling((0.25,) * 2))
    ledger.record(other, 3)
    curves = epsilon_curves(ledger.state_dict(), Ledger, 1e-5)
    assert curves.keys() == {"aggregator", "released_model", "fellow_super_node"}
    assert curves["aggregator"].index.tolist() == [1, 2, 3, 4, 5]
    expected = {r.observer: r.epsilon_rdp for r in ledger.account(1e-5, ("rdp",))}
    two = {r.observer: r.epsilon_rdp for r in account(PLAN, 2, 1e-5, ("rdp",))}
    for observer, series in curves.items():
        assert series[5] == expected[observer]
        assert series[2] == two[observer]
        assert series.is_monotonic_increasing


def test_a_curve_is_of_the_client_worst_off_to_the_last_round():
    """Of many rounds two dozen points and the end."""
    plan = dataclasses.replace(
        PLAN, client_noise_multiplier=1.0, noising_clients=(5, 5), top_up=True
    )
    plan = dataclasses.replace(plan, mixing=(0.7, 0.3))
    ledger = Ledger()
    ledger.record(plan, 97)
    curve = epsilon_curves(ledger.state_dict(), Ledger, 1e-5)["released_model"]
    rows = ledger.account(1e-5, ("rdp",), "released_model")
    epsilons = [row.epsilon_rdp for row in rows]
    assert epsilons[-1] < max(epsilons) == curve[97]
    assert curve.index[-1] == 97 and 10 < len(curve) <= 25


def test_an_attack_that_was_killed_is_named(run):
    rows = run.path / "attacks" / "dlg" / "rows.json"
    rows.parent.mkdir(parents=True)
    rows.write_text('[{"psnr": Infinity}]')
    assert "psnr" in words(read(page(run)))
    rows.write_text("")
    with pytest.raises(FileError, match=r"rows\.json: holds no attack's rows"):
        page(run)


@pytest.mark.parametrize(
    "other",
    [
        *('{"psnr": 1.0}', '["psnr"]', "[[]]", "1", "null", '[{"psnr": [1.0]}]'),
        pytest.param("[" * 10**5, id="nested too deep"),
    ],
)
def test_what_an_attack_did_not_write_is_named(run, other):
    rows = run.path / "attacks" / "rows.json"
    rows.parent.mkdir()
    rows.write_text(other)
    with pytest.raises(FileError, match=r"rows\.json: holds no attack's rows"):
        page(run)


@pytest.mark.parametrize(
    ("published", "accounted", "shown"),
    [
        (["accuracy"], True, True),
        (None, True, True),
        ([], True, False),
        ([], False, True),
    ],
)
def test_what_no_epsilon_covers_is_not_handed_on(run, published, accounted, shown):
    """Of a run without noise nothing is promised that a number could break."""
    if published is not None:
        privacy = json.loads((run.path / "privacy.json").read_text())
        privacy["published"] = published
        (run.path / "privacy.json").write_text(json.dumps(privacy))
    if not accounted:
        run = dataclasses.replace(run, accounts=[])
    text = page(run)
    assert ("0.4 after round 4" in text) == shown
    assert ("which no epsilon covers" in text) != shown


def test_every_observer_of_the_published_runs_has_plain_words():
    """None is shown by its name in code; those of one system alone are its config's."""
    root = pathlib.Path(__file__).parents[2] / "docs" / "results"
    own = {
        paper: systems.config_class(system).observers
        for system, paper in (
            *(("hdp", "hdp"), ("hfl_dp", "hfl_dp"), ("gfl", "gfl")),
            *(("fl_top", "fl_top"), ("udp_hypernet", "udp_alg")),
        )
    }
    seen = set()
    for paper, words in own.items():
        for path in (root / paper).glob("*.csv"):
            columns = pd.read_csv(path, nrows=1).columns
            found = re.findall(r"^(\w+)\.\S+epsilon_rdp$", "\n".join(columns), re.M)
            assert {*found} <= plain_words._OBSERVERS.keys() | words.keys(), path
            seen.update(found)
    assert seen >= {name for words in own.values() for name in words}
