"""Peers run in environments of their own, which do not hold this library."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

_BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
_PROGRAMS = sorted(_BENCHMARKS.glob("peers/*/*.py"))
_OURS = {"tff_hdp", "tensorflow", "tensorflow_federated"}


def _imported(path: pathlib.Path) -> Iterator[str]:
    """Modules that a file imports when it is imported itself."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _needed(path: pathlib.Path) -> set[str]:
    """Everything that comes with a file, through the benchmarks' own files."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for name in set(_imported(waiting.pop())) - found:
            found.add(name)
            own = _BENCHMARKS.joinpath(*name.split("."))
            files = own.with_suffix(".py"), own / "__init__.py"
            waiting += [file for file in files if file.exists()]
    return found


@pytest.mark.parametrize("path", _PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_peer_imports_nothing_of_this_library(path: pathlib.Path) -> None:
    needed = _needed(path)
    assert needed, "a program that imports nothing was not read"
    assert not _OURS & {name.partition(".")[0] for name in needed}


def test_what_peers_share_with_us_is_followed() -> None:
    """Else the test above sees only what a peer's own file says."""
    path = _BENCHMARKS / "peers" / "pfl" / "program.py"
    assert {"peers.pfl.workers", "machine", "subprocess"} <= _needed(path)
