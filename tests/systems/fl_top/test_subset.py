"""Training few weights at their own cost is training all with a mask."""

import numpy as np
import pytest
import tensorflow as tf

from tests.thinning import thinned
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.sgd import SgdRule, descend
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_stack
from tff_hdp.systems.fl_top import subset

RATE, SIZES = 0.3, (9, 4, 1, 12)


def build():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer([6, 6, 2]),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(7, activation="tanh"),
            layers.Dense(3),
        ]
    )


def build_of_text():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer([5]),
            layers.Embedding(12, 4),
            layers.Flatten(),
            layers.Dense(7, activation="tanh"),
            layers.Dense(3),
        ]
    )


# The model, the shape of an example, and what its numbers are below.
MODELS = {"images": (build, (6, 6, 2), 256), "text": (build_of_text, (5,), 12)}


@pytest.mark.parametrize(
    ("case", "formed"),
    thinned(
        [("images", "everywhere"), ("images", "one tensor"), ("text", "everywhere")],
        [False, True],
        every=2,
    ),
)
def test_updates_are_those_of_a_mask(
    float64, monkeypatch, make_clients, as_chunk, case, formed
):
    """In float64; where kernels are formed for every client, and where not."""
    name, where = case
    if not formed:
        monkeypatch.setattr(subset, "_SMALL", 20)
    tf.keras.utils.set_random_seed(0)
    build, shape, high = MODELS[name]
    keras = build()
    initial = [tf.constant(v.numpy()) for v in keras.trainable_variables]
    model = StackedModel(keras)
    rng = np.random.default_rng(1)
    last = model.size - 3
    pool = model.size if where == "everywhere" else last
    first = 0 if where == "everywhere" else last - 21
    chosen = np.sort(rng.choice(np.arange(first, pool), 9, replace=False))
    chunk = as_chunk(*make_clients(shape, SIZES, high=high, classes=3))
    mask = np.zeros(model.size, bool)
    mask[chosen] = True
    rule = SgdRule(learning_rate=RATE, mask=split(mask, model.shapes))
    expected, sums = train_stack(model, initial, chunk, rule)
    problem = subset.SubsetProblem(
        model, initial, tf.constant(chosen, tf.int32), chunk["features"]
    )
    (trained,), found = descend(
        problem, SgdRule(learning_rate=RATE), chunk["order"], chunk["labels"]
    )
    update = (problem.start[0] - trained).numpy()
    expected = join(expected, leading=1).numpy()
    assert np.abs(expected).max() > 1e-3
    assert not expected[:, ~mask].any()
    np.testing.assert_allclose(update, expected[:, chosen], rtol=1e-9, atol=1e-12)
    for name in sums:
        assert float(found[name]) == pytest.approx(float(sums[name]), rel=1e-5)
