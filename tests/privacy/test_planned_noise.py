"""A party's noise as one value, and plans that differ in it alone."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError, TooLittleNoiseError
from tff_hdp.privacy import Clipping, FullParticipation, Level, NoisePlan
from tff_hdp.privacy.planned_noise import PartyNoise

S = 0.5
PLAN = NoisePlan(
    zone_sizes=(4, 6, 5),
    sampling=FullParticipation(),
    client_noise_multiplier=0.25,
    noising_clients=(1, 0, 5),
    zone_noise_multipliers=(1.0, 0.0, 2.0),
    server_noise_multiplier=3.0,
    upper_levels=(Level((0, 0, 1), (0.0, 4.0)),),
    clipping=Clipping(clip_norm=S),
)
multipliers = st.floats(1e-6, 1e6)


@given(multipliers, multipliers, st.floats(1e-3, 1e3))
def test_noise_is_its_multiplier_times_the_sensitivity(z, sensitivity, factor):
    noise = PartyNoise(z, sensitivity)
    assert noise
    assert noise.stddev == pytest.approx(z * sensitivity)
    # Of the value times a factor, over what a client then moves it by.
    assert noise.variance(factor) == pytest.approx(
        (factor * noise.stddev / sensitivity) ** 2
    )
    assert noise.in_steps(factor) * factor == pytest.approx(noise.stddev)
    assert noise.event.noise_multiplier == z


def test_no_noise_is_none():
    none = PartyNoise(0.0, S)
    assert not none
    assert (none.stddev, none.variance(), none.in_steps(0.1)) == (0.0, 0.0, 0.0)
    none.check_at_least("z", 10.0, "more")


def test_too_little_noise_for_a_grid_is_refused_and_named():
    PartyNoise(2.0, S).check_at_least("z", 2.0, "more")
    with pytest.raises(TooLittleNoiseError, match=r"z is 1\.9; allowed: more"):
        PartyNoise(1.9, S).check_at_least("z", 2.0, "more")


def test_every_party_has_its_own():
    assert PLAN.client_noise == PartyNoise(0.25, S)
    assert [
        [noise.noise_multiplier for noise in level] for level in PLAN.node_noise
    ] == [
        *([1.0, 0.0, 2.0], [0.0, 4.0], [3.0]),
    ]
    assert PLAN.zone_noise == PLAN.node_noise[0]
    assert PLAN.server_noise == PLAN.node_noise[-1][0]
    assert {noise.sensitivity for nodes in PLAN.node_noise for noise in nodes} == {S}
    assert PLAN.most_noise == PartyNoise(4.0, S)
    named = {
        name: noise.noise_multiplier for name, noise in PLAN.noise_by_field.items()
    }
    assert list(named.items()) == [
        ("client_noise_multiplier", 0.25),
        ("zone_noise_multipliers[0]", 1.0),
        ("zone_noise_multipliers[1]", 0.0),
        ("zone_noise_multipliers[2]", 2.0),
        ("server_noise_multiplier", 3.0),
    ]


@pytest.mark.parametrize("clients", [0.0, 7.0])
def test_a_client_that_carries_noise_may_add_the_most(clients):
    plan = PLAN.with_client_noise(clients)
    assert plan.most_noise.noise_multiplier == max(4.0, clients)
    assert plan.noise_carriers == ((1, 0, 5) if clients else (0, 0, 0))


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        (PLAN.with_client_noise(9.0), {"client_noise_multiplier": 9.0}),
        (PLAN.with_zone_noise(9.0), {"zone_noise_multipliers": (9.0, 9.0, 9.0)}),
        (PLAN.with_noise_at(1, 2, 9.0), {"zone_noise_multipliers": (1.0, 0.0, 9.0)}),
        (
            PLAN.with_noise_at(2, 0, 9.0),
            {"upper_levels": (Level((0, 0, 1), (9.0, 4.0)),)},
        ),
        (PLAN.with_noise_at(3, 0, 9.0), {"server_noise_multiplier": 9.0}),
        (PLAN.without_server_noise(), {"server_noise_multiplier": 0.0}),
    ],
)
def test_other_noise_is_all_that_changes(changed, fields):
    assert changed == dataclasses.replace(PLAN, **fields)
    assert changed != PLAN


@pytest.mark.parametrize("level", [-1, 0, 4])
def test_a_level_without_nodes_has_no_noise(level):
    """Level 0 was the server's, and -1 that of the level beneath it."""
    for ask in (PLAN.nodes_at, lambda at: PLAN.with_noise_at(at, 0, 7.0)):
        with pytest.raises(ArgumentError, match=f"level is {level}; allowed: 1..3"):
            ask(level)


def test_what_is_known_of_noise_is_of_the_plan_that_is_asked():
    """It is kept, and must not go on to a plan made from this one."""
    before = PLAN.node_noise, PLAN.client_noise, PLAN.server_noise
    other = dataclasses.replace(PLAN, clipping=Clipping(clip_norm=2 * S))
    assert other.client_noise == PartyNoise(0.25, 2 * S)
    assert other.server_noise.stddev == 2 * PLAN.server_noise.stddev
    assert not PLAN.without_noise().is_noisy
    assert (PLAN.node_noise, PLAN.client_noise, PLAN.server_noise) == before
    assert math.isclose(PLAN.server_noise.stddev, 3.0 * S)
