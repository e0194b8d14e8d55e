"""Training in the span of the examples against training the weights themselves."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.clients import gram, training
from tff_hdp.clients.gram import SpannedUpdate
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_stack

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


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("batch_size", [1, 5, 12])
@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"momentum": 0.9},
        {"proximal": 0.7},
        {"proximal": 0.7, "centre_every": 2},
        {"momentum": 0.5, "proximal": 0.3, "masks_last": True},
    ],
    ids=["plain", "momentum", "proximal", "moving centre", "all"],
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
    rule = dict(rule)
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


def spanned(examples, coordinates):
    return SpannedUpdate(tf.constant(examples), tf.constant(coordinates))


def random_spanned(rng, clients=3, n=8):
    examples = rng.random([clients, n, WIDTH]).astype(np.float32)
    coordinates = rng.normal(size=[clients, n, HIDDEN]).astype(np.float32)
    return examples, coordinates


def test_norms_and_sums_are_those_of_the_formed_updates():
    examples, coordinates = random_spanned(np.random.default_rng(0))
    formed = np.einsum(
        "cnd,cnh->cdh", *(np.float64([examples, coordinates][i]) for i in (0, 1))
    )
    update = spanned(examples, coordinates)
    norms = np.sqrt((formed**2).sum((1, 2)))
    np.testing.assert_allclose(update.norms(), norms, rtol=1e-3)
    np.testing.assert_allclose(update.dense(), formed, rtol=1e-4, atol=1e-4)
    factors = np.float32([0.5, 0.0, 2.0])
    expected = np.einsum("c,cdh->dh", factors, formed)
    found = update.weighted_sum(tf.constant(factors))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("poisoned", ["examples", "coordinates"])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_client_without_a_factor_does_not_matter(poisoned, poison):
    examples, coordinates = random_spanned(np.random.default_rng(1))
    factors = tf.constant([0.5, 0.0, 2.0])
    expected = spanned(examples, coordinates).weighted_sum(factors)
    {"examples": examples, "coordinates": coordinates}[poisoned][1, 2, 3] = poison
    update = spanned(examples, coordinates)
    np.testing.assert_allclose(update.weighted_sum(factors), expected, rtol=1e-6)
    assert np.isfinite(update.norms()).tolist() == [True, False, True]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    apart=st.floats(-8.0, 0.0),
    n=st.integers(2, 40),
)
def test_a_norm_is_never_understated(seed, apart, n):
    """Examples nearly alike, pushed apart: X^T D cancels down to its rounding."""
    rng = np.random.default_rng(seed)
    common = rng.random([1, 784])
    examples = common + 10.0**apart * rng.normal(size=[n, 784])
    coordinates = rng.normal(size=[n, 4])
    coordinates -= coordinates.mean(0)
    examples, coordinates = np.float32(examples)[None], np.float32(coordinates)[None]
    exact = np.float64(examples[0]).T @ np.float64(coordinates[0])
    update = spanned(examples, coordinates)
    found = float(update.norms()[0])
    assert found >= np.linalg.norm(exact)
    # What is released is the update as float32 forms it.
    assert found >= np.linalg.norm(np.float64(update.dense()[0]))


@pytest.mark.parametrize("scale", [1.0, 1e15])
def test_features_made_to_cancel_do_not_pass_for_short(scale):
    """Rows alike but for their rounding, of which float32 keeps too little."""
    rng = np.random.default_rng(3)
    for n in (2, 8, 40):
        common = scale * rng.random([1, 784])
        examples = np.float32(common * (1 + 1e-7 * rng.integers(-2, 3, [n, 784])))
        coordinates = np.float32(rng.choice([-1.0, 1.0], [n, 8]) * scale)
        coordinates -= coordinates.mean(0, keepdims=True)
        update = spanned(examples[None], coordinates[None])
        formed = np.linalg.norm(np.float64(update.dense()[0]))
        largest = np.linalg.norm(np.float64(examples)) * np.linalg.norm(coordinates)
        norm = float(update.norms()[0])
        assert formed <= norm <= formed + 1e-5 * largest


def test_what_overflows_has_no_finite_norm():
    examples = np.full([1, 2, WIDTH], 1e30, np.float32)
    coordinates = np.float32([[[1e10], [-1e10]]])
    assert not np.isfinite(spanned(examples, coordinates).norms()).any()
