"""What the tests of stacked clients share: data, and each client trained alone."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.learning.client_work import make_order
from tff_hdp.learning.stacked import StackedModel
from tff_hdp.learning.stacked_work import make_chunk, train_stack


@pytest.fixture
def float64():
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx("float32")


@pytest.fixture(scope="session")
def make_clients():
    """Examples of clients of the given sizes, and the batches of a round."""

    def make(shape, sizes, *, high=256, classes=10, epochs=2, batch_size=4):
        rng = np.random.default_rng(0)
        examples = [
            (
                rng.integers(0, high, size=[n, *shape]).astype(np.uint8),
                rng.integers(0, classes, size=n).astype(np.int32),
            )
            for n in sizes
        ]
        orders = [
            make_order(n, epochs=epochs, batch_size=batch_size, rng=rng) for n in sizes
        ]
        return examples, orders

    return make


@pytest.fixture(scope="session")
def as_chunk():
    """One chunk of clients of one zone; all of weight 1 unless given."""

    def make(examples, orders, *, weights=None, zone=0, carries=True):
        chunk = make_chunk(
            examples,
            orders,
            weights=[1.0] * len(examples) if weights is None else weights,
            carries_noise=[carries] * len(examples),
            zone=zone,
        )
        return tf.nest.map_structure(tf.constant, chunk)

    return make


@pytest.fixture(scope="session")
def train_alone():
    return _train_alone


@pytest.fixture(scope="session")
def assert_trains_like_each_alone(as_chunk):
    """Asserts that a stack's float64 updates are those of each client trained alone.

    Returns the sums of the stack's training metrics.
    """

    def check(model, examples, orders, *, rtol, atol, **rule):
        initial = [v.numpy() for v in model.trainable_variables]
        updates, sums = train_stack(
            StackedModel(model),
            [tf.constant(w) for w in initial],
            as_chunk(examples, orders),
            learning_rate=0.05,
            **rule,
        )
        for i, client in enumerate(zip(examples, orders, strict=True)):
            alone = _train_alone(model, initial, *client, rate=0.05, **rule)
            for stacked, expected in zip(updates, alone, strict=True):
                assert stacked.dtype == tf.float64
                np.testing.assert_allclose(stacked[i], expected, rtol, atol)
        return sums

    return check


def _train_alone(
    model, initial, examples, order, *, rate, momentum=0.0, proximal=0.0, mask=None
):
    """Plain Keras SGD of one client, batch by batch, as Keras' weights change."""
    for variable, value in zip(model.trainable_variables, initial, strict=True):
        variable.assign(value)
    velocity = [np.zeros_like(w) for w in initial]
    for rows in order:
        rows = rows[rows >= 0]
        with tf.GradientTape() as tape:
            logits = model(examples[0][rows], training=True)
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(
                examples[1][rows], logits
            )
            for variable, sent in zip(model.trainable_variables, initial, strict=True):
                loss += proximal / 2 * tf.reduce_sum((variable - sent) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        for i, gradient in enumerate(gradients):
            gradient = gradient.numpy()
            if mask is not None and mask[i] is not None:
                gradient = gradient * mask[i]
            velocity[i] = momentum * velocity[i] + gradient
            model.trainable_variables[i].assign_sub(rate * velocity[i])
    pairs = zip(initial, model.trainable_variables, strict=True)
    return [w - v.numpy() for w, v in pairs]
