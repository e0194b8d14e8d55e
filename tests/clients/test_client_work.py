"""Optimizers by name."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.clients.client_work import build_optimizer, client_profile
from tff_hdp.errors import ArgumentError

THEIRS = {
    "sgd": tff.learning.optimizers.build_sgdm(0.1),
    "sgdm": tff.learning.optimizers.build_sgdm(0.1, 0.9),
    "adam": tff.learning.optimizers.build_adam(0.1),
    "yogi": tff.learning.optimizers.build_yogi(0.1),
    "adagrad": tff.learning.optimizers.build_adagrad(0.1),
}


def steps(optimizer: tff.learning.optimizers.Optimizer) -> list[np.ndarray]:
    @tf.function
    def step(state, weights, gradients):
        return optimizer.next(state, weights, gradients)

    weights = [tf.ones([2, 3]), tf.zeros([3])]
    state = optimizer.initialize([tf.TensorSpec(w.shape, w.dtype) for w in weights])
    for gradient in (1.0, -0.5, 3.0):
        state, weights = step(state, weights, [gradient * tf.exp(w) for w in weights])
    return [w.numpy() for w in weights]


@pytest.mark.parametrize("name", THEIRS)
def test_an_optimizer_by_name_steps_as_tffs_own(name):
    """Whose steps autograph rewrites in a `tf.function`."""
    made = build_optimizer(name, 0.1)
    for ours, theirs in zip(steps(made), steps(THEIRS[name]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert not np.array_equal(ours, np.ones_like(ours))


def test_an_optimizer_that_nobody_knows():
    with pytest.raises(ArgumentError, match=r"optimizer.*lion"):
        build_optimizer("lion", 0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("zone", odd) for odd in (None, "1", 1.5, np.nan, True, [0], 2**31)),
        *(("weight", odd) for odd in (None, "1", [1.0], np.ones(2), True)),
        *(("carries_noise", odd) for odd in (None, "False", 0, [True])),
    ],
)
def test_a_profile_of_another_kind_is_refused(name, value):
    """A zone was cut to a whole number, which is another client's."""
    sound = {"weight": np.float32(0.5), "zone": np.int64(1), "carries_noise": np.True_}
    client_profile(**sound)
    with pytest.raises(ArgumentError, match=f"^{name} is "):
        client_profile(**sound | {name: value})
