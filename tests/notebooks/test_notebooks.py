"""Every notebook runs from top to bottom, on tiny sizes, and is committed executed."""

import ast
import importlib
import inspect
import pathlib
import re

import jupyter_client
import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
MOST_BYTES = 400_000
QUICK = ("quickstart",)
# Of a table of who is promised what, and nothing in it is measured.
ACCOUNTED = re.compile(
    r"^.*\b(?:super_node|aggregator|released_model|fellow_\w+|other_servers"
    r"|edge_broadcast|descriptors) +\w+ +[\d.n].*$",
    re.M,
)
TINY = {
    "bring_your_own": (
        "target_epsilon, delta, rounds, q, clip_norm = 4.0, 1e-5, 2, 0.8, 0.5\n"
        "num_clients, out = 12, 'runs/bring_your_own'"
    ),
    "choosing_a_noise_plan": (
        "zones, clients_per_zone, q, rounds, delta = 2, 10, 0.5, 5, 1e-5\n"
        "noise_multiplier, points, trust_nobody = 1.0, 2, 0.3\n"
        "promises = {'super_node': 30.0, 'aggregator': 8.0, 'released_model': 2.0}\n"
        "out = 'runs/choosing_a_noise_plan'"
    ),
    "five_papers": (
        "rounds, num_clients, zones, out = 2, 20, 2, 'runs/five_papers'\n"
        "systems = ('HDP', 'GFL')"
    ),
    "quickstart": (
        "rounds, clients_per_round, num_clients, zones = 2, 10, 40, 2\n"
        "noise_multiplier, out = 1.0, 'runs/quickstart'"
    ),
    "attacking_your_model": (
        "trials = 500\n"
        "rounds, num_clients, zones, clients_per_round = 2, 20, 2, 10\n"
        "out = 'runs/attacking_your_model'"
    ),
    "zones_that_fail": (
        "rounds, num_clients, zones, clients_per_round = 2, 20, 2, 10\n"
        "noise_multiplier, drop_rate, supernode_failure_rate = 1.0, 0.1, 0.15\n"
        "out = 'runs/zones_that_fail'"
    ),
}

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def kernel():
    """One for all notebooks: TensorFlow is imported once. None has another's names."""
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path.stem not in QUICK))
        for path in NOTEBOOKS
    ],
    ids=lambda path: path.stem,
)
def test_runs(path, tmp_path, kernel):
    notebook = nbformat.read(path, as_version=4)
    settings = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    assert len(settings) == 1
    settings[0].source = TINY[path.stem]
    execute(notebook, tmp_path, kernel)
    assert [*(tmp_path / "runs" / path.stem).glob("*.png")]
    check_outputs(notebook)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in NOTEBOOKS if path.stem != "attacking_your_model"],
    ids=lambda path: path.stem,
)
def test_accounts_are_as_committed(path, tmp_path, kernel):
    """At the sizes that it has; attacking_your_model shows them beside measurements."""
    notebook = nbformat.read(path, as_version=4)
    committed = accounts(notebook)
    assert committed
    execute(notebook, tmp_path, kernel)
    assert accounts(notebook) == committed


@each
def test_is_committed_as_it_ran(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1))
    check_outputs(notebook)
    assert path.stat().st_size < MOST_BYTES


@each
def test_says_first_which_python_it_needs(path):
    """In the same words everywhere, and checks it before anything else."""
    first, check = nbformat.read(path, as_version=4).cells[:2]
    assert first.source.endswith(shared_words())
    assert "sys.version_info[:2] == (3, 11)" in check.source


def test_the_lines_for_a_cell_are_a_cells():
    """Each is one of its own, and later ones are in the clone that the first makes."""
    (lines,) = re.findall(r"^```\n(.*?)^```", shared_words(), re.M | re.S)
    first, second, *rest = lines.splitlines()
    assert first.startswith("!git clone ") and first.endswith(" tff_hdp")
    # What !cd changes lasts for its own line.
    assert second == "%cd tff_hdp"
    assert all(re.match(r"!\S|%pip ", line) and "!cd" not in line for line in rest)


@each
def test_calls_what_there_is_as_it_is(path):
    """All but one run in slow tests alone; one gave what a function no longer took."""
    cells = nbformat.read(path, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    nodes = [*ast.walk(ast.parse(code))]
    names = {name: value for node in nodes for name, value in imported(node)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    ours = [(call, found) for call in calls if (found := named(call.func, names))]
    assert ours
    for call, function in ours:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if None not in keywords:
            inspect.signature(function).bind(*call.args, **keywords)


def imported(node):
    """Modules of ours, and what is in them, by the names that an import gives them."""
    if isinstance(node, ast.Import):
        found = [(alias.asname or alias.name, alias.name, None) for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        found = [(a.asname or a.name, node.module, a.name) for a in node.names]
    else:
        found = []
    for name, module, within in found:
        if module.partition(".")[0] not in ("tff_hdp", "tasks", "scripts"):
            continue
        value = importlib.import_module(module)
        if within is not None:
            value = getattr(value, within, None) or importlib.import_module(
                f"{module}.{within}"
            )
        yield name, value


def named(node, names):
    """What `a.b` is, if `a` is among the names."""
    if isinstance(node, ast.Attribute):
        owner = named(node.value, names)
        return None if owner is None else getattr(owner, node.attr)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def execute(notebook, folder, kernel):
    fresh = nbformat.v4.new_code_cell(
        f"%reset -f\nimport os\nos.chdir({str(folder)!r})"
    )
    notebook.cells.insert(0, fresh)
    nbclient.NotebookClient(notebook, km=kernel, timeout=1200).execute()


def accounts(notebook):
    """The rows of tables that say who is promised what, but of faults that hit.

    Which zones failed is up to chance, and a round in which some did rests on more.
    """
    return [
        row.strip()
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for text in (output.get("text"), output.get("data", {}).get("text/plain"))
        for row in ACCOUNTED.findall(text or "")
        if " | " not in row
    ]


def check_outputs(notebook):
    """There are some, and none is an error, a warning or a log."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text


def shared_words():
    quickstart = next(path for path in NOTEBOOKS if path.stem == "quickstart")
    first = nbformat.read(quickstart, as_version=4).cells[0].source
    return first[first.index("**Needs Python 3.11**") :]
