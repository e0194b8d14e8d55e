import dataclasses

import numpy as np
import pytest

import tasks
from tasks import personal
from tasks.dataset import Examples
from tasks.task import ClientData, Task
from tff_hdp.errors import ArgumentError


def rows(data, client):
    features, labels = data.examples(client)
    return sorted((x.tobytes(), int(y)) for x, y in zip(features, labels, strict=True))


@pytest.fixture(scope="module")
def digits():
    return tasks.load("digits", num_clients=20, seed=3)


def test_a_fifth_of_every_client_is_held_out(digits):
    train, test = personal.split(digits, seed=0)
    assert train.client_ids == test.client_ids == digits.train.client_ids
    np.testing.assert_array_equal(test.sizes, np.round(0.2 * digits.train.sizes))
    for client in range(20):
        joined = sorted(rows(train, client) + rows(test, client))
        assert joined == rows(digits.train, client)


def test_a_fifth_is_rounded_and_never_nothing():
    _, test = personal.split(small_task([8, 2, 6]), seed=0)
    assert test.sizes.tolist() == [2, 1, 1]


def test_the_seed_decides_what_is_held_out(digits):
    first, again, other = (personal.split(digits, seed=s)[1] for s in (0, 0, 1))
    np.testing.assert_array_equal(first.features, again.features)
    assert np.any(first.features != other.features)


def small_task(sizes, test_owners=None):
    count = sum(sizes)
    features = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1)
    return Task(
        name="small",
        train=ClientData(
            client_ids=tuple(f"c{i}" for i in range(len(sizes))),
            features=features,
            labels=np.zeros(count, np.int32),
            offsets=np.cumsum([0, *sizes]),
        ),
        test_features=100 + np.arange(5, dtype=np.uint8).reshape(-1, 1, 1, 1),
        test_labels=np.arange(5, dtype=np.int32),
        num_classes=5,
        build_model=lambda: None,
        model_name="none",
        description="",
        test_owners=test_owners,
    )


def test_no_mirror_image_of_what_is_tested_is_trained_on():
    """A client of 6 and one of 4 images, each of one row (left, right)."""
    images = np.arange(20, dtype=np.uint8).reshape(10, 1, 2, 1)
    halves = [images[:6], images[:6, :, ::-1], images[6:], images[6:, :, ::-1]]
    task = small_task([12, 8])
    train = dataclasses.replace(task.train, features=np.concatenate(halves))
    task = dataclasses.replace(task, train=train, mirrored=True)
    whole = {tuple(image.ravel()) for image in images}
    for seed in range(20):
        kept, test = personal.split(task, seed=seed)
        assert test.sizes.tolist() == [1, 1]
        assert kept.sizes.tolist() == [10, 6]
        tested = {tuple(x.ravel()) for x in test.features}
        assert tested < whole
        trained = {tuple(x.ravel()) for x in kept.features}
        assert not trained & (tested | {pair[::-1] for pair in tested})


def test_a_split_within_clients_is_kept():
    task = small_task([2, 1], test_owners=np.array([1, 0, -1, 1, 0], np.int32))
    train, test = personal.split(task, seed=0)
    assert train is task.train
    assert test.sizes.tolist() == [2, 2]
    assert test.labels.tolist() == [1, 4, 0, 3]
    assert test.features.ravel().tolist() == [101, 104, 100, 103]


def test_a_client_of_one_example_is_refused():
    with pytest.raises(ArgumentError, match=r"num_clients is 2; .* 'c1' has one"):
        personal.split(small_task([2, 1]), seed=0)


def test_a_client_without_test_examples_is_refused():
    owners = np.array([0, 0, -1, 0, 0], np.int32)
    with pytest.raises(ArgumentError, match="test_writers is without client 'c1'"):
        personal.split(small_task([2, 1], test_owners=owners), seed=0)


def test_own_tests_are_of_those_clients_that_have_any():
    owners = np.array([2, 0, -1, 2, 0], np.int32)
    test = personal.own_tests(small_task([2, 1, 1], test_owners=owners))
    assert test.client_ids == ("c0", "c2")
    assert test.labels.tolist() == [1, 4, 0, 3]
    assert test.features.ravel().tolist() == [101, 104, 100, 103]
    assert test.sizes.tolist() == [2, 2]


@pytest.mark.parametrize("owners", [None, np.full(5, -1, np.int32)])
def test_test_examples_of_no_client_are_nobodys_own(owners):
    assert personal.own_tests(small_task([2, 1], test_owners=owners)) is None


def test_tests_of_clients_stay_somebodys_where_examples_are_dealt_out():
    """Else what is measured on them would count as public."""
    dealt = tasks.load("pages", partition="iid", num_clients=20, seed=1)
    assert not dealt.tests_are_public
    assert not tasks.load("pages", seed=1).tests_are_public
    # Of no client, a fifth of whose examples is held out as elsewhere.
    train, test = personal.split(dealt, seed=0)
    assert train.sizes.sum() + test.sizes.sum() == dealt.train.sizes.sum()
    assert tasks.load("digits", num_clients=20).tests_are_public


def test_test_writers_are_some_of_the_writers():
    x, y = np.zeros([2, 3]), np.zeros(2, np.int32)
    given = Examples(*(x, y, x, y, "", ""), writers=["a", "b"], test_writers=["c", "d"])
    with pytest.raises(ArgumentError, match=r"own\.test_writers is of others"):
        given.check("own", (3,), 2)
