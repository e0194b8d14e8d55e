"""Updates screened and clipped, one by one and as a stack."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators.clipping import beside, clip, global_norm, screen


def test_a_stack_is_clipped_client_by_client():
    rows = tf.constant([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped, norms = clip(rows, 1.0, stacked=True)
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(norms, [5.0, 0.5, 0.0], rtol=1e-6)


def test_an_infinite_norm_clips_nothing():
    rows = tf.constant([[3e9, 4.0], [0.0, 0.0]])
    clipped, _ = clip(rows, math.inf, stacked=True)
    np.testing.assert_array_equal(clipped, rows)


def test_a_stack_of_structures_is_clipped_as_each_alone_is():
    """To a norm of each one's own, and to one of all."""
    rng = np.random.default_rng(0)
    stack = {
        "kernel": tf.constant(rng.normal(size=[5, 3, 2]), tf.float32),
        "bias": tf.constant(rng.normal(size=[5, 2]), tf.float32),
        "scale": tf.constant(rng.normal(size=[5]), tf.float32),
    }
    for most in (np.float32(1.5), rng.uniform(0.5, 4.0, 5).astype(np.float32)):
        clipped, norms = clip(stack, tf.constant(most), stacked=True)
        for c, own in enumerate(np.broadcast_to(most, 5)):
            alone = {name: t[c] for name, t in stack.items()}
            flat = np.concatenate([np.ravel(t) for t in alone.values()])
            assert float(norms[c]) == pytest.approx(np.linalg.norm(flat), rel=1e-6)
            expected = min(1.0, own / np.linalg.norm(flat))
            one, _ = clip(alone, tf.constant(own))
            for name in stack:
                np.testing.assert_array_equal(clipped[name][c], one[name])
                np.testing.assert_allclose(one[name], alone[name] * expected, rtol=1e-6)


# The second to fourth have no finite norm: the squares of 1e30 overflow.
ROWS = np.array(
    [[3e18, 4e18], [1.0, np.nan], [np.inf, 0.0], [1e30, 1.0], [0.0, 0.0]], np.float32
)


def test_clients_without_a_finite_norm_are_replaced_one_by_one():
    """In a plain graph, as TFF traces."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        screened, rejected = session.run(
            screen(tf.constant(ROWS), stacked=True, instead=tf.constant([7.0]))
        )
    np.testing.assert_array_equal(screened, [ROWS[0], *[[7.0, 7.0]] * 3, ROWS[4]])
    assert rejected.tolist() == [False, True, True, True, False]


def test_a_stack_is_refused_as_single_updates_are():
    screened, rejected = screen(tf.constant(ROWS), stacked=True)
    for row, found, refused in zip(ROWS, screened, rejected, strict=True):
        alone = {"a": tf.constant(row[:1]), "b": tf.constant(row[1:])}
        kept, too = screen(alone)
        np.testing.assert_array_equal(found, tf.concat([kept["a"], kept["b"]], 0))
        assert bool(too) == bool(refused)


@pytest.mark.parametrize(
    ("dtype", "value", "kept"),
    [
        (tf.float16, 200.0, True),
        (tf.float16, np.inf, False),
        (tf.bfloat16, 1e18, True),
        (tf.bfloat16, 1e20, False),
        (tf.float32, 9e18, True),
        (tf.float32, 1e19, False),
        (tf.float64, 1e38, True),
        (tf.float64, 3e38, False),
        (tf.float64, 1e150, False),
    ],
)
def test_an_update_is_rejected_if_its_norm_is_not_finite_in_float32(dtype, value, kept):
    """Of four equal coordinates it is twice their value."""
    update = {"a": tf.cast(tf.fill([4], tf.constant(value, tf.float64)), dtype)}
    found, rejected = screen(update)
    assert found["a"].dtype == dtype
    assert bool(rejected) != kept
    expected = update["a"] if kept else tf.zeros([4], dtype)
    np.testing.assert_array_equal(found["a"], expected)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("rest", [1e-8, 1e-5, 1e-4, 2.4e-4, 1e-3, 1.0])
def test_rounding_lets_a_clipped_update_stay_hardly_above_the_norm(rest, stacked):
    """Updates whose squares are lost, or add up badly, in a sum in float32."""
    update = np.full(1_663_370, rest, np.float32)
    update[0] = 1.0
    given = tf.constant(update[np.newaxis] if stacked else update)
    clipped, _ = clip(given, 0.5, stacked=stacked)
    assert np.linalg.norm(clipped.numpy().astype(np.float64)) < 0.5 * (1 + 1e-7)


def test_norms_of_a_stack_are_in_the_widest_dtype():
    half = tf.constant([[300.0, 400.0], [3.0, 4.0]], tf.float16)
    norms = global_norm([half, tf.constant([0.0, 12.0])], stacked=True)
    assert norms.dtype == tf.float32
    np.testing.assert_allclose(norms, [500.0, 13.0], rtol=1e-6)


def test_numbers_of_clients_stand_beside_their_tensors():
    factors = tf.constant([1.0, 2.0])
    assert beside(factors, tf.zeros([2, 3, 4])).shape == (2, 1, 1)
    assert beside(factors, tf.zeros([2])).shape == (2,)
    assert beside(tf.constant(1.0), tf.zeros([3, 4])).shape == ()
