"""What a client of FL-TOP's family sends is what plain SGD of its own comes to."""

import numpy as np
import pytest
import tensorflow as tf

from tests.thinning import thinned
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients import deferred
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.systems.fl_top.client_work import train_compressed
from tff_hdp.systems.fl_top.compressors import FixedSubset, Identity

RATE, SIZES, SHAPE = 0.3, (9, 4, 1, 12), (6, 6, 2)
BATCHES = {"batch_size": 4, "epochs": 3}


def build(*, convolves: bool) -> tf.keras.Sequential:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer(SHAPE),
            layers.Rescaling(1 / 255),
            *([layers.Conv2D(4, 3, activation="tanh")] if convolves else []),
            layers.Flatten(),
            layers.Dense(7, activation="tanh"),
            layers.Dense(3),
        ]
    )


@pytest.mark.parametrize(
    ("share", "convolves"), thinned([0.01, 0.4, 1.0], [True, False], every=2)
)
def test_clients_send_what_each_alone_comes_to(
    monkeypatch, float64, make_clients, as_chunk, train_alone, convolves, share
):
    """In float64: few weights, many, and all, whether steps are deferred or not."""
    monkeypatch.setattr(deferred, "_LARGE", 100)
    tf.keras.utils.set_random_seed(0)
    keras = build(convolves=convolves)
    model = StackedModel(keras)
    initial = [v.numpy() for v in keras.trainable_variables]
    vector = join([tf.constant(w) for w in initial])
    chosen = np.sort(
        np.random.default_rng(1).choice(
            model.size, int(share * model.size), replace=False
        )
    )
    compressor = (
        Identity(model.size) if share == 1.0 else FixedSubset(vector.numpy(), chosen)
    )
    examples, orders = make_clients(SHAPE, SIZES, classes=3, **BATCHES)

    def train(chunk):
        return train_compressed(
            model,
            vector,
            chunk,
            compressor=compressor,
            round_number=tf.constant(1),
            learning_rate=RATE,
        )

    if convolves:  # Else what a step calls would be traced anew in each.
        train = tf.function(train, autograph=False)
    sent, _ = train(as_chunk(examples, orders))
    free = np.zeros(model.size)
    free[chosen] = 1.0
    mask = [part.numpy() for part in split(tf.constant(free), model.shapes)]
    for client, (own, order) in enumerate(zip(examples, orders, strict=True)):
        alone = train_alone(keras, initial, own, order, rate=RATE, mask=mask)
        expected = np.concatenate([part.ravel() for part in alone])[chosen]
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(sent[client], expected, rtol=1e-9, atol=1e-12)
