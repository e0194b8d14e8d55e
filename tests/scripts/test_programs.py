"""Programs are modules too: each can be imported beside all others."""

import importlib

import pytest
from absl import flags


@pytest.fixture(scope="module")
def programs(repository):
    found = {}
    for path in sorted((repository / "scripts").rglob("*.py")):
        name = ".".join(path.relative_to(repository).with_suffix("").parts)
        if "__main__" in path.read_text():
            found[name] = importlib.import_module(name)
    return found


def test_importing_one_defines_no_flag(programs):
    """Two programs would otherwise fall over a flag of the same name."""
    assert {"scripts.train", "scripts.papers.hdp.reproduce"} <= programs.keys()
    assert not set(flags.FLAGS.flags_by_module_dict()) & programs.keys()
