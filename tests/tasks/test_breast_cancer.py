"""The binary task against the table scikit-learn bundles."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import tasks
from tasks.breast_cancer import to_bytes


def test_examples_are_scikit_learns_with_malignant_as_the_outcome():
    task = tasks.load("breast_cancer")
    labels = np.concatenate([task.train.labels, task.test_labels])
    assert (len(task.train.labels), len(task.test_labels)) == (455, 114)
    assert np.bincount(labels).tolist() == [357, 212]
    assert task.test_features.shape == (114, 1, 30, 1)
    # Malignant tumours have the larger mean radius, column 0.
    radius = np.concatenate([task.train.features, task.test_features])[:, 0, 0, 0]
    assert radius[labels == 1].mean() > 1.5 * radius[labels == 0].mean()


def test_columns_fill_their_bytes_and_keep_their_order():
    data = load_breast_cancer().data
    stored = to_bytes(data)[:, 0, :, 0]
    assert stored.min(axis=0).tolist() == [0] * 30
    assert stored.max(axis=0).tolist() == [255] * 30
    for column in range(30):
        order = np.argsort(data[:, column], kind="stable")
        assert np.all(np.diff(stored[order, column].astype(int)) >= 0)
    span = np.ptp(data, axis=0)
    restored = data.min(axis=0) + stored / 255 * span
    assert restored == pytest.approx(data, abs=0.5 * span.max() / 255 + 1e-9)
