"""A model's tensors as one vector, and back."""

import math
from collections.abc import Sequence

import tensorflow as tf


def join(tensors: Sequence[tf.Tensor], *, leading: int = 0) -> tf.Tensor:
    """Vectors [..., n] of tensors [..., *shape], in their order.

    Args:
      tensors: Of one dtype and the same leading axes.
      leading: How many axes lead; 1 for the stacked tensors of C clients.
    """
    parts = []
    for tensor in map(tf.convert_to_tensor, tensors):
        size = tensor.shape[leading:].num_elements()
        shape = tf.concat([tf.shape(tensor)[:leading], [size]], 0)
        parts.append(tf.reshape(tensor, shape))
    return tf.concat(parts, -1)


def split(vectors: tf.Tensor, shapes: Sequence[Sequence[int]]) -> list[tf.Tensor]:
    """Tensors [..., *shape] of vectors [..., n]: the reverse of `join`.

    Args:
      vectors: [..., n].
      shapes: Of the tensors, with n numbers in all.
    """
    vectors = tf.convert_to_tensor(vectors)
    leading = tf.shape(vectors)[:-1]
    parts = tf.split(vectors, [math.prod(shape) for shape in shapes], -1)
    return [
        tf.reshape(part, tf.concat([leading, tf.constant(shape, tf.int32)], 0))
        for part, shape in zip(parts, map(list, shapes), strict=True)
    ]
