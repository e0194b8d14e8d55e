"""Fixed point in TensorFlow against the protocol's own in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators import fixed_point
from tff_hdp.protocols.secagg.fixed_point import FixedPoint, to_ring


@pytest.mark.parametrize("bits", [8, 24, 32])
def test_it_is_the_protocols_fixed_point(bits):
    encoding = FixedPoint.for_sum(clip=1.5, bits=bits, max_clients=4)
    rng = np.random.default_rng(bits)
    vectors = rng.uniform(-2.0, 2.0, [4, 300])
    vectors[:, :3] = np.array([1.5, -1.5, 2.5]) * encoding.step  # ties
    encoded = fixed_point.encode(tf.constant(vectors), encoding)
    assert encoded.dtype == tf.int64
    for ours, vector in zip(encoded.numpy(), vectors, strict=True):
        np.testing.assert_array_equal(to_ring(ours, bits), encoding.encode(vector))
    total = tf.math.floormod(tf.reduce_sum(encoded, 0), 2**bits)
    ring = to_ring(total.numpy(), bits)
    found = fixed_point.decode(total, encoding)
    np.testing.assert_array_equal(found, encoding.decode(ring))
    bound = encoding.max_error(4) * (1 + 1e-9)
    clipped = np.clip(vectors, -1.5, 1.5).sum(0)
    np.testing.assert_allclose(found, clipped, rtol=0, atol=bound)


def test_representatives_are_centred():
    found = fixed_point.centred(tf.constant([0, 7, 8, 15, 16, -1], tf.int64), 4)
    np.testing.assert_array_equal(found, [0, 7, -8, -1, 0, -1])
