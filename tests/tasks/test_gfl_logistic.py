"""The generated task of the GFL paper, and its optimum by another library."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tasks import gfl_logistic
from tff_hdp.errors import ArgumentError


@pytest.fixture(scope="module")
def task():
    return gfl_logistic.load(num_clients=60, examples_per_client=200, seed=3)


def test_shapes_and_labels(task):
    train = task.train
    assert train.features.shape == (12_000, 2)
    assert train.features.dtype == np.float32
    assert set(train.labels) == set(task.test_labels) == {0, 1}
    assert (train.sizes == 200).all()
    assert task.test_features.shape == (gfl_logistic.TEST_EXAMPLES, 2)


def test_features_are_normal_around_gamma(task):
    """Mean +-1 in every coordinate; each client has its own variance."""
    train = task.train
    signs = 2.0 * train.labels - 1.0
    assert signs.mean() == pytest.approx(0.0, abs=0.03)
    noise = train.features - signs[:, np.newaxis]
    assert noise.mean(0) == pytest.approx([0.0, 0.0], abs=0.04)
    stddev = noise.reshape(60, -1).std(1)
    low, high = gfl_logistic.STDDEV_RANGE
    assert stddev.min() > 0.85 * low
    assert stddev.max() < 1.15 * high
    assert stddev.max() - stddev.min() > 0.5 * (high - low)


@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_optimum_is_scikit_learns(task, ridge):
    train = task.train
    peer = LogisticRegression(
        C=1 / (ridge * len(train.labels)), fit_intercept=False, tol=1e-12, max_iter=999
    ).fit(train.features.astype(np.float64), train.labels)
    found = gfl_logistic.optimum(train, ridge)
    np.testing.assert_allclose(found, peer.coef_[0], rtol=1e-6)


def test_optimum_where_servers_have_unequally_many_clients_is_scikit_learns(task):
    """All servers count the same, as in the mean over servers of means over clients."""
    train = task.train
    zone_of = np.arange(len(train.sizes)) % 7 // 3  # of 7 clients 3, 3 and 1
    share = 1 / (3 * np.bincount(zone_of)[zone_of])
    peer = LogisticRegression(C=1 / 0.01, fit_intercept=False, tol=1e-12, max_iter=999)
    peer.fit(
        train.features.astype(np.float64),
        train.labels,
        sample_weight=np.repeat(share / train.sizes, train.sizes),
    )
    found = gfl_logistic.optimum(train, 0.01, zone_of)
    np.testing.assert_allclose(found, peer.coef_[0], rtol=1e-6)
    assert np.abs(found - gfl_logistic.optimum(train, 0.01)).max() > 1e-3


def test_the_model_is_the_logistic_one(task):
    model = task.build_model()
    assert model.count_params() == 2
    model.set_weights([np.array([[2.0], [-1.0]], np.float32)])
    logits = model(np.array([[0.5, 3.0]], np.float32)).numpy()
    np.testing.assert_allclose(logits, [[0.0, -2.0]])


def test_a_seed_is_a_data_set():
    first, again, other = (
        gfl_logistic.load(num_clients=4, examples_per_client=5, seed=s)
        for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.train.features, again.train.features)
    assert not np.array_equal(first.train.features, other.train.features)


@pytest.mark.parametrize("name", ["num_clients", "examples_per_client", "dimension"])
@pytest.mark.parametrize("count", [0, 2.5, np.nan, None])
def test_counts_must_be_positive(name, count):
    given = {"num_clients": 4, "examples_per_client": 5} | {name: count}
    with pytest.raises(ArgumentError, match=f"^{name} is {count}; allowed: a whole"):
        gfl_logistic.load(**given, seed=0)
