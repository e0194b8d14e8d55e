"""The house rules that keep the rooms apart."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# What each room may import of ours, besides itself: the floors beneath it.
ALLOWED = {
    "tff_hdp.topology": set(),
    "tff_hdp.protocols": {"tff_hdp.topology"},
    "tff_hdp.privacy": {"tff_hdp.topology", "tff_hdp.protocols"},
    "tff_hdp.runtime": set(),
    "tff_hdp.aggregators": {
        "tff_hdp.privacy",
        "tff_hdp.protocols",
        "tff_hdp.topology",
    },
    "tff_hdp.simulation": {
        "tasks",
        "tff_hdp.privacy",
        "tff_hdp.runtime",
        "tff_hdp.topology",
    },
    "tff_hdp.clients": {"tff_hdp.aggregators", "tff_hdp.privacy"},
    "tff_hdp.systems": {
        "tasks",
        "tff_hdp.aggregators",
        "tff_hdp.clients",
        "tff_hdp.privacy",
        "tff_hdp.protocols",
        "tff_hdp.runtime",
        "tff_hdp.simulation",
        "tff_hdp.topology",
    },
    "tasks": set(),
}
NO_TENSORFLOW = ("tff_hdp.topology", "tff_hdp.privacy", "tff_hdp.protocols")


def imports_of(path):
    """Names of the modules a file imports, at any depth, save under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module):
    parts = module.split(".")
    if parts[0] == "tff_hdp":
        return ".".join(parts[:2]) if len(parts) > 1 else "tff_hdp"
    return parts[0]


def files_of(room):
    return sorted((ROOT / room.replace(".", "/")).rglob("*.py"))


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_import_only_what_they_may(room):
    known = {*ALLOWED, "scripts"}
    for path in files_of(room):
        used = {room_of(module) for module in imports_of(path)} & known
        assert used <= ALLOWED[room] | {room}, f"{path} imports {used}"


@pytest.mark.parametrize("room", NO_TENSORFLOW)
def test_rooms_without_tensorflow(room):
    heavy = {"tensorflow", "tensorflow_federated", "tensorflow_privacy"}
    for path in files_of(room):
        used = {module.split(".")[0] for module in imports_of(path)} & heavy
        assert not used, f"{path} imports {used}"


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").rglob("*.py")))
def test_help_needs_no_tensorflow(script):
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{str(script)!r}, '--help']\n"
        "try:\n"
        f"    runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=script.parent,
    )
    assert result.returncode == 0, result.stderr
    assert "--" in result.stdout
