"""The hypernetwork and its pull-back against NumPy written out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.clients.updates import OuterProducts
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork

TARGETS = ((3, 2), (4,), (2, 1, 2))
NETWORK = Hypernetwork(descriptor_dim=3, width=5, targets=TARGETS)


@pytest.fixture
def values():
    rng = np.random.default_rng(7)
    phi = [rng.normal(size=shape).astype(np.float32) for shape in NETWORK.shapes]
    descriptor = rng.normal(size=3).astype(np.float32)
    return phi, descriptor


def numpy_forward(phi, descriptor):
    """Theta in float64, and the hidden layers' inputs and outputs."""
    phi = [p.astype(np.float64) for p in phi]
    values = [descriptor.astype(np.float64)]
    for layer in range(3):
        pre = values[-1] @ phi[2 * layer] + phi[2 * layer + 1]
        values.append(np.maximum(pre, 0.0))
    heads = list(zip(phi[6::2], phi[7::2], strict=True))
    theta = [
        (values[-1] @ kernel + bias).reshape(shape)
        for (kernel, bias), shape in zip(heads, TARGETS, strict=True)
    ]
    return theta, values


def numpy_pull_back(phi, descriptor, update):
    """(d theta / d phi)^T update and (d theta / d v)^T update by the chain rule."""
    _, values = numpy_forward(phi, descriptor)
    features = values[-1]
    flat = [u.astype(np.float64).ravel() for u in update]
    heads, back = [], np.zeros_like(features)
    for kernel, u in zip(phi[6::2], flat, strict=True):
        heads += [np.outer(features, u), u]
        back += kernel.astype(np.float64) @ u
    hidden = []
    for layer in reversed(range(3)):
        back = back * (values[layer + 1] > 0)
        hidden = [np.outer(values[layer], back), back, *hidden]
        back = phi[2 * layer].astype(np.float64) @ back
    return hidden + heads, back


def test_shapes_and_size():
    assert NETWORK.shapes == [
        *[(3, 5), (5,), (5, 5), (5,), (5, 5), (5,)],
        *[(5, 6), (6,), (5, 4), (4,), (5, 4), (4,)],
    ]
    assert NETWORK.num_parameters == 20 + 30 + 30 + 6 * (6 + 4 + 4)


def test_forward_is_the_written_out_network(values):
    phi, descriptor = values
    expected, _ = numpy_forward(phi, descriptor)
    for found, wanted in zip(NETWORK(phi, descriptor), expected, strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture
def stack():
    """Three users' descriptors and updates."""
    rng = np.random.default_rng(8)
    descriptors = rng.normal(size=[3, 3]).astype(np.float32)
    updates = [rng.normal(size=[3, *shape]).astype(np.float32) for shape in TARGETS]
    return descriptors, updates


def formed(pulled):
    """A stack's updates of phi, as arrays [users, ...]."""
    is_formed = [isinstance(t, OuterProducts) for t in pulled]
    assert is_formed == [True, False] * (len(pulled) // 2)
    return [
        (t.formed() if f else t).numpy() for t, f in zip(pulled, is_formed, strict=True)
    ]


def test_pull_back_is_the_chain_rule_written_out(values, stack):
    phi, (descriptors, updates) = values[0], stack
    found, of_descriptors = NETWORK.pull_back(phi, descriptors, updates)
    found = [*formed(found), of_descriptors.numpy()]
    for user in range(3):
        own = [u[user] for u in updates]
        expected, of_v = numpy_pull_back(phi, descriptors[user], own)
        for f, wanted in zip(found, [*expected, of_v], strict=True):
            np.testing.assert_allclose(f[user], wanted, rtol=1e-4, atol=1e-4)


def test_pull_back_is_the_transposed_jacobian(values, stack):
    phi, (descriptors, updates) = [tf.constant(p) for p in values[0]], stack
    found = formed(NETWORK.pull_back(phi, descriptors, updates)[0])
    for user, descriptor in enumerate(descriptors):
        with tf.GradientTape() as tape:
            tape.watch(phi)
            theta = NETWORK(phi, tf.constant(descriptor))
            theta = tf.concat([tf.reshape(t, [-1]) for t in theta], 0)
        flat = np.concatenate([u[user].ravel() for u in updates])
        jacobians = tape.jacobian(theta, phi)
        for jacobian, pulled in zip(jacobians, found, strict=True):
            brute_force = np.tensordot(flat, jacobian.numpy(), 1)
            np.testing.assert_allclose(pulled[user], brute_force, rtol=1e-4, atol=1e-4)


def test_initial_weights_are_about_a_local_models_size():
    """Across users a weight varies as across the local model's tensor."""
    rng = np.random.default_rng(0)
    local = [tf.constant(rng.normal(scale=0.1, size=[40, 30]), tf.float32)]
    network = Hypernetwork(descriptor_dim=8, width=64, targets=((40, 30),))
    tf.keras.utils.set_random_seed(0)
    phi = network.initial(local)
    tf.random.set_seed(None)
    assert [tuple(p.shape) for p in phi] == network.shapes
    rng = np.random.default_rng(1)
    users = np.stack(
        [
            network(phi, tf.constant(rng.normal(size=8), tf.float32))[0]
            for _ in range(200)
        ]
    )
    added = users - local[0]
    # He initialisation keeps E|e|^2 = width on average over the hidden draws.
    assert 0.05 < np.sqrt(np.mean(np.square(added))) < 0.2
    assert users.std(axis=0).mean() > 0.02


def test_descriptors_move_biases_that_start_at_zero():
    """Else a user could not even learn which classes it has but through phi."""
    local = [tf.random.stateless_normal([9, 30], [1, 2], stddev=0.1), tf.zeros([30])]
    network = Hypernetwork(descriptor_dim=8, width=64, targets=((9, 30), (30,)))
    phi = network.initial(local)
    draws = np.random.default_rng(1).normal(size=[200, 8]).astype(np.float32)
    users = [network(phi, tf.constant(v)) for v in draws]
    spreads = [np.std([user[i] for user in users], axis=0).mean() for i in (0, 1)]
    assert 0.02 < spreads[0] < 0.2
    np.testing.assert_allclose(spreads[1], spreads[0], rtol=0.5)


@pytest.mark.parametrize("name", ["descriptor_dim", "width"])
def test_a_size_below_one_is_refused(name):
    sizes = {"descriptor_dim": 2, "width": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0"):
        Hypernetwork(targets=TARGETS, **sizes)
