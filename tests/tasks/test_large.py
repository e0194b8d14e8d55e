"""Examples that do not fit into memory: mapped, and otherwise the same."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tasks
from tasks import large, personal
from tasks.dataset import canonical_order


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


@pytest.fixture
def small_memory(monkeypatch):
    monkeypatch.setattr(large, "LIMIT", 1_000)
    monkeypatch.setattr(large, "_BLOCK", 500)


def test_rows_are_taken_as_numpy_takes_them(small_memory):
    array = np.arange(600, dtype=np.float32).reshape(100, 2, 3)
    rows = np.random.default_rng(0).integers(0, 100, 250)
    found = large.taken(array, rows)
    assert is_mapped(found)
    np.testing.assert_array_equal(found, array[rows])
    assert not is_mapped(large.taken(array, rows[:40]))
    assert large.taken(array, rows[:0]).shape == (0, 2, 3)


def test_a_file_of_examples_has_no_name(small_memory, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = large.empty((1_001,), np.uint8)
    found[:] = 7
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(found, np.full(1_001, 7))


def test_a_mapped_task_is_the_one_in_memory(monkeypatch):
    settings = {"num_clients": 9, "partition": "dirichlet", "dirichlet_alpha": 0.5}
    fits = tasks.load("digits", **settings)
    personal_fits = personal.split(fits, seed=2)
    monkeypatch.setattr(large, "LIMIT", 1_000)
    mapped = tasks.load("digits", **settings)
    assert is_mapped(mapped.train.features)
    assert not is_mapped(fits.train.features)
    personal_mapped = personal.split(mapped, seed=2)
    pairs = zip(
        (fits.train, *personal_fits), (mapped.train, *personal_mapped), strict=True
    )
    for one, other in pairs:
        for name in ("features", "labels", "offsets"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


SPLIT = """
import numpy as np
from tasks import large
from tasks.dataset import Dataset, Examples
from tasks.loading import load_task
from tasks.models import DNN

large.LIMIT = 2**24
count, width = 3 * 2**17, 784  # 308 MB
features = large.empty((count, width), np.uint8)
for rows in large.blocks(features):
    features[rows] = np.random.default_rng(rows.start).integers(
        256, size=features[rows].shape, dtype=np.uint8
    )
labels = np.arange(count, dtype=np.int32) % 10
test = features[:100], labels[:100]
dataset = Dataset(
    *("large", 10, (width,), 255, {"dnn": DNN}, ("iid",), 50),
    read=lambda _: Examples(features, labels, *test, source="", split=""),
)
options = dict.fromkeys(("model", "data_dir", "num_clients", "partition"))
task = load_task(dataset, **options, dirichlet_alpha=None, seed=0)
assert len(task.train.features) == count
status = dict(line.split(":") for line in open("/proc/self/status"))
print(status["RssAnon"].split()[0])
"""


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/status").exists(), reason="no /proc to read"
)
def test_a_large_set_is_split_without_being_held_in_memory():
    done = subprocess.run(
        [sys.executable, "-c", SPLIT], capture_output=True, text=True, check=True
    )
    # 308 MB as read and as many split; Python and its libraries need some 100 MB.
    assert int(done.stdout) / 1024 < 200


def test_the_order_of_mapped_examples_is_by_their_content(small_memory):
    array = np.random.default_rng(1).integers(256, size=(60, 40), dtype=np.uint8)
    mapped = large.taken(array, np.arange(60))
    labels = np.zeros(60, int)
    np.testing.assert_array_equal(
        canonical_order(array, labels), canonical_order(mapped, labels)
    )
