"""Many rounds through every fault: finite, no process left, memory steady at last."""

import json

import pytest

SCRIPT = "scripts/soak.py"


@pytest.fixture
def soak(start_program, tmp_path):
    """Runs scripts/soak.py and returns what it found.

    In a new interpreter: one that is forked has its parent's memory as it touches it,
    which looks like growth.
    """

    def run(*arguments):
        found = tmp_path / "found.json"
        result = start_program(SCRIPT, *arguments, f"--json={found}", timeout=None)
        assert result.returncode == 0, found.read_text() + result.stderr[-2000:]
        return json.loads(found.read_text())

    return run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_short_soak(soak):
    seen = soak("--rounds=30", "--election_protocol=drawn")
    assert seen["rounds"] == 30
    assert seen["finite"]
    assert seen["processes_left"] == 0
    assert seen["failed_super_nodes"] > 0
    assert seen["dropped"] > 0
    assert seen["memory_growth"] < 0.3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_five_hundred_rounds(soak):
    seen = soak("--rounds=500")
    assert seen["rounds"] == 500
    assert seen["memory_growth"] <= 0.05
    assert seen["elections"] > 100
    assert seen["byzantine"] > 0


def test_too_few_rounds_to_tell(run_program):
    result = run_program(SCRIPT, "--rounds=29")
    assert result.returncode == 2
    assert result.stderr == "error: --rounds is 29; allowed: 30 or more\n"
