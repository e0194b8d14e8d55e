"""What lies between the steps of noise tells nothing of who sent finer values."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators import mixing
from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.noise import grid_step
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    configurations,
)
from tff_hdp.privacy.secure import with_encoding

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
            sent_on = mean.sent_by_one(contribution, zone)
            total = mean.zero(sent_on[0]) if total is None else total
            total = mean.add(total, *sent_on)
    return mean.outputs(state, total)[0]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_values_without_noise_do_not_show_between_the_steps(plan):
    """Modulo the noise's steps a sum is uniform, whatever the others sent.

    Of n numbers with uniform phases the mean phase has length sqrt(1 / n) or so, and
    beyond 5 / sqrt(n) with probability exp(-25).
    """
    step = plan.released_sensitivities[0] / S * grid_step(S)
    phases = np.exp(2j * np.pi * released(plan, SENT) / step)
    assert np.abs(phases.mean()) < 5 / np.sqrt(SIZE)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_hiding_that_costs_next_to_no_noise(plan):
    """At most a 256th of the variance: found within 4.5 standard errors."""
    found = released(plan, 0.0).std()
    expected = plan.released_sensitivities[0]
    assert found == pytest.approx(expected, rel=4.5 / np.sqrt(2 * SIZE))


def phase_length(plan, absent=(), *, level=0):
    """1 where a node's output lies on the grid of one party's noise, else near 0."""
    output = outputs(plan, 0.0, absent=absent)[level][0].numpy().astype(np.float64)
    step = plan.released_sensitivities[0] / S * grid_step(S)
    return np.abs(np.exp(2j * np.pi * output / step).mean())


@pytest.mark.parametrize("absent", [(), ((0, 1),)], ids=["both came", "one came"])
def test_whether_sums_are_smoothed_tells_not_who_came(absent):
    """A client without noise of its own may hide whether it takes part."""
    assert phase_length(PLANS["clients"], absent) < 5 / SIZE**0.5


LDP = {
    "all of few": NoisePlan(
        zone_sizes=(2, 2), noising_clients=(2, 2), client_noise_multiplier=1.0, **COMMON
    ),
    "few of many": NoisePlan(
        zone_sizes=(10_000,) * 2,
        noising_clients=(10_000,) * 2,
        client_noise_multiplier=0.154,
        **COMMON | {"sampling": PoissonSampling((2e-4,) * 2)},
    ),
    "a fixed number of many": NoisePlan(
        zone_sizes=(6000,),
        noising_clients=(6000,),
        client_noise_multiplier=0.154,
        secure_aggregation=True,
        **COMMON | {"sampling": FixedSizeSampling((100,))},
    ),
}


@pytest.mark.parametrize("plan", LDP.values(), ids=LDP)
def test_noise_of_all_clients_comes_as_it_was_drawn(plan):
    """Nothing is added, however few come: all of it lies on one grid."""
    absent = {(i, j) for i, n in enumerate(plan.zone_sizes) for j in range(3, n)}
    found = outputs(plan, 0.0, absent=absent)[-1][0].numpy().astype(np.float64)
    steps = found / (plan.released_units[0] * grid_step(plan.client_noise.stddev))
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
    came = sum(min(n, 3) for n in plan.zone_sizes)
    expected = plan.client_noise.stddev * np.sqrt(came) * plan.released_units[0]
    assert found.std() == pytest.approx(expected, rel=4.5 / np.sqrt(2 * SIZE))


def test_noise_finer_than_the_clients_grid_is_not_shown_between_its_steps():
    """What a zone adds counts in the account, so nobody may read it off."""
    fine = 0.4 * grid_step(S)
    plan = NoisePlan(
        zone_sizes=(2,),
        noising_clients=(2,),
        client_noise_multiplier=1.0,
        zone_noise_multipliers=(fine,),
        **COMMON,
    )
    assert phase_length(plan) < 5 / SIZE**0.5
    # In which a client moves a sixth of what it does in its zone.
    above = NoisePlan(
        zone_sizes=(3, 3),
        zone_noise_multipliers=(1.0, 1.0),
        upper_levels=(Level((0, 0), (fine,)),),
        server_noise_multiplier=1.0,
        **COMMON,
    )
    assert phase_length(above, level=1) < 5 / SIZE**0.5


def test_zones_of_unlike_weights_do_not_show_above_them():
    """A bounded mean scales each zone's grid by what its clients weigh."""
    plan = NoisePlan(
        zone_sizes=(2, 2),
        noising_clients=(2, 2),
        client_noise_multiplier=1.0,
        upper_levels=(Level((0, 0), (0.0,)),),
        estimator="bounded",
        **COMMON | {"sampling": PoissonSampling((0.5, 0.5))},
    )
    step = plan.released_units[0] * grid_step(plan.client_noise.stddev)
    for (output,) in outputs(plan, 0.0, absent=((1, 1),))[1:]:
        phases = np.exp(2j * np.pi * output.numpy().astype(np.float64) / step)
        assert np.abs(phases.mean()) < 5 / SIZE**0.5


# Ten zones of 50 clients, of whom some ten come.
TEN = configurations.c1(
    zone_sizes=(50,) * 10,
    sampling=PoissonSampling((0.2,) * 10),
    noise_multiplier=1.0,
    secure_aggregation=True,
)


def test_the_release_hangs_on_the_sum_of_all_noised_records_alone():
    """And not on how it came about, though float32 rounds every part of it."""
    mean = ZonedMean(TEN, tf.TensorSpec([SIZE], tf.float32))
    step, rng = grid_step(TEN.client_noise.stddev), np.random.default_rng(0)
    parts = np.rint(rng.normal(0, 32 * 10**0.5, (10, SIZE)))
    moved = np.rint(rng.normal(0, 32 * 10**0.5, SIZE))
    assert_same_release(
        mean,
        *({"record": split * step} for split in splits(parts, moved)),
    )


def test_so_it_does_in_fixed_point():
    mean = SecureZonedMean(
        with_encoding(TEN, size=SIZE, bits=30), tf.TensorSpec([SIZE], tf.float32)
    )
    stddev = TEN.client_noise.stddev / mean.plan.encoding.step * 10**0.5
    rng = np.random.default_rng(0)
    parts = np.rint(rng.normal(0, stddev, (10, SIZE)))
    moved = np.rint(rng.normal(0, stddev, SIZE))
    # The last coordinate is the weight.
    padded = (np.pad(each, [(0, 0), (0, 1)]) for each in splits(parts, moved))
    assert_same_release(
        mean,
        *(
            {"vectors": p.astype(np.int64) % mean.modulus, "left_out": [False] * 10}
            for p in padded
        ),
    )


def splits(parts, moved):
    """Two ways to make up one sum."""
    other = parts.copy()
    other[0] += moved
    other[1] -= moved
    return parts, other


def assert_same_release(mean, *totals):
    state = mean.initial_state()
    profile = collections.OrderedDict(
        weight=tf.constant(1.0), zone=tf.constant(0), carries_noise=tf.constant(True)
    )
    one = mean.contribution(mean.client_state(state), tf.zeros([SIZE]), profile)
    one, _ = mean.sent_by_one(one, 0)
    found = []
    for total in totals:
        whole = mean.zero(one)
        for name, value in total.items():
            like = whole.get(name, tf.constant(value))
            whole[name] = tf.constant(value, like.dtype)
        if mean.in_fixed_point:
            whole["saturated"] = tf.constant(0)
        found.append(mean.outputs(state, whole)[0][-1][0].numpy())
    assert found[0].dtype == np.float32
    np.testing.assert_array_equal(*found)


def test_sums_of_clients_that_float32_rounds_are_hidden():
    """A hundred thousand of them come to more steps than float32 tells apart."""

    def step(clients):
        plan = NoisePlan(
            zone_sizes=(clients,) * 2,
            noising_clients=(clients,) * 2,
            client_noise_multiplier=0.154,
            clipping=Clipping(clip_norm=1.0),
            sampling=PoissonSampling((1e-3,) * 2),
        )
        return mixing.hidden_step(plan, 0)

    assert step(1_000) == 0.0
    assert step(100_000) > 0.0
