"""What a client's batches, and its update, say of the client."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import client, zoned_model
from tff_hdp.aggregators.zoned_model import taken_off
from tff_hdp.errors import ArgumentError

NAN = float("nan")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"zone": 1.5}, "zone is 1.5"),
        ({"zone": -1}, "zone is -1"),
        ({"zone": "1"}, "zone is '1'"),
        ({"zone": 2**24}, "zone is 16777216"),
        ({"zone": 0, "weight": 0.0}, "weight is 0.0"),
        ({"zone": 0, "weight": float("nan")}, "weight is nan"),
        ({"zone": 0, "weight": 2.0}, "weight is 2.0"),
        ({"zone": 0, "carries_noise": "no"}, "carries_noise is 'no'"),
    ],
)
def test_a_profile_that_is_none_is_refused(changes, words):
    batches = tf.data.Dataset.from_tensors((tf.ones([4, 6]), tf.zeros([4], tf.int32)))
    with pytest.raises(ArgumentError, match=words):
        client(batches, **changes)


def test_a_client_comes_to_an_end():
    """`repeat` without a number would train for ever."""
    batches = tf.data.Dataset.from_tensors((tf.ones([4, 6]), tf.zeros([4], tf.int32)))
    with pytest.raises(ArgumentError, match=r"dataset is without an end; .*repeat"):
        client(batches.repeat(), zone=0)
    assert len(list(client(batches.repeat(2), zone=0))) == 2


def test_a_model_is_zoned_once():
    """The profile within would be averaged, and clipped, as a weight of the model."""

    def build():
        keras = tf.keras.Sequential([tf.keras.Input([6]), tf.keras.layers.Dense(2)])
        spec = tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tff.learning.models.from_keras_model(keras, loss, spec)

    assert len(zoned_model(build)().trainable_variables) == 3
    with pytest.raises(ArgumentError, match=r"model_fn is one of zoned_model"):
        zoned_model(zoned_model(build))()


@pytest.mark.parametrize("data", [None, [1, 2], np.zeros([4, 2])])
def test_a_client_is_a_data_set(data):
    with pytest.raises(ArgumentError, match=r"dataset is .*; allowed: a tf\.data\.Dat"):
        client(data, zone=0)


@pytest.mark.parametrize(
    ("sent", "weight", "cap", "expected"),
    [
        ([1, 0.5, 3, 1], 2.0, None, (1.0, 3, True, False)),
        ([1, 0.5, 3, 0], 30.0, 20.0, (0.5, 3, False, False)),
        ([1, 0.5, 3, 1], 5.0, 20.0, (0.125, 3, True, False)),
        # Of no client that is known, also where training changed what is sent.
        ([0, 0, 0, 0], 1.0, None, (0.0, 0, False, True)),
        ([0, 0.5, 3, 1], 1.0, None, (0.0, 0, False, True)),
        ([0.999, 0.5, 3, 1], 1.0, None, (0.0, 0, False, True)),
        ([NAN, 0.5, 3, 1], 1.0, None, (0.0, 0, False, True)),
        ([1, 0.5, NAN, 1], 1.0, None, (0.0, 0, False, True)),
        ([1, 0.5, 2.5, 1], 1.0, None, (0.0, 0, False, True)),
    ],
)
def test_what_an_update_says_of_its_client(sent, weight, cap, expected):
    """A client need not use `client`: what its update says is checked again."""
    update = [tf.ones([2]), tf.constant([[[[[sent]]]]], tf.float32)]
    rest, profile, lost = taken_off(update, tf.constant(weight), cap)
    assert len(rest) == 1
    np.testing.assert_array_equal(rest[0], [1.0, 1.0])
    assert (*(part.numpy() for part in profile.values()), lost.numpy()) == expected
