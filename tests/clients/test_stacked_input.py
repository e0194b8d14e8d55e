"""What a stack reads, against what Keras makes of the same."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.clients.stacked_model import StackedModel, is_supported
from tff_hdp.errors import ArgumentError


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float64"])
def test_an_activation_before_the_weights_is_computed_as_they_are(dtype):
    """Whatever examples are stored as; and float64 is not rounded to a model's own."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.InputLayer([6]), layers.Activation("tanh"), layers.Dense(3)]
    )
    exact = dtype == "float64"
    rng = np.random.default_rng(0)
    features = rng.uniform(0, 4, size=[2, 5, 6]).astype(dtype)
    kernel, bias = (
        rng.normal(size=[2, *w.shape]).astype("float64" if exact else "float32")
        for w in model.weights
    )
    sent = [tf.constant(kernel), tf.constant(bias)]
    found = StackedModel(model)(sent, tf.constant(features))
    assert found.dtype == kernel.dtype
    np.testing.assert_allclose(
        found,
        np.tanh(features.astype("float64")) @ kernel + bias[:, np.newaxis],
        rtol=0,
        atol=1e-12 if exact else 1e-5,
    )


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16"])
def test_a_stack_reads_examples_as_the_model_declares_them(dtype):
    """Keras rounds them to what its input is declared as."""
    inputs = tf.keras.layers.InputLayer([5], dtype=dtype)
    model = tf.keras.Sequential([inputs, tf.keras.layers.Dense(3)])
    features = 1000 * np.random.default_rng(0).random([4, 5], np.float32) / 7
    expected = model(features)
    assert np.abs(expected - features @ model.weights[0]).max() > 1e-3
    found = StackedModel(model)([w[tf.newaxis] for w in model.weights], features[None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


@pytest.mark.parametrize(("declared", "given"), [((4,), (4, 1)), ((4, 4, 1), (4, 4))])
def test_examples_of_another_shape_than_the_models_are_refused(declared, given):
    inputs, flat = tf.keras.layers.InputLayer(declared), tf.keras.layers.Flatten()
    model = tf.keras.Sequential([inputs, flat, tf.keras.layers.Dense(3)])
    stacked = StackedModel(model)
    message = rf"features is of shape {given} each; allowed: {declared}, the model's"
    weights = [w[tf.newaxis] for w in model.weights]
    with pytest.raises(ArgumentError, match=re.escape(message)):
        stacked(weights, tf.zeros([1, 2, *given]))


def test_weights_of_several_dtypes_are_not_stacked():
    layers = [
        tf.keras.layers.InputLayer([2]),
        tf.keras.layers.Dense(3, dtype="float64"),
    ]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(3)])
    assert not is_supported(model)
    assert not is_supported(tf.keras.Sequential([tf.keras.layers.Dense(3)]))  # unbuilt
