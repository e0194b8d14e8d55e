"""What is checked of all systems' runs is checked of every system's."""

import pathlib
import re

import pytest

from tff_hdp import systems

ROOT = pathlib.Path(__file__).parents[2]
# CONTRIBUTING.md says what of a system goes into each.
LISTS = (
    *("mkdocs.yml", "docs/architecture.md", "scripts/measure_house.py"),
    *("scripts/parts/torture_systems.py", "scripts/parts/torture_folders.py"),
    *("tests/runtime/test_equivalence_matrix_systems.py", "tests/test_docs.py"),
    *("tests/systems/test_fixed_random_device.py", "tests/systems/test_ledgers.py"),
    *("tests/systems/test_hostile_clients.py", "tests/systems/test_killed_runs.py"),
    *("tests/systems/test_round_data.py", "tests/systems/test_settings.py"),
    *("tests/simulation/test_config.py", "tests/simulation/test_trackers.py"),
    *("tests/scripts/test_quiet.py", "tests/scripts/papers/test_presets.py"),
)
# tests/systems/hdp/test_round_data.py is HDP's own, which prepares rounds another way.
ELSEWHERE = {"tests/systems/test_round_data.py": {"hdp"}}


@pytest.mark.parametrize("file", LISTS)
def test_lists_of_systems_leave_none_out(file):
    """Of one that a list lacks nothing is checked there, and no other test fails."""
    text = (ROOT / file).read_text()
    names = {s: systems.config_class(s).__name__ for s in systems.PROGRAMS.values()}
    found = {s for s, name in names.items() if re.search(rf"\b({s}|{name})\b", text)}
    assert found | ELSEWHERE.get(file, set()) == names.keys()
