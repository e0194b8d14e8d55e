"""What clients bring to a round, against plain Python."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.clients.batches import (
    Participant,
    check_data_type,
    chunk_type,
    chunks,
    dataset_of_one,
    example_weights,
    make_order,
    order_of_steps,
)
from tff_hdp.errors import ArgumentError


@pytest.mark.parametrize(
    ("size", "steps", "batch_size"),
    [(7, 5, 3), (7, 1, 3), (7, 6, 3), (4, 9, 4), (1, 3, 5), (10, 4, 1)],
)
def test_steps_go_through_all_examples_before_any_comes_again(size, steps, batch_size):
    rng = np.random.default_rng(0)
    order = order_of_steps(size, steps=steps, batch_size=batch_size, rng=rng)
    assert order.shape == (steps, batch_size)
    per_epoch = -(-size // batch_size)
    for begin in range(0, steps, per_epoch):
        epoch = order[begin : begin + per_epoch]
        seen = sorted(epoch[epoch >= 0])
        if len(epoch) == per_epoch:
            assert seen == list(range(size))
        else:
            assert len(seen) == len({*seen} & {*range(size)}) == epoch.size


def test_every_epoch_and_every_generator_has_an_order_of_its_own():
    """Two of 50! orders that are alike would be chance, and generators are seeded."""
    orders = [
        epoch.ravel().tolist()
        for seed in (0, 1)
        for epoch in np.split(
            make_order(50, epochs=2, batch_size=10, rng=np.random.default_rng(seed)), 2
        )
    ]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({*map(tuple, orders), tuple(range(50))}) == 5


@pytest.mark.parametrize(
    ("weighting", "cap", "expected"),
    [
        ("uniform", 4, [1, 1, 1]),
        ("examples", None, [0.1, 0.4, 1]),
        ("examples", 4, [0.25, 1, 1]),
    ],
)
def test_weights_are_examples_up_to_a_cap(weighting, cap, expected):
    found = example_weights(weighting, np.array([1, 4, 10]), cap)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("across_zones", [False, True])
@pytest.mark.parametrize("size", [1, 2, 50])
def test_chunks_hold_every_client_as_it_is(size, across_zones):
    rng, participants = np.random.default_rng(0), []
    for number, zone in enumerate([2, 2, 2, 0, 0, 1, 1, 1, 1]):
        n = number % 4 + 1
        features = rng.integers(1, 9, [n, 2]).astype(np.float32)
        order = make_order(n, epochs=number % 2 + 1, batch_size=number % 3 + 1, rng=rng)
        participants.append(
            Participant(
                (features, rng.integers(1, 5, n)),
                order,
                weight=(number + 1) / 9,
                carries_noise=number % 2 == 0,
                zone=zone,
            )
        )
    made = list(chunks(participants, size, across_zones=across_zones))
    groups = [9] if across_zones else [3, 2, 4]
    assert len(made) == sum(-(-group // size) for group in groups)
    if not across_zones:
        assert all(len({*chunk["zone"]}) == 1 for chunk in made)
    clients = itertools.chain.from_iterable(
        zip(*chunk.values(), strict=True) for chunk in made
    )
    for own, found in zip(participants, clients, strict=True):
        found = dict(zip(made[0], found, strict=True))
        size_of, (steps, batch) = len(own.examples[1]), own.order.shape
        for name, given in zip(("features", "labels"), own.examples, strict=True):
            np.testing.assert_array_equal(found[name][:size_of], given)
            assert not found[name][size_of:].any()
        np.testing.assert_array_equal(found["order"][:steps, :batch], own.order)
        assert np.sum(found["order"] >= 0) == np.sum(own.order >= 0)
        assert found["weight"] == np.float32(own.weight)
        assert (found["carries_noise"], found["zone"]) == (own.carries_noise, own.zone)


@pytest.mark.parametrize(
    "data_type",
    [
        np.int32,
        tff.SequenceType(np.int32),
        tff.SequenceType([("x", np.float32), ("y", np.int32)]),
    ],
)
def test_the_type_of_a_clients_data_is_of_chunks(data_type):
    check_data_type(chunk_type((2,), np.float32))
    with pytest.raises(ArgumentError, match=r"data_type is .*as of chunk_type"):
        check_data_type(data_type)


def test_a_data_set_of_one_is_tensorflows():
    """Names in another order than the alphabet's, arrays of every kind and layout."""
    element = collections.OrderedDict(
        zones=np.broadcast_to(np.int32(3), 4),
        features=np.arange(12, dtype=np.uint8).reshape(3, 4).T,
        weights=np.float32([0.5, 1.0]),
        carries=np.bool_([True, False]),
        none=np.zeros([0, 2], np.float16),
        texts=np.array([b"a\0", b"bc"]),
        backwards=np.arange(3)[::-1],
        one=np.int64(7),
    )
    found, expected = dataset_of_one(element), tf.data.Dataset.from_tensors(element)
    assert found.element_spec == expected.element_spec
    (own,), (theirs,) = found, expected
    assert list(own) == list(element)
    for name, value in theirs.items():
        assert own[name].dtype == value.dtype
        np.testing.assert_array_equal(own[name], value)


def test_data_sets_of_many_shapes_leave_no_memory_behind(resident_megabytes):
    """`from_tensors` leaves some 50 MB of a thousand, for good."""
    dataset_of_one({"x": np.zeros([1, 2], np.float32), "y": np.zeros(1, np.int32)})
    before = resident_megabytes()
    for n in range(2, 1002):
        dataset_of_one({"x": np.zeros([n, 2], np.float32), "y": np.zeros(n, np.int32)})
    assert resident_megabytes() - before < 20
