"""What the tests of zoned means share: updates, profiles, and rounds of a mean."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory
from tff_hdp.runtime import in_process


@pytest.fixture(scope="session")
def own_context():
    return in_process.create_in_process_context()


@pytest.fixture
def in_process_default(own_context):
    """One context for all tests, which keeps what it compiled of a process."""
    tff.framework.set_default_context(own_context)


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
def process_of(value_type):
    """The process of a plan's mean; one for all tests of a module that ask for it."""

    def make(plan, **options):
        factory = HierarchicalMeanFactory(plan, **options)
        return factory.create(value_type, WEIGHT_TYPE)

    made_once = functools.cache(make)
    return lambda plan, **options: (make if options else made_once)(plan, **options)


@pytest.fixture(scope="module")
def aggregate(process_of):
    """The outputs of a plan's mean, round after round on the same values."""

    def run(plan, values, clients, *, rounds=1, **options):
        process = process_of(plan, **options)
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
