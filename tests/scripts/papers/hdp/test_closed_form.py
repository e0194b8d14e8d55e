"""The HDP paper's closed-form tables and figures, from the command line."""

import re

import pandas as pd
import pytest

from scripts.papers.hdp import reproduce
from scripts.papers.result_files import RESULTS

SCRIPT = "scripts/papers/hdp/reproduce.py"


@pytest.fixture(scope="module")
def folder(run_program, tmp_path_factory):
    out = tmp_path_factory.mktemp("hdp")
    result = run_program(SCRIPT, f"--out={out}", timeout=300)
    assert result.returncode == 0, result.stderr
    for part in ("table1", "table3", "others", "levels", "compare"):
        assert (out / f"{part}.txt").read_text().strip() in result.stdout
    return out


@pytest.mark.parametrize("part", ["table1", "table3", "others", "levels", "compare"])
def test_the_docs_have_what_it_finds(folder, part):
    found = pd.read_csv(folder / f"{part}.csv")
    held = pd.read_csv(RESULTS / "hdp" / f"{part}.csv")
    # Of four digits.
    pd.testing.assert_frame_equal(held, found, check_dtype=False, rtol=1e-3)


def test_a_table_of_the_docs_is_written_as_it_is_held(tmp_path):
    (tmp_path / "docs").mkdir()
    reproduce.write("others", tmp_path, tmp_path / "docs")
    held = RESULTS / "hdp" / "others.csv"
    assert (tmp_path / "docs" / "others.csv").read_text() == held.read_text()


def test_table_i_has_every_configuration(folder):
    table = pd.read_csv(folder / "table1.csv")
    assert set(table["configuration"]) == {f"C{i}" for i in range(1, 8)}
    (c5,) = table.query("configuration == 'C5' and client_kind == 'ldp'").to_dict(
        "records"
    )
    assert c5["released_noise_multiplier"] == pytest.approx((0.5 * 100 + 1) ** 0.5)


def test_table_iii_has_what_is_printed_beside_what_is_true(folder):
    table = pd.read_csv(folder / "table3.csv").set_index(["data_set", "mode", "rounds"])
    ldp, hdp = (table.loc[("CIFAR-10/100", mode, 200)] for mode in ("ldp", "hdp"))
    assert ldp["epsilon_paper"] == pytest.approx(2.48074, rel=1e-5)
    assert hdp["printed"] == 7.48
    assert hdp["released_epsilon_pld"] == pytest.approx(4.0803, rel=1e-4)


def test_the_other_papers_are_there(folder):
    table = pd.read_csv(folder / "others.csv")
    assert set(table["system"]) == {"HFL-DP", "GFL", "UDP-Alg", "FL-TOP-DP"}
    # GFL's noise cancels in what is released.
    assert table["epsilon_sound"].isna().sum() == 1
    # As run, one example moves HFL-DP's model as far as all of a client's.
    hfl_dp = table.query("system == 'HFL-DP'")
    small = hfl_dp.query("epsilon_sound < 1000")["setting"]
    assert len(small) == 2 and small.str.endswith("if its part were clipped").all()


def test_levels(folder):
    table = pd.read_csv(folder / "levels.csv").set_index(["noise_at", "level"])
    # The released model under noise of clients and of super-nodes: k = 100, s = 10.
    for noise_at, by_formula, sound in ((0, 2.481, 2.964), (1, 7.845, 4.436)):
        row = table.loc[(noise_at, 3)]
        assert row["epsilon_paper"] == pytest.approx(by_formula, abs=5e-4)
        assert row["epsilon_rdp"] == pytest.approx(sound, abs=5e-4)


def test_the_comparison_holds_one_thing_equal_at_a_time(folder):
    table = pd.read_csv(folder / "compare.csv")
    by_release = table.query("equal == 'release' and observer == 'released_model'")
    assert by_release["noise_multiplier"].to_numpy() == pytest.approx(10**0.5)
    by_party = table.query("equal == 'multiplier'")
    assert by_party["party_noise_multiplier"].to_numpy() == pytest.approx(1.0)


def test_every_epsilon_says_what_it_rests_on(folder):
    for part in ("table1", "table3", "levels", "compare"):
        text = (folder / f"{part}.txt").read_text()
        for words in ("delta", "1e-05", "rests on", "neighbours", "Poisson, q = "):
            assert words in text, part
        assert re.search("A .*Ph.* H", text) and re.search("^A +neighbours", text, re.M)
    assert "under-states" in (folder / "table3.txt").read_text()


def test_figures_are_drawn(folder):
    for name in ("levels", "privacy_equal_multiplier", "privacy_equal_release"):
        assert (folder / f"{name}.png").stat().st_size > 1000


def test_bad_flags_are_one_line(assert_refused):
    assert_refused(SCRIPT, ["--what=table4"], ["--what is table4", "table1, table3"])
    assert_refused(SCRIPT, ["--out=/dev/null/x"], ["/dev/null/x"])
