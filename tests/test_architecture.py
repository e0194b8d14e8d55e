"""The house rules that keep the rooms apart."""

import ast
import pathlib
import re
import subprocess
import sys

import networkx as nx
import pytest

ROOT = pathlib.Path(__file__).parents[1]

# Rooms from the top floor down: each may import what lies on floors beneath its own.
FLOORS = (
    ("scripts", "benchmarks"),
    ("tff_hdp.attacks",),
    ("tff_hdp.systems",),
    ("tff_hdp.clients",),
    ("tff_hdp.simulation", "tff_hdp.aggregators"),
    ("tff_hdp.privacy", "tff_hdp.noise"),
    ("tff_hdp.protocols",),
    ("tff_hdp.topology", "tff_hdp.runtime", "tasks"),
    ("tff_hdp.cli", "tff_hdp.files", "tff_hdp.reading"),
    ("tff_hdp.errors",),
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
NO_TENSORFLOW = ("tff_hdp.topology", "tff_hdp.privacy", "tff_hdp.protocols")
HEAVY = {"tensorflow", "tensorflow_federated", "tensorflow_privacy"}


class Imports(ast.NodeVisitor):
    """The modules that a file imports, at any depth, save for types alone.

    A config's `build` names its system: the one import that leads back up its folder,
    made when a run starts.
    """

    def __init__(self, path):
        self.found = []
        self._is_config = path.name == "config.py"
        self.visit(ast.parse(path.read_text()))

    def visit_If(self, node):
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node):
        if not (self._is_config and node.name == "build"):
            self.generic_visit(node)

    def visit_Import(self, node):
        self.found += [alias.name for alias in node.names]

    def visit_ImportFrom(self, node):
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            self.found.append(inner if path_of(inner) else node.module)


def imports_of(path):
    return Imports(path).found


def path_of(module):
    """The file of a module of ours; None for a name within one, or of others."""
    path = ROOT / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists():
            return file
    return None


def room_of(module):
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "tff_hdp" else 1])


def files_of(room):
    path = ROOT / room.replace(".", "/")
    within = [p for p in sorted(path.rglob("*.py")) if ".venvs" not in p.parts]
    return [*path.parent.glob(f"{path.name}.py"), *within]


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("room", FLOOR_OF)
def test_rooms_import_downwards_only(room):
    allowed = {other for other in FLOOR_OF if FLOOR_OF[other] > FLOOR_OF[room]}
    assert files_of(room)
    for path in files_of(room):
        used = {room_of(module) for module in imports_of(path)} & FLOOR_OF.keys()
        assert used <= allowed | {room}, f"{path} imports {used - allowed - {room}}"


def test_every_room_has_a_floor():
    rooms = {room_of(module_of(path)) for path in files_of("tff_hdp")}
    assert rooms == {room for room in FLOOR_OF if room.startswith("tff_hdp.")} | {
        "tff_hdp"
    }


def test_simulation_knows_no_system():
    """It imports none, and has no words for what one alone has, or for programs."""
    of_systems = (
        r"tff_hdp\.systems|GFL|HFL|FL-TOP|UDP|other_servers|edge_broadcast|hypernet"
    )
    for path in files_of("tff_hdp.simulation"):
        code = ast.unparse(_without_docstrings(path))
        assert not re.search(rf"{of_systems}|scripts/", code), path


def _without_docstrings(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(body[0], ast.Expr):
            body[0] = ast.Pass()
    return tree


@pytest.mark.parametrize("room", ["tff_hdp", "scripts", "tasks", "benchmarks"])
def test_a_file_is_read_in_one_sitting(room):
    for path in files_of(room):
        assert len(path.read_text().splitlines()) <= 400, path


def calls_in(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return (node for node in nodes if isinstance(node, ast.Call))


@pytest.mark.parametrize("room", ["tff_hdp", "scripts", "benchmarks"])
def test_tables_are_written_whole(room):
    """By `write_text`: who reads one meanwhile, or after a kill, has all of it."""
    for path in files_of(room):
        for call in calls_in(path):
            if ast.unparse(call.func).endswith(".to_csv"):
                assert [ast.unparse(a) for a in call.args] in ([], ["sys.stdout"]), path


@pytest.mark.parametrize("room", ["tff_hdp", "scripts", "benchmarks"])
def test_pictures_are_written_whole(room):
    """By `write_figure`; an SVG within a page is drawn in memory."""
    for path in files_of(room):
        for call in calls_in(path):
            if ast.unparse(call.func).endswith(".savefig"):
                assert [ast.unparse(a) for a in call.args] == ["content"], path


def test_files_are_written_whole():
    """Likewise; checkpoints have a way of their own."""
    own_ways = {ROOT / "tff_hdp" / f for f in ("files.py", "simulation/checkpoints.py")}
    for path in {*files_of("tff_hdp")} - own_ways:
        for call in calls_in(path):
            owner, _, name = ast.unparse(call.func).rpartition(".")
            assert not owner or name not in ("write_text", "write_bytes"), path
            given = [*call.args, *(word.value for word in call.keywords)]
            modes = [a.value for a in given if isinstance(a, ast.Constant)]
            assert name != "open" or not any("w" in str(m) for m in modes), path


def test_no_files_import_each_other():
    files = [path for room in FLOOR_OF for path in files_of(room)]
    modules = {module_of(path): path for path in files}
    graph = nx.DiGraph()
    for module, path in modules.items():
        used = {name for name in imports_of(path) if name in modules}
        graph.add_edges_from((module, other) for other in used - {module})
    circles = [
        sorted(circle)
        for circle in nx.strongly_connected_components(graph)
        if len(circle) > 1
    ]
    assert circles == []


@pytest.mark.parametrize("room", NO_TENSORFLOW)
def test_rooms_without_tensorflow(room):
    for path in files_of(room):
        used = {module.split(".")[0] for module in imports_of(path)} & HEAVY
        assert not used, f"{path} imports {used}"


# One process for all: each program runs in a fork of it, with what many of them
# import there already.
HELP = """
import contextlib, io, os, runpy, sys, traceback
import networkx, numpy, pandas, tff_hdp.privacy

for script in sys.argv[1:]:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    os.chdir(os.path.dirname(script))
    sys.argv = [script, "--help"]
    code, text = None, io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
    if code != 0:
        print(script, "ends with", code, file=sys.stderr)
    if "--" not in text.getvalue():
        print(script, "names no flag", file=sys.stderr)
    if "tensorflow" in sys.modules:
        print(script, "imports TensorFlow", file=sys.stderr)
    os._exit(0)
"""


def test_help_needs_no_tensorflow():
    programs = [
        str(path)
        for path in sorted((ROOT / "scripts").rglob("*.py"))
        if '__name__ == "__main__"' in path.read_text()
    ]
    assert len(programs) > 10
    result = subprocess.run(
        [sys.executable, "-c", HELP, *programs],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert result.returncode == 0 and not result.stderr, result.stderr
