"""Every notebook runs from top to bottom, on tiny sizes."""

import pathlib

import nbclient
import nbformat
import pytest

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
TINY = {
    "quickstart": (
        "rounds, clients_per_round, num_clients, zones = 2, 10, 40, 2\n"
        "noise_multiplier, out = 1.0, 'runs/quickstart'"
    ),
    "attacking_your_model": (
        "victims, trials = 2, 500\nout = 'runs/attacking_your_model'"
    ),
}
PICTURES = {"quickstart": "accuracy.png", "attacking_your_model": "images.png"}


@pytest.mark.parametrize("name", [p.stem for p in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_notebook_runs(name, tmp_path):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    settings = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    assert len(settings) == 1
    settings[0].source = TINY[name]
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert (tmp_path / "runs" / name / PICTURES[name]).exists()


@pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem
)
def test_notebook_is_committed_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
