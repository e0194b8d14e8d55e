"""Training in the span of the examples against training the weights themselves."""

import numpy as np
import pytest
import tensorflow as tf

from tests.thinning import thinned
from tff_hdp.clients import gram, training
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_stack
from tff_hdp.clients.updates import norms, weighted_sums

SIZES = (9, 4, 1, 12)
WIDTH, HIDDEN, CLASSES = 50, 7, 5


def build(*, use_bias=True):
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer([5, 10]),
            layers.Rescaling(1 / 127.5, offset=-1.0),
            layers.Flatten(),
            layers.Dense(HIDDEN, activation="relu", use_bias=use_bias),
            layers.Dense(CLASSES),
        ]
    )


def forbid(monkeypatch, name):
    """Whoever constructs this problem fails; eagerly only the chosen branch runs."""

    def fail(*_):
        raise AssertionError(f"{name} was chosen")

    monkeypatch.setattr(training, name, fail)


RULES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "proximal": {"proximal": 0.7},
    "moving centre": {"proximal": 0.7, "centre_every": 2},
    "all": {"momentum": 0.5, "proximal": 0.3, "masks_last": True},
}


@pytest.mark.parametrize(
    ("rule", "batch_size", "use_bias"),
    thinned(list(RULES), [1, 5, 12], [True, False], every=5),
)
def test_equals_training_each_client_alone(
    float64,
    monkeypatch,
    make_clients,
    assert_trains_like_each_alone,
    rule,
    batch_size,
    use_bias,
):
    forbid(monkeypatch, "WeightProblem")
    rule = dict(RULES[rule])
    tf.keras.utils.set_random_seed(0)
    model = build(use_bias=use_bias)
    if rule.pop("masks_last", False):
        last = np.random.default_rng(1).random([HIDDEN, CLASSES]) < 0.5
        mask = [None] * len(model.trainable_variables)
        mask[-2] = last
        rule["mask"] = mask
    examples, orders = make_clients(
        (5, 10), SIZES, classes=CLASSES, epochs=3, batch_size=batch_size
    )
    sums = assert_trains_like_each_alone(
        model, examples, orders, rtol=1e-8, atol=1e-11, **rule
    )
    assert float(sums["examples"]) == 3 * sum(SIZES)


@pytest.mark.parametrize(
    ("size", "batch", "steps", "expected"),
    [
        (100, 20, 25, True),  # 100 examples of 784, 5 epochs in batches of 20
        (100, 20, 5, False),  # one epoch only
        (1, 1, 1, False),
        (392, 20, 200, True),
        (4000, 20, 1000, False),  # far more examples than features
    ],
)
def test_is_chosen_where_it_multiplies_less(size, batch, steps, expected):
    """Against the multiplications of either way, counted product by product."""
    d, h = 784, 200
    forward_and_gradient = steps * 2 * batch * d * h
    once = size * size * d + size * d * h + size * d * h
    each_step = steps * batch * size * h
    assert (once + each_step < forward_and_gradient) == expected
    found = gram.pays(
        tf.zeros([d, h]),
        tf.zeros([1, size, 28, 28]),
        tf.zeros([1, steps, batch], tf.int32),
    )
    assert bool(found) == expected


def test_is_not_chosen_where_it_takes_more_memory():
    """2,000 examples of 20,000 against a kernel of 20,000 x 200, many epochs."""
    d, h, size, steps, batch = 20_000, 200, 2_000, 2_000, 20
    products = size * size * d + 2 * size * d * h + steps * batch * size * h
    assert products < steps * 2 * batch * d * h
    features, order = tf.zeros([1, size, 1]), tf.zeros([1, steps, batch], tf.int32)
    assert not gram.pays(tf.zeros([d, h]), features, order)


def test_weights_are_trained_where_it_does_not_pay(monkeypatch, make_clients, as_chunk):
    forbid(monkeypatch, "GramProblem")
    model = build()
    examples, orders = make_clients((5, 10), SIZES, classes=CLASSES, epochs=1)
    initial = [tf.constant(v) for v in model.trainable_variables]
    updates, _ = train_stack(
        StackedModel(model),
        initial,
        as_chunk(examples, orders),
        SgdRule(learning_rate=0.1),
    )
    assert float(tf.norm(updates[0])) > 0.0


def test_does_not_apply_to_a_masked_kernel_or_a_convolution():
    model = StackedModel(build())
    assert gram.applies(model, SgdRule(learning_rate=0.1))
    mask = [np.ones([WIDTH, HIDDEN], bool), None, None, None]
    assert not gram.applies(model, SgdRule(learning_rate=0.1, mask=mask))
    convolution = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([4, 4, 1]),
            tf.keras.layers.Conv2D(2, 3),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2),
        ]
    )
    assert not gram.applies(StackedModel(convolution), SgdRule(learning_rate=0.1))


def test_features_made_to_cancel_do_not_pass_for_short():
    """X^T A cancels down to its rounding; the norm is that of what is released."""
    rng = np.random.default_rng(3)
    keras_model = build()
    model = StackedModel(keras_model)
    initial = [tf.constant(w) for w in keras_model.trainable_weights]
    for n in (2, 8, 40):
        common = rng.random([1, WIDTH])
        examples = np.float32(common * (1 + 1e-7 * rng.integers(-2, 3, [n, WIDTH])))
        coordinates = rng.choice([-1e3, 1e3], [n, HIDDEN])
        coordinates = np.float32(coordinates - coordinates.mean(0))
        problem = gram.GramProblem(
            model, initial, tf.zeros([1, n, 5, 10], keras_model.input.dtype)
        )
        problem.examples = tf.constant(examples[None])
        update = problem.kernel_update(tf.constant(coordinates[None]))
        (released,) = weighted_sums([update], [tf.constant([[1.0]])])
        released = released[0].numpy()
        exact = np.float64(examples).T @ np.float64(coordinates)
        size = np.linalg.norm(examples) * np.linalg.norm(coordinates)
        np.testing.assert_allclose(released, -exact, atol=1e-5 * size)
        norm = np.linalg.norm(np.float64(released))
        assert float(norms(update)[0]) == pytest.approx(norm, rel=1e-5)
