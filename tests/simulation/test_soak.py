"""Many rounds through every fault: finite, no process left, memory steady at last."""

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "soak.py"


def soak(tmp_path, *arguments):
    found = tmp_path / "found.json"
    result = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, f"--json={found}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert result.returncode == 0, found.read_text() + result.stderr[-2000:]
    return json.loads(found.read_text())


@pytest.mark.timeout(600)
def test_a_short_soak(tmp_path):
    seen = soak(tmp_path, "--rounds=30", "--election_protocol=drawn")
    assert seen["rounds"] == 30
    assert seen["finite"]
    assert seen["processes_left"] == 0
    assert seen["failed_super_nodes"] > 0
    assert seen["dropped"] > 0
    assert seen["memory_growth"] < 0.3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_five_hundred_rounds(tmp_path):
    seen = soak(tmp_path, "--rounds=500")
    assert seen["rounds"] == 500
    assert seen["memory_growth"] <= 0.05
    assert seen["elections"] > 100
    assert seen["byzantine"] > 0


def test_too_few_rounds_to_tell():
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "--rounds=29"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stderr == "error: --rounds is 29; allowed: 30 or more\n"
