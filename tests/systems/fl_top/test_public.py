"""The server's choices on public data, against Keras and NumPy."""

import statistics

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tff_hdp.systems.fl_top import public as top_k
from tff_hdp.systems.fl_top.compressors import FixedSubset, Identity, RandomSubset

RATE = 0.1


@pytest.fixture(scope="module")
def public():
    task = tasks.load("digits")
    model = task.build_model()
    features, labels = task.train.features[:10], task.train.labels[:10]
    return model, [w.numpy() for w in model.trainable_weights], features, labels


def flatten(weights):
    return np.concatenate([np.ravel(w) for w in weights])


def keras_gradients(model, features, labels):
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        loss = loss_fn(labels, model(features))
    return [g.numpy() for g in tape.gradient(loss, model.trainable_weights)]


@pytest.mark.parametrize(
    ("ratio", "num_weights", "size"),
    [(0.005, 1_663_370, 8316), (0.05, 1_663_370, 83168), (0.29, 100, 29), (1.0, 7, 7)],
)
def test_k_is_the_floor_of_r_n(ratio, num_weights, size):
    assert top_k.subset_size(ratio, num_weights) == size


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, 0.009, float("nan")])
def test_ratios_out_of_range_are_refused(ratio):
    with pytest.raises(ValueError, match="ratio is"):
        top_k.subset_size(ratio, 100)


def test_gradients_are_accumulated_along_sgd(public):
    model, initial, features, labels = public
    expected = np.zeros(model.count_params())
    for _ in range(3):
        step = keras_gradients(model, features, labels)
        expected += np.abs(flatten(step))
        for variable, g in zip(model.trainable_weights, step, strict=True):
            variable.assign_sub(RATE * g)
    for variable, w in zip(model.trainable_weights, initial, strict=True):
        variable.assign(w)
    found = top_k.accumulated_gradients(
        model, initial, features, labels, steps=3, learning_rate=RATE
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_gradients_that_explode_are_refused(public):
    model, initial, features, labels = public
    with pytest.raises(FloatingPointError, match="not finite"):
        top_k.accumulated_gradients(
            model, initial, features, labels, steps=30, learning_rate=1e30
        )


def test_top_k_takes_the_largest_and_the_earlier_of_equals():
    scores = np.array([1.0, 5.0, 3.0, 5.0, 3.0, 0.0])
    np.testing.assert_array_equal(top_k.top_k(scores, 3), [1, 2, 3])


def clip_norm(public, compressor, epochs=1):
    model, initial, features, labels = public
    one_round = top_k.PublicRound(
        model=model,
        initial=initial,
        features=features,
        labels=labels,
        epochs=epochs,
        batch_size=10,
        learning_rate=RATE,
        rng=np.random.default_rng(0),
    )
    return one_round.clip_norm(compressor)


def test_the_clip_norm_is_that_of_one_step_on_public_data(public):
    model, initial, features, labels = public
    step = RATE * flatten(keras_gradients(model, features, labels))
    chosen = top_k.top_k(np.abs(step), 20)
    whole = clip_norm(public, Identity(len(step)))
    assert whole == pytest.approx(np.linalg.norm(step), rel=1e-4)
    few = clip_norm(public, FixedSubset(flatten(initial), chosen))
    assert few == pytest.approx(np.linalg.norm(step[chosen]), rel=1e-4)


def test_random_subsets_take_the_median_of_their_norms(public):
    model, _, features, labels = public
    step = RATE * flatten(keras_gradients(model, features, labels))
    subset = RandomSubset(len(step), 20, seed=4)
    norms = [
        np.linalg.norm(step[subset.trainable(tf.constant(i)).numpy()])
        for i in range(top_k.CLIP_DRAWS)
    ]
    assert clip_norm(public, subset) == pytest.approx(
        statistics.median(norms), rel=1e-3
    )
