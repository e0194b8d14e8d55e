"""Norms and sums of a stack of updates, and what of them is kept or spoilt."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.clients.updates import (
    OuterProducts,
    cross_entropy,
    norms,
    out_of_range,
    weighted_sums,
    with_rows_of,
)
from tff_hdp.runtime import environment


def test_cross_entropy_is_tensorflows_but_for_labels_that_are_no_class():
    logits = tf.constant(np.random.default_rng(0).normal(size=[6, 3]), tf.float32)
    labels = tf.constant([0, 3, 2, -1, 1, 2**31 - 1])
    right = np.array([True, False, True, False, True, False])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = cross_entropy(labels, logits)
    gradients, losses = tape.gradient(losses, logits).numpy(), losses.numpy()
    shares = tf.nn.softmax(logits).numpy()[right]
    own = np.eye(3)[[0, 2, 1]]
    np.testing.assert_allclose(
        losses[right], -np.log(np.sum(shares * own, 1)), rtol=1e-5
    )
    np.testing.assert_allclose(gradients[right], shares - own, rtol=1e-5, atol=1e-6)
    assert np.all(np.isnan(losses[~right]))
    assert np.all(np.isnan(gradients[~right]))


def test_numbers_that_32_bits_would_bring_into_range_are_out_of_it():
    given = tf.constant([2, 3, -1, 2**32 + 1, -(2**32) + 1], tf.int64)
    assert out_of_range(given, 3).numpy().tolist() == [False, True, True, True, True]


@pytest.mark.parametrize("rest", [1e-8, 1e-5, 1e-4, 2.4e-4, 1e-3, 1.0])
def test_rounding_makes_a_norm_hardly_too_small(rest):
    """Of a row whose squares are lost, or add up badly, in a sum in float32."""
    row = np.full([1, 1_663_370], rest, np.float32)
    row[0, 0] = 1.0
    exact = np.linalg.norm(row.astype(np.float64))
    assert float(norms(tf.constant(row))[0]) > exact * (1 - 1e-5)


@pytest.fixture
def outer():
    """Seven clients' updates of a kernel, 5 by 3."""
    rng = np.random.default_rng(1)
    left, right = (rng.normal(size=[7, d]).astype(np.float32) for d in (5, 3))
    return OuterProducts(tf.constant(left), tf.constant(right))


def test_outer_products_have_the_norms_and_sums_of_what_they_form(outer):
    formed = outer.formed()
    assert formed.shape == (7, 5, 3)
    np.testing.assert_array_equal(formed[2], np.outer(outer.left[2], outer.right[2]))
    np.testing.assert_allclose(norms(outer), norms(formed), rtol=1e-6)
    factors = tf.constant(
        [[0.5, 0.0, 0.0, 1.0, 0.0, 1e-3, 0.0], [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.25]]
    )
    expected = np.einsum("zc,cab->zab", factors, formed)
    for found in weighted_sums([outer, formed], [factors] * 2):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_outer_products_have_norms_that_their_sides_squares_do_not():
    left, right = np.float32([[1e18] * 4]), np.float32([[9e-20] * 1000])
    found = norms(OuterProducts(tf.constant(left), tf.constant(right)))
    exact = np.linalg.norm(np.float64(left)) * np.linalg.norm(np.float64(right))
    assert float(found[0]) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("side", ["left", "right"])
def test_outer_products_of_a_client_that_counts_nothing_may_be_anything(
    monkeypatch, outer, side, gpus
):
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    sides = {"left": outer.left.numpy(), "right": outer.right.numpy()}
    spoilt = dict(sides, **{side: sides[side].copy()})
    spoilt[side][3, 1] = np.nan
    spoilt = OuterProducts(**{k: tf.constant(v) for k, v in spoilt.items()})
    assert np.isfinite(norms(spoilt)).tolist() == [i != 3 for i in range(7)]
    factors = tf.constant([[1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(
        *weighted_sums([spoilt, outer], [factors] * 2),
    )


@pytest.mark.parametrize("kept", [(), (1,), (0, 2), (0, 1, 2)])
def test_kept_rows_are_as_before_and_what_they_were_kept_from_is_too(kept):
    """Over steps of a loop, where TensorFlow writes into what it need not keep."""
    start = tf.constant(np.arange(6.0).reshape(3, 2), tf.float32)
    still = tf.constant(np.isin(range(3), kept))

    @tf.function
    def go(still: tf.Tensor, by: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def step(t, value, before):
            return t + 1, with_rows_of(value, still, value + by), before + value

        return tf.while_loop(lambda t, *_: t < 4, step, (0, start, 0 * start))[1:]

    for by in (1.0, 0.0, np.inf):
        value, before = go(still, tf.constant(by))
        moves = np.where(np.isin(range(3), kept), 0.0, by)[:, np.newaxis]
        steps = start + np.zeros_like(moves)
        total = 0 * steps
        for _ in range(4):
            total, steps = total + steps, steps + moves
        np.testing.assert_array_equal(value, steps)
        np.testing.assert_array_equal(before, total)
