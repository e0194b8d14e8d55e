"""A study's CSV as a table, and tables on their pages."""

import pandas as pd
import pytest

from scripts.papers import result_files, result_tables
from tff_hdp.errors import FileError


def frame():
    rows = [
        ("hdp", 0.60, 0.61, 7.0, 5.0),
        ("hdp", 0.64, 0.61, 7.0, 5.0),
        ("cdp", 0.70, 0.61, 21.5, None),
        ("none", 0.5, None, None, None),
    ]
    found = []
    for mode, accuracy, printed, rdp, pld in rows:
        row = {
            "privacy": mode,
            "printed": printed,
            "metric": "accuracy",
            "within": 0.03,
            "digest": mode,
            "accuracy": accuracy,
            "delta": 1e-5,
        }
        for observer in ("super_node.hdp", "released_model.hdp", "fellow_client.hdp"):
            nothing = observer.startswith("super_node")
            row |= {
                f"{observer}.epsilon_rdp": None if nothing else rdp,
                f"{observer}.epsilon_pld": None if nothing else pld,
                f"{observer}.neighbours": None if mode == "none" else "add_or_remove",
                f"{observer}.sampling": "Poisson, q = 0.2, participation hidden",
            }
        found.append(row)
    return pd.DataFrame(found)


def test_a_table_has_mean_spread_epsilons_and_verdict(tmp_path):
    path = tmp_path / "study.csv"
    frame().to_csv(path, index=False)
    lines = result_tables.table(path).splitlines()
    assert "own super-node | released model | fellow party | verdict |" in lines[0]
    assert lines[2].startswith(
        "| hdp | 2 | 0.61 | 0.620 ± 0.028 | none | 5 `A Ph` | 5 `A Ph` |"
    )
    assert lines[3].startswith(
        "| cdp | 1 | 0.61 | 0.700 | none | 21.5 `A Ph` | 21.5 `A Ph` |"
    )
    assert [line.split(" | ")[-1] for line in lines[2:4]] == [
        *("reproduced |", "not: 0.090 above |"),
    ]
    assert lines[4] == "| none | 1 |  | 0.500 | none | none | none | not printed |"
    assert "Epsilon at delta 1e-05, for one client" in lines[7]
    assert lines[-3:-1] == [
        "A    neighbours add or remove one client",
        "Ph   Poisson, q = 0.2, participation hidden",
    ]


def test_a_table_says_of_how_many_runs_a_mean_is(tmp_path):
    path = tmp_path / "study.csv"
    found = frame().assign(also="cloud_accuracy;tenure")
    found["cloud_accuracy"] = [0.5, None, 0.7, None]
    found["tenure"] = [1.0, 2.0, 3.0, 4.0]
    found.to_csv(path, index=False)
    lines = result_tables.table(path).splitlines()
    cells = [[c.strip() for c in line.split("|")][5:7] for line in lines[2:5]]
    assert cells == [["0.500 (of 1)", "1.5 ± 0.71"], ["0.700", "3"], ["", "4"]]


def test_an_observer_without_a_row_is_not_one_without_promise(
    tmp_path,
):
    """A fellow's epsilon is the largest of all fellows'."""
    found = frame()
    of_cdp = found["privacy"] == "cdp"
    for field in ("epsilon_rdp", "epsilon_pld", "neighbours", "sampling"):
        column = f"fellow_client.hdp.{field}"
        found[f"fellow_super_node.hdp.{field}"] = found[column]
        found[column] = found[column].mask(of_cdp)
        found[f"fellow_super_node.hdp.{field}"] = found[column]
    found.loc[found["privacy"] == "hdp", "fellow_super_node.hdp.epsilon_pld"] = 6.0
    found.to_csv(tmp_path / "study.csv", index=False)
    text = result_tables.table(tmp_path / "study.csv")
    rows = [[c.strip() for c in line.split("|")] for line in text.splitlines()[2:5]]
    assert [row[-3] for row in rows] == ["6 `A Ph`", "–", "none"]
    assert "\n–: no such party, or it sees what another column's does.\n" in text


def test_a_csv_with_words_beside_its_epsilons_has_codes(tmp_path):
    words = {
        "neighbours": ["zero_out", "replace_one"],
        "sampling": "every client every round",
    }
    frame = pd.DataFrame({"epsilon": [4.0, 5.0], "delta": 1e-5, **words})
    frame.to_csv(tmp_path / "account.csv", index=False)
    lines = result_tables.table(tmp_path / "account.csv").splitlines()
    assert lines[0] == "| epsilon | delta | rests on |"
    assert lines[2:4] == ["| 4 | 1e-05 | `Z E` |", "| 5 | 1e-05 | `R E` |"]
    assert lines[-4:-1] == [
        "Z    neighbours zero out one client",
        "R    neighbours replace one client by another",
        "E    every client every round",
    ]


def losses():
    """Two schemes over two seeds; the second loses .05 on one, .07 on the other."""
    found = [
        ("none", 0, 0.90),
        ("none", 1, 0.80),
        ("noisy", 0, 0.85),
        ("noisy", 1, 0.73),
    ]
    rows = [
        {
            "scheme": scheme,
            "printed": None,
            "metric": "accuracy",
            "within": 0.02,
            "printed_loss": None if scheme == "none" else 0.05,
            "also": "msd;z",
            "digest": scheme,
            "seed": seed,
            "accuracy": accuracy,
            "msd": 2e-4 * (1 + seed),
            "z": 5.0,
        }
        for scheme, seed, accuracy in found
    ]
    return pd.DataFrame(rows)


def test_a_loss_is_that_below_the_first_line_seed_by_seed(tmp_path):
    losses().to_csv(tmp_path / "study.csv", index=False)
    lines = result_tables.table(tmp_path / "study.csv").splitlines()
    assert "| below none, printed | below none | msd | z | verdict |" in lines[0]
    assert "| 0.850 ± 0.071 |  |  | 0.0003 ± 0.00014 | 5 | not printed |" in lines[2]
    assert "| 0.05 | 0.060 ± 0.014 | 0.0003 ± 0.00014 | 5 | reproduced |" in lines[3]


@pytest.mark.parametrize(("printed", "words"), [(0.02, "more"), (0.1, "less")])
def test_of_a_loss_it_is_said_which_way_it_is_off(tmp_path, printed, words):
    """A loss larger than printed was "above", beside an accuracy far below."""
    frame = losses()
    frame["printed_loss"] = frame["printed_loss"].replace(0.05, printed)
    frame.to_csv(tmp_path / "study.csv", index=False)
    line = result_tables.table(tmp_path / "study.csv").splitlines()[3]
    assert line.endswith(f"| not: loses 0.040 {words} |")


def test_a_csv_without_a_metric_is_shown_as_it_is(tmp_path):
    pd.DataFrame({"figure": ["2a"], "eps_paper": [3.99981]}).to_csv(
        tmp_path / "account.csv", index=False
    )
    text = result_tables.table(tmp_path / "account.csv")
    assert text == "| figure | eps paper |\n| --- | --- |\n| 2a | 3.9998 |"


def test_a_page_gets_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    frame().to_csv(tmp_path / "study.csv", index=False)
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results study -->\nold\n<!-- /results -->\nb\n")
    result_tables.embed(page)
    text = page.read_text()
    assert text.startswith("a\n<!-- results study -->\n| privacy |")
    assert text.endswith("<!-- /results -->\nb\n") and "old" not in text
    found = {"study": result_tables.table(tmp_path / "study.csv")}
    assert result_tables.embedded(page) == found
    (tmp_path / "study.csv").unlink()
    result_tables.embed(page)
    assert result_tables.embedded(page) == {"study": "**Not run.**"}


def test_a_csv_that_was_cut_is_refused(tmp_path):
    """Cut within a number it is another number."""
    path = tmp_path / "study.csv"
    text = frame()[["privacy", "printed", "metric", "within", "accuracy"]]
    path.write_text(text.to_csv(index=False)[:-2])
    with pytest.raises(FileError, match=r"study\.csv: ends within a line"):
        result_tables.table(path)
