"""Users' models are tested on the users' own rows, whatever their number."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tasks.task import ClientData
from tff_hdp.systems.udp_hypernet.evaluation import UserTests, sample
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork

SIZES = (3, 1, 6)
CLASSES = 3


@pytest.fixture
def own():
    rng = np.random.default_rng(3)
    offsets = np.cumsum([0, *SIZES])
    return ClientData(
        client_ids=("a", "b", "c"),
        # Its row, so that examples tell who they are.
        features=np.stack(
            [np.arange(sum(SIZES)), rng.integers(9, size=sum(SIZES))], 1
        ).astype(np.float32),
        labels=rng.integers(CLASSES, size=sum(SIZES)).astype(np.int32),
        offsets=offsets,
    )


def rows_of(tests, user):
    start, size = tests.starts[user], tests.sizes[user]
    features = tests.features[start : start + size]
    return features[:, 0].astype(int), features, tests.labels[start : start + size]


@pytest.mark.parametrize("most", [None, 1, 2, 5])
def test_everybody_has_so_many_of_their_own_examples_each_once(own, most):
    tests = sample(own, most, seed=7)
    for user, size in enumerate(SIZES):
        rows, features, labels = rows_of(tests, user)
        assert len(rows) == (size if most is None else min(most, size))
        assert len(set(rows)) == len(rows)
        assert ((own.offsets[user] <= rows) & (rows < own.offsets[user + 1])).all()
        np.testing.assert_array_equal(features, own.features[rows])
        np.testing.assert_array_equal(labels, own.labels[rows])


def test_which_they_are_is_drawn_from_the_seed(own):
    drawn = [tuple(rows_of(sample(own, 2, seed=s), 2)[0]) for s in [*range(30), 0]]
    assert drawn[0] == drawn[-1]
    # Of 30 ordered pairs so many draws bring up 19, by expectation.
    assert len(set(drawn)) > 10
    assert set(np.ravel(drawn)) == set(range(4, 10))


def test_columns_are_those_of_each_users_model_on_its_own_rows(own):
    def build_model():
        layer = tf.keras.layers.Dense(CLASSES)
        return tf.keras.Sequential([tf.keras.layers.InputLayer([2]), layer])

    shapes = [tuple(w.shape) for w in build_model().trainable_weights]
    network = Hypernetwork(descriptor_dim=2, width=4, targets=tuple(shapes))
    rng = np.random.default_rng(5)
    phi = [rng.normal(size=s).astype(np.float32) for s in network.shapes]
    descriptors = rng.normal(size=[len(SIZES), 2]).astype(np.float32)

    tests = UserTests(
        task=types.SimpleNamespace(build_model=build_model),
        own=own,
        per_round=4,
        seed=7,
        hypernetwork=network,
    )
    found = tests.columns(phi, descriptors)

    right, losses = [], []
    for user in range(len(SIZES)):
        kernel, bias = network.as_keras(phi)(descriptors[user : user + 1])
        _, features, labels = rows_of(sample(own, 4, seed=7), user)
        logits = features @ kernel[0].numpy() + bias[0].numpy()
        right.append(logits.argmax(1) == labels)
        shares = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        losses.append(-shares[np.arange(len(labels)), labels])
    assert found["accuracy"] == pytest.approx(np.concatenate(right).mean())
    assert found["user_accuracy"] == pytest.approx(np.mean([r.mean() for r in right]))
    assert found["accuracy"] != found["user_accuracy"]
    assert found["loss"] == pytest.approx(np.concatenate(losses).mean(), rel=1e-4)
