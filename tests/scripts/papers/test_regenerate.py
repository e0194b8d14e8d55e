"""One command a page: every table that a page shows has the part that makes it."""

import importlib
import pathlib

import pytest

from scripts.papers import regenerate, result_files
from scripts.papers.attacks.commands import CSVS

ROOT = result_files.ROOT
# What hdp/reproduce.py computes without training.
FORMULAS = ("table1", "table3", "others", "levels", "compare", "table2")
PAGES = ("hdp", "hfl_dp", "gfl", "fl_top", "udp_hypernet", "comparison", "attacks")
NAMES = [
    name for page in PAGES for name in regenerate.shown_in(ROOT / "docs" / f"{page}.md")
]


def studies_of(paper, part, asked):
    """The study that reproduce.py runs when told so."""
    trained = importlib.import_module(f"scripts.papers.{paper}.trained")
    scale = asked.get("--scale", "full")
    if paper == "fl_top":
        return trained.studies(scale, [part])[part]
    if paper == "hdp":
        return trained.studies(scale, asked.get("--compute_dtype", "float32"))[part]
    return trained.studies(scale)[part]


@pytest.mark.parametrize("name", NAMES)
def test_a_tables_command_writes_its_csv(name):
    command = regenerate.command_of(name)
    path = ROOT / "docs" / "results" / f"{name.removesuffix('_printed')}.csv"
    if command is None:
        assert not path.exists() or name.startswith("benchmarks/")
        return
    program, *given = command
    asked = dict(flag.split("=") for flag in given)
    if name.startswith("attacks/"):
        parts = asked["--what"].split(",")
        assert {*parts} <= {*CSVS} and (parts == [path.stem] or len(parts) > 1)
        seeds = [result_files.read(path.with_name(f"{p}.csv"))["seed"] for p in parts]
        assert {*map(int, asked["--seeds"].split(","))} == set().union(*seeds)
        return
    if "--seeds" in asked:
        paper = pathlib.Path(program).parent.name
        study = studies_of(paper, asked["--what"], asked)
        beside = [f"{study.name}_{name}.csv" for name in study.derived]
        left = [study.csv(result_files.RESULTS).name, *beside]
        assert path.name in left
        seeds = result_files.read(study.csv(result_files.RESULTS))["seed"]
        assert {*map(int, asked["--seeds"].split(","))} == {*seeds}
    else:
        assert (ROOT / program).is_file()
        assert asked.get("--what") in (None, "account", *FORMULAS)


def test_what_a_page_links_to_is_made_too(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- results hdp/case4 -->\n|a|\n<!-- /results -->\n"
        "([a](results/hdp/table3.csv), [b](results/hdp/case4.csv), "
        "[c](results/hdp/curves/case4.csv))\n"
    )
    assert regenerate.shown_in(page) == ["hdp/case4", "hdp/table3"]
    program = "scripts/papers/hdp/reproduce.py"
    assert regenerate.command_of("hdp/table3") == [program, "--what=table3"]
    assert regenerate.command_of("hdp/table2") == [program, "--what=table2"]


def test_a_pages_commands_are_listed(run_program):
    found = run_program("scripts/papers/regenerate.py", "docs/gfl.md", "--list")
    program = "python scripts/papers/gfl/reproduce.py"
    # Of its three tables two are of one part.
    assert found.stdout.splitlines() == [
        f"{program} --what={part} --scale=full --seeds=0,1,2 --jobs=1"
        for part in ("figure2", "mnist")
    ]


# Runs the program with commands that say where they run instead of training.
CODE = """
import runpy, subprocess, sys

def run(command, *, cwd, env, check):
    print("ran", command[1:], env["TFF_HDP_DATA"])
    return subprocess.CompletedProcess(command, "mnist" in command[2])

subprocess.run = run
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_all_run_and_what_fails_is_named(run_program, tmp_path):
    text = (ROOT / "docs" / "gfl.md").read_text()
    copy = tmp_path / "gfl.md"
    copy.write_text(text.replace("| hybrid |", "| of before |"))
    page = [str(copy), "--jobs=3", "--data_dir=mine"]
    found = run_program("-c", CODE, "scripts/papers/regenerate.py", *page)
    ran = [line for line in found.stdout.splitlines() if line.startswith("ran")]
    assert len(ran) == 2
    # As seen from where it was called, which need not be where the commands run.
    assert all(line.endswith(f"'--jobs=3'] {ROOT / 'mine'}") for line in ran)
    last = found.stdout.splitlines()[-1]
    assert last.startswith(
        "failed: python scripts/papers/gfl/reproduce.py --what=mnist"
    )
    assert found.returncode == 1
    # Its tables are those of the CSVs as they are now.
    assert copy.read_text() == text


@pytest.mark.parametrize("page", [[], ["docs/no_such.md"], ["docs/benchmarks.md"]])
def test_what_is_no_page_of_a_paper_is_refused(run_program, page):
    found = run_program("scripts/papers/regenerate.py", *page, "--list")
    assert found.returncode == 2
    assert "PAGE is" in found.stderr
