"""Accounts as text: nothing that an epsilon rests on is lost to its codes."""

import dataclasses
import re

import pytest

from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    Ledger,
    Level,
    PoissonSampling,
    ThreatModel,
    account,
    configurations,
)
from tff_hdp.privacy.accountant import SOUND
from tff_hdp.privacy.table import (
    account_text,
    code_of,
    legend,
    numbered,
    statements,
)

SIZES = (4, 6, 9)
POISSON = PoissonSampling((0.5,) * 3)
PLANS = {
    "hdp": (configurations.c2, {}, {}),
    "ldp": (configurations.c1, {}, {"dropout_rate": 0.1}),
    "cdp": (configurations.c4, {}, {"cohort_known": True}),
    "mixed": (
        configurations.c7,
        {"alpha": 1 / 3, "beta": 1 / 3, "mixing": "equal"},
        {"colluding_clients": 1, "elected_super_nodes": True},
    ),
    "secure": (
        configurations.c1,
        {"secure_aggregation": True, "secure_server": True, "min_zone_clients": 2},
        {},
    ),
    "unmasked": (
        configurations.c1,
        {"secure_aggregation": True},
        {"colluding_clients": 2},
    ),
    "not_secure": (
        configurations.c1,
        {"secure_aggregation": True},
        {"secure_sums_hold": False},
    ),
    "colluding": (configurations.c2, {}, {"colluding_super_nodes": 2}),
    "skipped": (configurations.c2, {}, {"skipped_zones": 1}),
    "all_collude": (configurations.c2, {}, {"colluding_super_nodes": 3}),
    "bounded": (configurations.c1, {"estimator": "bounded"}, {}),
    "topped_up": (configurations.c1, {"top_up": True}, {}),
    "fixed": (configurations.c2, {"sampling": FixedSizeSampling((2, 3, 4))}, {}),
    "full": (configurations.c2, {"sampling": FullParticipation()}, {}),
    "known": (configurations.c2, {}, {"participation_revealed": True}),
    "there": (
        configurations.c2,
        {},
        {"cohort_known": True, "neighbours": "add_or_remove"},
    ),
    "levels": (configurations.c2, {"upper_levels": [Level((0, 0, 1), (1.0,) * 2)]}, {}),
    "weight_0": (configurations.c2, {"mixing": (0.4, 0.6, 0.0)}, {}),
    "long": (configurations.c2, {}, {}),
}


def rows_of(name):
    build, options, threat = PLANS[name]
    plan = build(
        zone_sizes=SIZES,
        noise_multiplier=2.0,
        **{"sampling": POISSON, "min_zone_clients": 1} | options,
    )
    rounds, methods = (10**6 + 1, SOUND) if name == "long" else (3, ("rdp",))
    rows = account(plan, rounds, 1e-5, methods, threat=ThreatModel(**threat))
    return [row.to_dict() for row in rows]


def squeezed(text):
    return " ".join(text.split())


def read(text):
    """The codes of every line of the table, and the legend: code to text."""
    head, _, rest = text.partition("\n\n")
    table, _, rest = rest.partition("\n\n")
    start = table.splitlines()[0].index("rests on")
    codes = [line[start:].replace("|", " ").split() for line in table.splitlines()[1:]]
    legend = re.split(r"^(\S+) +", rest.split("\n\n")[-1], flags=re.M)[1:]
    return head, codes, dict(zip(legend[::2], map(squeezed, legend[1::2]), strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_every_code_is_explained_and_every_statement_has_one(name):
    rows = rows_of(name)
    head, codes, legend = read(account_text(rows))
    assert "delta 1e-05" in head
    assert {code for line in codes for code in line} == set(legend)
    said = set(legend.values())
    for row in rows:
        own = [code for code in map(code_of, statements(row)) if code in "AZRM"]
        assert own == [code_of(row["neighbours"])]
        assert own[0] in legend
        for statement in statements(row)[1:]:
            assert squeezed(statement) in said
            # What this library says of a plan has a code of its own.
            assert code_of(statement) != "O"


@pytest.mark.parametrize(
    ("name", "statement", "code"),
    [
        (
            "there",
            "no guarantee: the observer learns who takes part, and so that the client "
            "is there (zero_out neighbours have one)",
            "N",
        ),
        ("levels", "a super-node elsewhere, of any level, knows its own output", "X"),
        ("weight_0", "the zone's mixing weight is 0: nothing of it is seen", "Ns"),
        ("long", "PLD is not taken of more than 1,000,000 rounds", "I"),
    ],
)
def test_statements_have_the_code_that_the_page_says(name, statement, code):
    assert statement in {s for row in rows_of(name) for s in statements(row)}
    assert code_of(statement) == code


def test_other_words_are_kept_too():
    row = rows_of("hdp")[1] | {"assumptions": "the moon is full; the moon is new"}
    _, codes, legend = read(account_text([row]))
    assert codes == [["A", "Ph", "O1", "O2"]]
    assert (legend["O1"], legend["O2"]) == ("the moon is full", "the moon is new")


def test_zones_alike_are_one_line():
    rows = [rows_of("hdp")[1] | {"zone": zone} for zone in (0, 1, 2, 5)]
    text = account_text(rows)
    assert "hdp     0-2,5  2" in text
    assert len(read(text)[1]) == 1


def test_plans_one_after_the_other_stay_apart():
    ledger = Ledger()
    plan = configurations.c2(zone_sizes=SIZES, sampling=POISSON, noise_multiplier=1.0)
    ledger.record(plan)
    ledger.record(dataclasses.replace(plan, sampling=PoissonSampling((0.25,) * 3)))
    text = account_text([r.to_dict() for r in ledger.account(1e-5, ("rdp",))])
    assert "A Ph1 | Ph2 H" in text


def test_several_deltas_have_a_column():
    rows = [rows_of("hdp")[2] | {"delta": delta} for delta in (1e-5, 1e-6)]
    text = account_text(rows)
    assert "delta" in text.splitlines()[2]
    assert "1e-06" in text


def test_the_page_has_every_code(repository):
    page = (repository / "docs" / "privacy.md").read_text()
    listed = set(
        " ".join(re.findall(r"^\| (`.*?`) \| ", page, re.M)).replace("`", "").split()
    )
    used = {
        code
        for name in PLANS
        for r in rows_of(name)
        for code in map(code_of, statements(r))
    }
    assert used <= listed


def test_statements_that_differ_in_their_grid_share_a_code():
    """And those that differ otherwise do not, of whatever code they are."""
    too_small = "noise too small for PLD: it would need a grid of "
    words = [f"PLD on a grid of {at}, rounded up" for at in ("0.1", "0.0002", "0.05")]
    words += [f"{too_small}{at}" for at in ("104.858", "3.2768")]
    words += ["no PLD: the sampling has none"]
    rows = [{"neighbours": "", "sampling": "", "assumptions": w} for w in words]
    codes = numbered(rows)
    assert [codes[w] for w in words] == ["G", "G", "G", "I1", "I1", "I2"]
    assert legend(codes) == [
        "G    PLD on a grid of 0.0002 to 0.1, rounded up",
        f"I1   {too_small}3.2768 to 104.858",
        "I2   no PLD: the sampling has none",
    ]
