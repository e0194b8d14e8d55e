"""FL-TOP-DP by secure sums: those of plain ones, and the noise beneath masks."""

import dataclasses
import functools
import math

import numpy as np
import pytest

from tests.systems.fl_top.rounds import (
    CLIENTS,
    COHORT,
    cohort_data,
    flat_weights,
    flatten,
    start,
)
from tests.thinning import thinned
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top.compressors import FixedSubset
from tff_hdp.systems.secure_sums import ProtocolData

pytestmark = pytest.mark.usefixtures("in_process")


def secure_plan(sigma, size, clip_norm):
    """FL-TOP-DP's plan, its sum in fixed point."""
    plan = fl_top_dp.plan(
        clients=CLIENTS,
        per_round=COHORT,
        sigma=sigma,
        clipping=Clipping(clip_norm=clip_norm),
    )
    if not sigma:
        plan = dataclasses.replace(plan, noising_clients=(0,))
    secure = dataclasses.replace(plan, min_zone_clients=2)
    return plan, with_encoding(secure, size=size)


@pytest.fixture(scope="module")
def one_round(build, task, initial):
    """The weights after a round, and its metrics."""

    def one_round(plan, compressor, protocol=None):
        process = build(plan, compressor, protocol=protocol)
        data, _ = cohort_data(task)
        given = data if protocol is None else ProtocolData(data, (0,))
        output = process.next(start(process, initial), given)
        return flat_weights(process, output.state), output.metrics

    return one_round


@pytest.fixture(scope="module")
def some_weights(initial):
    """What exchanges the weights from one to another."""
    flat = flatten(initial)
    return functools.cache(lambda *ends: FixedSubset(flat, np.arange(*ends)))


@pytest.mark.parametrize(
    ("protocol", "clip_norm"),
    thinned([None, "bonawitz", "graph"], [0.2, 100.0], every=2),
)
def test_a_secure_sum_is_the_plain_one_within_the_grid(
    initial, protocol, clip_norm, one_round, some_weights
):
    """TFF's sum and the protocols', with and without clients that are clipped."""
    compressor = some_weights(0, 2000)
    plain, secure = secure_plan(0.0, 2000, clip_norm)
    expected, _ = one_round(plain, compressor)
    found, metrics = one_round(secure, compressor, protocol)
    # Each of the mean's clients is off by half a step at most.
    step = secure.encoding.step
    assert step < 2e-6 * clip_norm
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0.5 * step + 1e-7)
    assert np.abs(expected - flatten(initial)).max() > 1e-3
    assert metrics["exchanged"]["upstream_bytes"] == COHORT * 4 * 2001
    assert ("secagg" in metrics) == (protocol is not None)


@pytest.mark.parametrize("protocol", [None, "bonawitz"])
def test_noise_under_the_mask_is_that_of_the_plan(protocol, one_round, some_weights):
    sigma, clip_norm, size = 3.0, 0.2, 2000
    compressor = some_weights(0, size)
    quiet, _ = secure_plan(0.0, size, clip_norm)
    _, noisy = secure_plan(sigma, size, clip_norm)
    without, _ = one_round(quiet, compressor)
    found, _ = one_round(noisy, compressor, protocol)
    noise = (found - without)[:size]
    # The standard error of a deviation of 2,000 numbers is 1.6 %.
    assert np.std(noise) == pytest.approx(clip_norm * sigma / COHORT, rel=0.08)
    assert abs(noise.mean()) < 5 * clip_norm * sigma / COHORT / math.sqrt(size)
    assert np.array_equal(found[size:], without[size:])


def test_a_protocol_needs_a_plan_in_fixed_point(build, some_weights):
    plan, _ = secure_plan(1.0, 400, 1.0)
    with pytest.raises(ArgumentError, match="secure_sums is graph; allowed: None"):
        build(plan, some_weights(0, 400), protocol="graph")
