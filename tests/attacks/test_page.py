"""Every number in a table of docs/attacks.md, and every result in its prose."""

import functools
import random
import re

import pytest

from scripts.papers import result_files, result_tables
from scripts.papers.attacks import tables as attack_tables
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.privacy import Clipping, FullParticipation, configurations

PAGE = result_files.ROOT / "docs" / "attacks.md"
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# Shares, decibels and epsilons.
RESULT = re.compile(r"\b\d\.\d{3}\b|[\d.]+(?= dB)|(?<=epsilon of )[\d,]+")
HELD = {
    "super-node that sees its clients": {"level": 1},
    "super-node, secure sum": {"level": 1, "secure": True},
    "elected super-node, secure sum": {"level": 1, "secure": True, "elected": True},
    "server that sees zones": {"level": 2},
    "server, secure sum": {"level": 2, "secure": True},
    "another client": {"level": 0},
    "whoever gets the model": {"level": "outside"},
}
shown = functools.cache(result_tables.shown)


def vantage(mode, level, secure=False, elected=False):
    plan = configurations.CONFIGURATIONS[mode](
        zone_sizes=(2, 2),
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=1.0),
        noise_multiplier=1.0,
        secure_aggregation=secure,
        secure_server=secure,
    )
    return Vantage(plan=plan, level=level, elected=elected)


@functools.cache
def held():
    """What an observer holds, by the account."""
    lines = ["| observer | m | LDP | HDP | CDP |", "|---|---|---|---|---|"]
    for name, options in HELD.items():
        seen = [vantage(mode, **options) for mode in ("ldp", "hdp", "cdp")]
        nus = " | ".join(f"{it.noise_multiplier:.3g}" for it in seen)
        lines.append(f"| {name} | {seen[0].unknown_clients} | {nus} |")
    return "\n".join(lines) + "\n"


def numbers(found):
    return {float(number.replace(",", "").rstrip(".")) for number in found}


def faults(page):
    """What is not as the CSVs, or the account, have it."""
    text = page.read_text()
    embedded = result_tables.embedded(page)
    for name, table in embedded.items():
        if table != shown(name):
            yield f"{name} is not of its CSV"
    made = {held(), *(f"{table}\n" for table in embedded.values())}
    for table in TABLE.findall(text):
        if table not in made and not table.startswith("| `--attack` |"):
            yield f"made by hand: {table.splitlines()[0]}"
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        tables = " ".join(TABLE.findall(section))
        prose = re.sub(r"^(?:\||    ).*\n", "", section, flags=re.MULTILINE)
        for result in sorted(numbers(RESULT.findall(prose))):
            if result not in numbers(NUMBER.findall(tables)):
                yield f"in no table of its section: {result:g}"


def moved(number, by):
    """The number a few units of its last digit away."""
    digits, comma = len(number.partition(".")[2]), "," * ("," in number)
    value = float(number.replace(",", "")) + by * 10.0**-digits
    return f"{abs(value):{comma}.{digits}f}"


def test_numbers_are_those_of_the_csvs():
    assert list(faults(PAGE)) == []
    assert set(attack_tables.TABLES) <= set(result_tables.embedded(PAGE))


@pytest.mark.parametrize("at", range(len(TABLE.findall(PAGE.read_text())) - 1))
def test_a_number_that_is_another_is_found(at, tmp_path):
    """Five cells of each table, each moved by 1 or 2 in its last digit."""
    text, before = PAGE.read_text(), set(faults(PAGE))
    tables = [it for it in TABLE.finditer(text) if "| `--attack` |" not in it[0]]
    cells = list(NUMBER.finditer(text, *tables[at].span()))
    draws = random.Random(at)
    for cell in draws.sample(cells, 5):
        other = moved(cell[0], draws.choice((-1, 1, 2)))
        page = tmp_path / "attacks.md"
        page.write_text(text[: cell.start()] + other + text[cell.end() :])
        assert set(faults(page)) - before, f"{other} for {cell[0]}"


def test_a_result_in_prose_that_is_another_is_found(tmp_path):
    text, page = PAGE.read_text(), tmp_path / "attacks.md"
    changes = (
        ("finds 0.207 under", "finds 0.208 under"),
        (", 44.4 dB and", ", 44.5 dB and"),
        ("epsilon of 14,600", "epsilon of 14,700"),
    )
    for result, other in changes:
        assert result in text
        page.write_text(text.replace(result, other))
        assert len(list(faults(page))) == 1
