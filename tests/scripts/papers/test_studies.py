"""A study's CSV, its table, and the docs' tables, which must be those of their CSVs."""

import pathlib

import pandas as pd
import pytest

from scripts.papers import studies
from scripts.papers.hdp import reproduce, trained

PAGES = sorted((studies.ROOT / "docs").glob("*.md"))


def test_every_table_in_the_docs_is_that_of_its_csv():
    held = {k: v for page in PAGES for k, v in studies.embedded(page).items()}
    for name, text in held.items():
        assert text == studies.table(studies.RESULTS / f"{name}.csv"), name


def test_what_can_be_asked_is_what_there_is():
    assert set(reproduce.TRAINED) == set(trained.STUDIES)


@pytest.mark.parametrize("name", trained.STUDIES)
def test_every_line_is_a_run_of_its_own(name, tmp_path):
    """Settings that hold together, and another run for every line and seed."""
    study = trained.STUDIES[name]
    jobs = study.jobs([0, 1], tmp_path, {})
    assert len({job.path for job in jobs}) == len(jobs) == 2 * len(study.lines)
    assert len({job.digest for job in jobs}) == len(study.lines)


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
    lines = studies.table(path).splitlines()
    assert "own super-node | released model | verdict |" in lines[0]
    assert lines[2] == "| hdp | 2 | 0.61 | 0.620 ± 0.028 | none | 5 | reproduced |"
    assert lines[3] == "| cdp | 1 | 0.61 | 0.700 | none | 21.5 | not: 0.090 above |"
    assert lines[4] == "| none | 1 |  | 0.500 | none | none | not printed |"
    assert "delta 1e-05; released model add_or_remove neighbours" in lines[-1]
    assert "Poisson, q = 0.2, participation hidden" in lines[-1]


def test_a_page_gets_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "RESULTS", tmp_path)
    frame().to_csv(tmp_path / "study.csv", index=False)
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results study -->\nold\n<!-- /results -->\nb\n")
    studies.embed(page)
    text = page.read_text()
    assert text.startswith("a\n<!-- results study -->\n| privacy |")
    assert text.endswith("<!-- /results -->\nb\n") and "old" not in text
    assert studies.embedded(page) == {"study": studies.table(tmp_path / "study.csv")}


@pytest.mark.slow
def test_the_command_runs_every_line_and_tabulates(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/hdp/reproduce.py", "--what=figure2_mnist", "--scale=tiny"),
        *("--seeds=3", f"--out={tmp_path}"),
    )
    assert result.returncode == 0, result.stderr
    found = pd.read_csv(pathlib.Path(tmp_path) / "hdp" / "figure2_mnist.csv")
    assert found["privacy"].tolist() == ["none", "cdp", "hdp", "ldp"]
    assert found["accuracy"].between(0, 1).all() and found["git_commit"].notna().all()
    assert "| hdp |" in result.stdout
