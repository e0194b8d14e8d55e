"""Tensors as vectors and back, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators.vectors import join, split

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
