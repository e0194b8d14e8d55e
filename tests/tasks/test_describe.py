import re
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from tasks import describe

DOC = Path(__file__).parents[2] / "docs" / "data.md"
BUNDLED = [name for name, dataset in tasks.TASKS.items() if dataset.files is None]


def documented_rows():
    """The rows of the first table of docs/data.md, by task."""
    table = re.search(r"(^\|.*\n)+", DOC.read_text(), re.MULTILINE).group()
    return {row.split()[1]: row for row in table.splitlines()[2:]}


def test_missing_sets_are_listed_with_their_models(tmp_path, no_network):
    rows = describe.table(str(tmp_path)).splitlines()[2:]
    assert len(rows) == len(tasks.TASKS)
    for name, row in zip(tasks.TASKS, rows, strict=True):
        assert row.startswith(f"| {name} |")
        assert ("not found" in row) == (name not in BUNDLED)
        for model in tasks.MODELS[name]:
            assert model in row


@pytest.mark.parametrize("name", BUNDLED)
def test_rows_of_bundled_sets_are_documented(name):
    assert f"| {' | '.join(describe.row(name, None))} |" == documented_rows()[name]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * name.startswith("cifar"))
        for name in tasks.TASKS
        if name not in BUNDLED
    ],
)
def test_documented_rows_are_what_the_command_prints(name, data_dir, no_network):
    cells = describe.row(name, str(data_dir))
    documented = documented_rows()[name]
    if "not found" in cells:
        assert documented.endswith(f"| {cells[-1]} |")
        pytest.skip(f"{name} is not in {data_dir}")
    assert documented == f"| {' | '.join(cells)} |"


def test_a_folder_that_is_not_there_is_no_table_of_what_is_missing(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "tasks.describe", str(tmp_path / "nowhere")],
        cwd=DOC.parents[1],
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == 2
    assert re.search(r"folder is .*nowhere; allowed: one that", ended.stderr)
