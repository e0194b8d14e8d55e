"""The tasks that are made of MNIST: its rarest digit, and digits of few pixels."""

import numpy as np

import tasks
from tests.tasks.examples import as_multiset


def test_the_rare_digit_is_mnists_five(need, data_dir):
    need("mnist_qmnist_writers.npz")
    digits, rare = (tasks.load(t, data_dir=data_dir) for t in ("mnist", "rare_digit"))
    assert rare.num_classes == 2 and rare.class_names[1] == "a 5"
    assert set(rare.train.sizes) == {10} and len(rare.train.client_ids) == 6000
    fives = digits.test_labels == 5
    assert as_multiset(digits.test_features, fives) == as_multiset(
        rare.test_features, rare.test_labels
    )
    assert rare.train.labels.sum() == (digits.train.labels == 5).sum() == 5421


def test_coarse_digits_are_mnists_blocks_averaged(need, data_dir):
    need("mnist_qmnist_writers.npz")
    fine, small = (tasks.load(t, data_dir=data_dir) for t in ("mnist", "coarse_mnist"))
    assert set(small.train.sizes) == {10} and len(small.train.client_ids) == 6000
    for images, labels, blocks, same in (
        (fine.test_features, fine.test_labels, small.test_features, small.test_labels),
        (*examples(fine.train), *examples(small.train)),
    ):
        sums = np.zeros((len(images), 7, 7, 1))
        for row, column in np.ndindex(28, 28):
            sums[:, row // 4, column // 4] += images[:, row, column]
        # Sums of whole numbers are exact in float32 too.
        means = (sums / 16).astype(np.float32)
        assert as_multiset(means, labels) == as_multiset(blocks, same)


def examples(clients):
    return clients.features, clients.labels
