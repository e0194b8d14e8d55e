"""Table II: what is printed of data sets, and what is counted of those at hand."""

import numpy as np
import pandas as pd

from scripts.papers.hdp import data_sets, reproduce
from scripts.papers.result_files import RESULTS


def test_what_is_at_hand_is_counted(need, data_dir):
    path = need("mnist_qmnist_writers.npz")
    rows = {row["task"]: row for row in data_sets.table_ii(data_dir)}
    with np.load(path) as arrays:
        training, test = len(arrays["y_train"]), len(arrays["y_test"])
        writers = len(np.unique(arrays["writer_train"]))
    mnist = rows["mnist"]
    assert mnist["own_images"] == training + test == 70_000
    assert mnist["training"] == training / 70_000
    assert (mnist["clients"], mnist["q"]) == (writers, 100 / writers)
    assert mnist["own_size"] == mnist["size"] == "28x28x1"


def test_what_is_not_is_left_open(tmp_path, monkeypatch):
    monkeypatch.delenv("TFF_HDP_DATA", raising=False)
    rows = data_sets.table_ii(str(tmp_path))
    assert [row["task"] for row in rows] == ["emnist", "mnist", "cifar10", "cifar100"]
    assert [row["images"] for row in rows] == [382_705, 382_705, 60_000, 60_000]
    for row in rows:
        assert row["own_classes"] == row["classes"]
        assert all(pd.isna(row[k]) for k in ("own_images", "clients", "training", "q"))


def test_the_docs_csv_is_what_is_counted(need, data_dir):
    for pack in ("mnist_qmnist", "cifar10", "cifar100"):
        suffix = "writers" if pack == "mnist_qmnist" else "lossless"
        need(f"{pack}_{suffix}.npz")
    held = pd.read_csv(RESULTS / "hdp" / "table2.csv")
    found = pd.DataFrame(data_sets.table_ii(data_dir)).convert_dtypes()
    pd.testing.assert_frame_equal(
        held.convert_dtypes(), found, check_dtype=False, rtol=1e-3
    )


def test_figure_2_stands_for_its_parts():
    assert set(reproduce.GROUPS["figure2"]) <= set(reproduce.TRAINED)
