"""What the attack program prints of its rows."""

import csv
import json

import pytest

from scripts import attack

ROW = {
    "attack": "identification",
    "privacy": "hdp",
    "observer": "another client",
    "psnr_mean": None,
    "identified": 0.25,
    "bound": 0.283,
    "rounds": 1,
    "epsilon": 2.94,
    "delta": 1e-5,
    "neighbours": "zero_out",
    "sampling": "every client takes part in every round",
}
BARE = ROW | {"epsilon": None, "assumptions": "no guarantee: nobody adds noise"}


@pytest.mark.parametrize("rows", [[ROW], [BARE], [ROW | {"assumptions": ""}, BARE]])
def test_a_table_says_what_its_epsilons_rest_on(rows, capsys):
    attack.show(rows, "table")
    table, notes, legend = capsys.readouterr().out.split("\n\n")
    names, *lines = map(str.split, table.splitlines())
    assert "psnr_mean" not in names and "sampling" not in names
    assert "observer" in names and "delta" in names and "no guarantee" in notes
    assert len(lines) == len(rows)
    assert "Z    neighbours zero out one client" in legend
    for row, line in zip(rows, lines, strict=True):
        assert ("none" if row["epsilon"] is None else "2.94") in line
        expected = ["Z", "E"] + ["N"] * bool(row.get("assumptions"))
        assert line[-len(expected) :] == expected
        for said in (row["sampling"], row.get("assumptions", "")):
            assert said in legend


def test_other_formats_hold_every_column(capsys):
    attack.show([ROW, BARE], "json")
    assert json.loads(capsys.readouterr().out) == [ROW, BARE]
    attack.show([BARE], "csv")
    (found,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert set(found) == set(BARE) and found["bound"] == "0.283"
