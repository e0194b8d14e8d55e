"""How many clients train at once."""

import math
import types

import pytest

from tff_hdp.clients.training import chunk_size, one_by_one
from tff_hdp.runtime import environment


@pytest.mark.parametrize(
    ("cores", "clients", "most"),
    [
        (1, 100, 50),
        (2, 100, 50),
        (2, 61, 31),
        (2, 30, 15),
        (2, 7, 5),
        (4, 100, 25),
        (64, 999, 16),
    ],
)
def test_chunks_fit_memory_and_use_every_core(monkeypatch, cores, clients, most):
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert chunk_size(_sized(1_000), clients) == most
    assert chunk_size(_sized(159_010), clients) == most
    assert 1 <= chunk_size(_sized(2_156_490), clients) < 20
    assert chunk_size(_sized(10**9), clients) == 1


@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize(
    ("clients", "weights", "examples", "together"),
    [
        (100, 1_000, 100, True),
        (100, 1_000, 101, False),
        (1000, 650, 12, True),
        (10, 7_850, 150, False),
        (100, 1_000, math.inf, False),
        (0, 1_000, 0, True),
    ],
)
def test_little_work_is_done_together(
    monkeypatch, cores, clients, weights, examples, together
):
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    found = chunk_size(_sized(weights), clients, examples)
    apart = chunk_size(_sized(weights), clients)
    assert found == (max(1, clients) if together else apart)
    # That many fit memory.
    assert chunk_size(_sized(10**6), 100, 1e-3) == 22
    convolving = _sized(weights, convolves=True)
    assert chunk_size(convolving, clients, examples) == chunk_size(convolving, clients)


@pytest.mark.parametrize(
    ("cores", "clients", "most"),
    [(1, 20, 4), (2, 20, 2), (2, 50, 5), (2, 7, 1), (4, 1000, 50), (64, 20, 1)],
)
def test_chunks_that_train_one_by_one_share_the_cores_out_evenly(
    monkeypatch, cores, clients, most
):
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert chunk_size(_sized(1_000, convolves=True), clients) == most
    large = chunk_size(_sized(1_500_000, convolves=True), clients)
    # By memory, 14.
    assert large == min(max(most, 5), math.ceil(clients / cores), 14)
    assert chunk_size(_sized(10**9, convolves=True), clients) == 1


@pytest.mark.parametrize("convolves", [False, True])
@pytest.mark.parametrize(
    ("gpus", "clients", "weights", "most"),
    [
        (1, 100, 159_010, 100),
        (2, 100, 159_010, 50),
        (2, 7, 1_000, 4),
        (1, 1000, 1_000, 200),
        (1, 100, 2_156_490, 41),
        (4, 20, 10**9, 1),
    ],
)
def test_chunks_of_gpus_are_as_large_as_fits(
    monkeypatch, convolves, gpus, clients, weights, most
):
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    assert one_by_one(_sized(weights, convolves)) == convolves
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    assert not one_by_one(_sized(weights, convolves))
    assert chunk_size(_sized(weights, convolves), clients) == most


def _sized(weights, convolves=False):
    """A stand-in for a model of so many weights."""
    return types.SimpleNamespace(size=weights, convolves=convolves)
