"""Programs are modules too: each can be imported beside all others."""

import ast
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


def imported_at_once(path):
    """What a file imports when it is run, before any function is called."""
    todo = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        elif not isinstance(node, ast.FunctionDef):
            todo += ast.iter_child_nodes(node)


def test_what_only_the_clone_has_is_imported_where_its_want_is_one_line(repository):
    """`cli.run` says so; before it there would be a traceback."""
    rooms = ("scripts", "benchmarks")
    files = [
        path
        for room in rooms
        for path in (repository / room).rglob("*.py")
        if ".venvs" not in path.parts
    ]
    # Benchmarks are run from their own folder, whose files programs import by name.
    beside = [path for path in files if path.parent == repository / "benchmarks"]
    run = {path for path in files if "__main__" in path.read_text()}
    assert {"plan.py", "torture.py", "protocols.py"} <= {path.name for path in run}
    for path in run.union(beside):
        found = {name.partition(".")[0] for name in imported_at_once(path)}
        assert not found & {*rooms, "tests"}, path
