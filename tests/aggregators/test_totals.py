"""Rows added at their places: the same by what CPUs and what GPUs compute."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators.totals import add_rows
from tff_hdp.runtime import environment


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
@pytest.mark.parametrize("places", [[2], [0, 4], [1, 1, 3], []])
def test_rows_are_added_at_their_places(monkeypatch, gpus, dtype, shape, places):
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    rng = np.random.default_rng(0)
    total = rng.integers(-99, 99, size=(5, *shape)).astype(dtype)
    rows = rng.integers(-99, 99, size=(len(places), *shape)).astype(dtype)
    expected = total.copy()
    np.add.at(expected, places, rows)

    @tf.function(autograph=False)
    def add(total, places, rows):
        return add_rows(total, places, rows)

    places = tf.constant(places, tf.int32)
    np.testing.assert_array_equal(add(total, places, rows), expected)


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_row_that_is_not_added_spoils_nothing(monkeypatch, gpus):
    """Zones of whose clients one is not finite are theirs alone."""
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    rows = tf.constant([[np.nan, np.inf]])
    found = add_rows(tf.ones([3, 2]), tf.constant([1]), rows).numpy()
    np.testing.assert_array_equal(found[[0, 2]], np.ones((2, 2)))
    assert not np.isfinite(found[1]).any()
