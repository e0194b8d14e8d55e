"""What the tests of zoned means share: updates, profiles, and rounds of a mean."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE


@pytest.fixture(scope="module")
def shapes():
    """The tensors of an update, unless a module says otherwise."""
    return collections.OrderedDict(kernel=[40, 50], bias=[50])


@pytest.fixture(scope="module")
def value_type(shapes):
    """The TFF type of an update."""
    return tff.to_type(
        collections.OrderedDict((k, (np.float32, v)) for k, v in shapes.items())
    )


@pytest.fixture(scope="module")
def updates(shapes):
    """Normal updates of as many clients as asked for."""

    def make(count, *, seed=0, scale=1.0):
        rng = np.random.default_rng(seed)
        return [
            collections.OrderedDict(
                (k, (scale * rng.normal(size=s)).astype(np.float32))
                for k, s in shapes.items()
            )
            for _ in range(count)
        ]

    return make


@pytest.fixture(scope="module")
def zeros(updates):
    """Updates of zeros of as many clients as asked for."""
    return lambda count: tf.nest.map_structure(np.zeros_like, updates(count))


@pytest.fixture(scope="session")
def profiles():
    """A weight, a zone, and whether it carries noise, for each client."""

    def make(zones, w=None, *, carries=True):
        w = [1.0] * len(zones) if w is None else w
        carries = [carries] * len(zones) if isinstance(carries, bool) else carries
        return [
            collections.OrderedDict(weight=a, zone=z, carries_noise=c)
            for a, z, c in zip(w, zones, carries, strict=True)
        ]

    return make


@pytest.fixture(scope="module")
def aggregate(value_type):
    """The outputs of a factory's mean, round after round on the same values."""

    def run(factory, values, clients, *, rounds=1):
        process = factory.create(value_type, WEIGHT_TYPE)
        state, outputs = process.initialize(), []
        for _ in range(rounds):
            outputs.append(process.next(state, values, clients))
            state = outputs[-1].state
        return outputs

    return run


@pytest.fixture(scope="session")
def flat():
    """The entries of a structure of tensors in one vector."""
    return lambda value: np.concatenate([np.ravel(t) for t in tf.nest.flatten(value)])
