"""Every number in a table of docs/attacks.md is in a CSV that its section names."""

import itertools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CSV = re.compile(r"`(docs/results/[\w/]+\.csv)`")
NUMBER = re.compile(r"(?<![\w.=-])\d[\d,]*(?:\.\d+)?(?![\w=-])")
PAGE = (ROOT / "docs" / "attacks.md").read_text()
SECTIONS = {
    text.partition("\n")[0].removeprefix("## "): text
    for text in re.split(r"\n(?=## )", PAGE)
    if CSV.search(text)
}


def tables(section):
    """The rows of a section's tables, their heads apart."""
    rows = [line for line in section.splitlines() if line.startswith("|")]
    for head, rule in itertools.pairwise(rows):
        if set(rule) <= set("|- :"):
            rows.remove(head)
            rows.remove(rule)
    return rows


def is_among(number, values):
    """Whether it is one of the values, rounded to as many digits as it has."""
    digits = len(number.partition(".")[2])
    shown = float(number.replace(",", ""))
    return any(abs(value - shown) <= 0.51 * 10.0**-digits for value in values)


@pytest.mark.parametrize("name", SECTIONS)
def test_numbers_in_tables_are_in_the_csv(name):
    values = []
    for path in CSV.findall(SECTIONS[name]):
        # In words too: "and 3 super-nodes".
        values += map(float, re.findall(r"\d+(?:\.\d+)?", (ROOT / path).read_text()))
    checked = 0
    for row in tables(SECTIONS[name]):
        for cell in row.strip("|").split("|"):
            # Settings that words name, like "z = 1", are not results.
            if re.search(r"[A-Za-z]{2}|=", cell.replace("none", "")):
                continue
            for number in NUMBER.findall(cell):
                checked += 1
                assert is_among(number, values), f"{number} in: {row}"
    assert checked > 3


def test_a_number_that_is_not_there_is_found():
    assert is_among("0.76", [0.7602]) and is_among("14,600", [14600.4])
    assert not is_among("0.77", [0.7602]) and not is_among("14,601", [14602.2])
