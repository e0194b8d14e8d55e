"""The binary task against the table scikit-learn bundles."""

import numpy as np
from sklearn.datasets import load_breast_cancer

import tasks
from tasks.breast_cancer import HIGHEST, LOWEST


def test_examples_are_scikit_learns_with_malignant_as_the_outcome():
    task = tasks.load("breast_cancer")
    labels = np.concatenate([task.train.labels, task.test_labels])
    features = np.concatenate([task.train.features, task.test_features])
    assert (len(task.train.labels), len(task.test_labels)) == (455, 114)
    assert np.bincount(labels).tolist() == [357, 212]
    loaded = load_breast_cancer()
    found = sorted(map(tuple, np.column_stack([features, labels]).tolist()))
    rows = np.column_stack([loaded.data.astype(np.float32), 1 - loaded.target])
    assert found == sorted(map(tuple, rows.tolist()))


def test_the_ranges_stated_are_those_of_the_columns():
    data = load_breast_cancer().data
    assert data.min(axis=0).tolist() == list(LOWEST)
    assert data.max(axis=0).tolist() == list(HIGHEST)
