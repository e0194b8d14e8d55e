"""Targets that tests of attacks share, on the digits that need no files."""

import dataclasses
import functools

import pytest

import tasks
from tasks.models import Architecture
from tff_hdp.attacks import attacker
from tff_hdp.attacks.victims import load_target


@pytest.fixture(scope="session")
def target():
    """A model of the digits, `dnn` or `cnn`, fresh weights of seed 1."""

    @functools.cache
    def load(model="dnn", steps=1, rate=0.05):
        task = tasks.load("digits")
        if model == "cnn":
            network = Architecture(filters=(16,), units=16)
            shape = {"input_shape": (8, 8, 1), "num_classes": 10, "max_value": 16}
            build = functools.partial(network.build, **shape)
            task = dataclasses.replace(task, build_model=build)
        return load_target(task, learning_rate=rate, local_steps=steps, seed=1)

    return load


@pytest.fixture(scope="module")
def loaded_once():
    """Has attackers of the same settings share a target.

    Each would trace its own clients for seconds.
    """
    loaded = {}

    def shared(task, **options):
        key = task.name, task.model_name, *sorted(options.items())
        if key not in loaded:
            loaded[key] = load_target(task, **options)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attacker, "load_target", shared)
        yield


@pytest.fixture(scope="session")
def mnist(data_dir):
    """MNIST's dnn, or skip."""
    task = tasks.load("mnist", model="dnn", data_dir=str(data_dir), num_clients=5)
    return load_target(task, seed=1)


@pytest.fixture(scope="session")
def victims():
    """Images, their labels, and the updates of clients that hold one each."""

    def of(target, count):
        x, y = target.features[:count], target.labels[:count]
        updates = target.updates(x[:, None], y[:, None]).astype(float)
        return x / target.max_value, y, updates

    return of
