"""Peers run in environments of their own, which do not hold this library."""

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

import pytest

_BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
_PROGRAMS = sorted(_BENCHMARKS.glob("peers/*/*.py"))
# What can be imported of a requirement, and of what it brings that programs use.
_BROUGHT = {
    "breaching": {"breaching", "omegaconf"},
    "dm-haiku": {"haiku"},
    "fedjax": {"fedjax"},
    "flwr": {"flwr", "numpy"},
    "jax": {"jax", "numpy"},
    "jaxlib": {"jaxlib"},
    "numpy": {"numpy"},
    "optax": {"optax"},
    "pfl": {"pfl", "numpy"},
    "scipy": {"scipy"},
    "torch": {"torch", "numpy"},
}


def _imported(path: pathlib.Path) -> Iterator[str]:
    """Modules that a file imports when it is imported itself."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _needed(path: pathlib.Path, root: pathlib.Path = _BENCHMARKS) -> set[str]:
    """Everything that comes with a file, through the benchmarks' own files."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for name in set(_imported(waiting.pop())) - found:
            found.add(name)
            own = root.joinpath(*name.split("."))
            files = own.with_suffix(".py"), own / "__init__.py"
            waiting += [file for file in files if file.exists()]
    return found


def _lacking(path: pathlib.Path, root: pathlib.Path = _BENCHMARKS) -> set[str]:
    """Packages that come with a peer's file, and that its environment has not.

    What its loop alone gets besides (loop_requirements.txt) is not for its files.
    """
    lines = (path.parent / "requirements.txt").read_text().splitlines()
    required = [re.match(r"[\w-]+", line)[0] for line in lines if line[0] != "#"]
    brought = set().union(*(_BROUGHT[name] for name in required))
    own = {each.stem for each in root.iterdir()}
    packages = {name.partition(".")[0] for name in _needed(path, root)}
    return packages - brought - own - sys.stdlib_module_names


@pytest.mark.parametrize("path", _PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_peer_imports_what_its_environment_has(path: pathlib.Path) -> None:
    assert _needed(path), "a program that imports nothing was not read"
    assert not _lacking(path)


def test_what_an_environment_lacks_is_found(tmp_path: pathlib.Path) -> None:
    """Behind a file of ours too; not what a function imports where it is called."""
    program = tmp_path / "peers" / "pfl" / "program.py"
    program.parent.mkdir(parents=True)
    program.with_name("requirements.txt").write_text("# Of torch.\ntorch==2.13.0\n")
    program.write_text("import numpy as np\nimport machine\nfrom pfl import model\n")
    lazy = "def report():\n    import scipy\n"
    imports = "import json\nimport pandas as pd\nfrom tasks import mnist\n"
    (tmp_path / "machine.py").write_text(imports + lazy)
    assert _lacking(program, tmp_path) == {"pandas", "tasks", "pfl"}


def test_what_peers_share_with_us_is_followed() -> None:
    """Else the test above sees only what a peer's own file says."""
    path = _BENCHMARKS / "peers" / "pfl" / "program.py"
    assert {"peers.pfl.workers", "machine", "subprocess"} <= _needed(path)
