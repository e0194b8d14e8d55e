"""What lies between the steps of noise tells nothing of who sent finer values."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.noise import STEPS
from tff_hdp.privacy import Clipping, FullParticipation, Level, NoisePlan

SIZE, S, SENT = 20_000, 1.0, 1.2345e-3
COMMON = {
    "sampling": FullParticipation(),
    "clipping": Clipping(clip_norm=S),
    "size": SIZE,
}
# One client or zone noises, another sends what is on no grid.
PLANS = {
    "zones": NoisePlan(zone_sizes=(1, 1), zone_noise_multipliers=(1.0, 0.0), **COMMON),
    "unequal zones": NoisePlan(
        zone_sizes=(1, 1), zone_noise_multipliers=(1.0, 1e-3), **COMMON
    ),
    "clients": NoisePlan(
        zone_sizes=(2,), noising_clients=(1,), client_noise_multiplier=1.0, **COMMON
    ),
    "a node above": NoisePlan(
        zone_sizes=(1, 1),
        zone_noise_multipliers=(1.0, 0.0),
        upper_levels=(Level((0, 0), (0.0,)),),
        **COMMON,
    ),
}


def released(plan, value):
    """A release in which the last client of the last zone sends `value` everywhere."""
    return outputs(plan, value)[-1][0].numpy().astype(np.float64)


def outputs(plan, value, *, absent=()):
    """What every node puts out, the zones first.

    Clients other than the last send zeros, but for those `absent`, pairs of zone and
    place.
    """
    mean = ZonedMean(plan, tf.TensorSpec([SIZE], tf.float32))
    state = mean.initial_state()
    sent, total = mean.client_state(state), None
    for zone, n in enumerate(plan.zone_sizes):
        for i in (i for i in range(n) if (zone, i) not in absent):
            profile = collections.OrderedDict(
                weight=tf.constant(1.0),
                zone=tf.constant(zone),
                carries_noise=tf.constant(i < plan.noising_clients[zone]),
            )
            is_last = zone == plan.num_zones - 1 and i == n - 1
            update = tf.fill([SIZE], value if is_last else 0.0)
            contribution = mean.contribution(sent, update, profile)
            total = mean.zero(contribution) if total is None else total
            total = mean.add(total, contribution, tf.constant(zone))
    return mean.outputs(state, total)[0]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_values_without_noise_do_not_show_between_the_steps(plan):
    """Modulo the noise's steps a sum is uniform, whatever the others sent.

    Of n numbers with uniform phases the mean phase has length sqrt(1 / n) or so, and
    beyond 5 / sqrt(n) with probability exp(-25).
    """
    step = plan.released_sensitivities[0] / S / STEPS
    phases = np.exp(2j * np.pi * released(plan, SENT) / step)
    assert np.abs(phases.mean()) < 5 / np.sqrt(SIZE)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_hiding_that_costs_next_to_no_noise(plan):
    """At most a 256th of the variance: found within 4.5 standard errors."""
    found = released(plan, 0.0).std()
    expected = plan.released_sensitivities[0]
    assert found == pytest.approx(expected, rel=4.5 / np.sqrt(2 * SIZE))


def phase_length(plan, absent=()):
    """1 where a zone's output lies on the grid of one client's noise, else near 0."""
    output = outputs(plan, 0.0, absent=absent)[0][0].numpy().astype(np.float64)
    step = plan.released_sensitivities[0] / S / STEPS
    return np.abs(np.exp(2j * np.pi * output / step).mean())


@pytest.mark.parametrize("absent", [(), ((0, 1),)], ids=["both came", "one came"])
def test_whether_sums_are_smoothed_tells_not_who_came(absent):
    """A client without noise of its own may hide whether it takes part."""
    assert phase_length(PLANS["clients"], absent) < 5 / SIZE**0.5


def test_one_draw_of_clients_who_all_noise_is_not_smoothed():
    """Who came shows in such clients' noise as it is, and is accounted as known."""
    all_noise = {"noising_clients": (2,), "client_noise_multiplier": 1.0}
    plan = NoisePlan(zone_sizes=(2,), **all_noise, **COMMON)
    assert phase_length(plan, absent=((0, 1),)) > 0.99
    assert phase_length(plan) < 5 / SIZE**0.5
