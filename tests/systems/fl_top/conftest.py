"""What the tests of FL-TOP's rounds share: a task, first weights, traced processes."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests.systems.fl_top.rounds import CLIENTS, RATE
from tff_hdp import runtime
from tff_hdp.clients.batches import chunk_type
from tff_hdp.systems.fl_top.process import build_fl_top
from tff_hdp.systems.secure_sums import SecureSums


@pytest.fixture
def in_process():
    """The one in-process context, which keeps what it compiled of a process."""
    runtime.set_context("in_process")


@pytest.fixture(scope="module")
def task():
    return tasks.load("digits", num_clients=CLIENTS)


@pytest.fixture(scope="module")
def initial(task):
    tf.keras.utils.set_random_seed(1)
    weights = [w.numpy() for w in task.build_model().trainable_weights]
    tf.random.set_seed(None)
    return weights


@pytest.fixture(scope="module")
def build(task):
    """A process; of the same plan and compressor the one that another test traced."""

    @functools.cache
    def build(plan, compressor, dtype=np.uint8, protocol=None):
        return build_fl_top(
            build_model=task.build_model,
            data_type=chunk_type(task.test_features.shape[1:], dtype),
            plan=plan,
            compressor=compressor,
            client_learning_rate=RATE,
            secure_sums=None if protocol is None else SecureSums(protocol),
        )

    return build
