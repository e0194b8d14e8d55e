"""Programs in processes of their own, by a tiny one."""

import os
import pathlib
import time

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"

PROGRAM = """
import subprocess, sys
import numpy as np
import works
from serving import read_spec, serve

spec = read_spec()
print("libraries print to stdout")
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

class Federation:
    def __init__(self, noise_multiplier):
        self.values = works.initial_weights(spec["work"])
        self.step = noise_multiplier
    def round(self):
        print("so do rounds")
        if self.step < 0:
            raise ValueError("negative step")
        self.values = [v + self.step for v in self.values]
    def weights(self):
        return self.values

serve(lambda *, noise_multiplier: Federation(noise_multiplier), spec["replies"])
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import children
    import works

    (tmp_path / "tiny_program.py").write_text(PROGRAM)
    monkeypatch.setattr(children, "PATHS", [*children.PATHS, str(tmp_path)])
    started = children.Child("tiny_program", works.WORKS["A"])
    yield started
    started.close()


def test_rounds_and_weights_come_back(child):
    import works

    assert child.build(noise_multiplier=0.5) >= 0.0
    child.round()
    child.round()
    for found, start in zip(
        child.weights(), works.initial_weights(works.WORKS["A"]), strict=True
    ):
        np.testing.assert_allclose(found, start + 1.0, rtol=1e-6)
    child.build(noise_multiplier=0.0)
    np.testing.assert_array_equal(child.weights()[1], np.zeros(200))


def test_a_failure_tells_what_and_where(child):
    import children

    child.build(noise_multiplier=-1.0)
    with pytest.raises(children.ProgramError, match="negative step"):
        child.round()
    with pytest.raises(children.ProgramError, match="it ended"):
        child.round()


def test_memory_is_of_the_whole_tree_and_all_of_it_ends(child):
    import processes

    child.build(noise_multiplier=0.0)
    tree = processes.tree(child.pid)
    assert tree[0].pid == child.pid
    assert len(tree) == 2
    # The helper may have hardly begun.
    deadline = time.monotonic() + 10
    while processes.peak_kb(tree[1]) < 2048 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert 2 < processes.peak_kb(tree[1]) / 1024 < child.peak_rss_mb() < 2000
    child.reset_peak()
    assert child.peak_rss_mb() > 2
    child.close()
    deadline = time.monotonic() + 10
    while any(processes.peak_kb(p) for p in tree) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(processes.peak_kb(process) for process in tree)


def test_peak_memory_starts_over(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import processes

    (own,) = (p for p in processes.tree(os.getpid()) if p.pid == os.getpid())
    block = np.ones(30_000_000)  # 240 MB, touched
    high = processes.peak_kb(own)
    del block
    processes.reset_peak(own)
    assert processes.peak_kb(own) < high - 200_000
