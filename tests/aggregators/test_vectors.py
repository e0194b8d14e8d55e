"""Updates as vectors: against NumPy, and against the protocol's fixed point."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators.vectors import centred, decode, encode, join, split
from tff_hdp.protocols.secagg.fixed_point import FixedPoint, to_ring

SHAPES = ((2, 3), (), (4,), (1, 2, 2))


@pytest.mark.parametrize("leading", [(), (1,), (5,), (2, 3)])
def test_a_vector_is_the_tensors_one_after_the_other(leading):
    rng = np.random.default_rng(0)
    tensors = [rng.normal(size=(*leading, *s)).astype(np.float32) for s in SHAPES]
    expected = np.concatenate([t.reshape(*leading, -1) for t in tensors], -1)
    vectors = join(tensors, leading=len(leading))
    np.testing.assert_array_equal(vectors, expected)
    for found, tensor in zip(split(vectors, SHAPES), tensors, strict=True):
        np.testing.assert_array_equal(found, tensor)


def test_shapes_are_known_where_the_number_of_clients_is_not():
    """A single client's model must be seen to be single: it takes a faster way."""

    @tf.function(input_signature=[tf.TensorSpec([None, 15]), tf.TensorSpec([1, 15])])
    def check(many, one):
        for tensor, shape in zip(split(many, SHAPES), SHAPES, strict=True):
            assert tensor.shape.as_list() == [None, *shape]
        assert all(tensor.shape[0] == 1 for tensor in split(one, SHAPES))
        assert join(split(many, SHAPES), leading=1).shape.as_list() == [None, 15]

    check(tf.zeros([3, 15]), tf.zeros([1, 15]))


@pytest.mark.parametrize("bits", [8, 24, 32])
def test_it_is_the_protocols_fixed_point(bits):
    encoding = FixedPoint.for_sum(clip=1.5, bits=bits, max_clients=4)
    rng = np.random.default_rng(bits)
    vectors = rng.uniform(-2.0, 2.0, [4, 300])
    vectors[:, :3] = np.array([1.5, -1.5, 2.5]) * encoding.step  # ties
    encoded = encode(tf.constant(vectors), encoding)
    assert encoded.dtype == tf.int64
    for ours, vector in zip(encoded.numpy(), vectors, strict=True):
        np.testing.assert_array_equal(to_ring(ours, bits), encoding.encode(vector))
    total = tf.math.floormod(tf.reduce_sum(encoded, 0), 2**bits)
    ring = to_ring(total.numpy(), bits)
    found = decode(total, encoding)
    np.testing.assert_array_equal(found, encoding.decode(ring))
    bound = encoding.max_error(4) * (1 + 1e-9)
    clipped = np.clip(vectors, -1.5, 1.5).sum(0)
    np.testing.assert_allclose(found, clipped, rtol=0, atol=bound)


def test_representatives_are_centred():
    found = centred(tf.constant([0, 7, 8, 15, 16, -1], tf.int64), 4)
    np.testing.assert_array_equal(found, [0, 7, -8, -1, 0, -1])
