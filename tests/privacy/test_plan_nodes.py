"""What a plan says of its nodes and of their noise."""

import dataclasses
import math

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
)


def plan(**options):
    own = {"zone_sizes": (10, 20, 30), "sampling": PoissonSampling((0.2,) * 3)}
    return NoisePlan(**{**own, **options})


def test_a_zones_nodes_are_followed_up_to_the_server():
    tree = plan(
        zone_sizes=(10,) * 5,
        sampling=PoissonSampling((0.2,) * 5),
        upper_levels=(
            Level((0, 2, 1, 0, 2), (0.0,) * 3),
            Level((1, 0, 1), (0.0,) * 2),
        ),
    )
    assert tree.server_level == 4
    assert [tree.nodes_at(level) for level in (1, 2, 3, 4)] == [
        [0, 1, 2, 3, 4],
        [0, 2, 1, 0, 2],
        [1, 1, 0, 1, 1],
        [0, 0, 0, 0, 0],
    ]
    for level in (-1, 0, 5):
        with pytest.raises(ArgumentError, match=f"level is {level}; allowed: 1..4"):
            tree.nodes_at(level)


def test_who_noises_what_is_told_of_a_zone_and_of_all():
    tree = plan(
        zone_sizes=(10,) * 4,
        sampling=PoissonSampling((0.2,) * 4),
        zone_noise_multipliers=(0.0, 2.0, 0.0, 0.0),
        upper_levels=(Level((0, 0, 1, 2), (0.0, 3.0, 0.0)),),
        server_noise_multiplier=1.0,
    )
    # Zone 1 by its own node, zone 2 by the one above, all by the server at last.
    assert [[tree.noised_above(j, level) for j in range(4)] for level in (1, 2, 3)] == [
        [False, True, False, False],
        [False, True, True, False],
        [True] * 4,
    ]
    assert tree.super_nodes_add_noise and tree.is_noisy_below_server
    only_server = tree.with_node_noise([(0.0,) * 4, (0.0,) * 3, (1.0,)])
    assert only_server.is_noisy and not only_server.is_noisy_below_server
    assert not only_server.super_nodes_add_noise
    assert not tree.without_noise().is_noisy


def test_the_sums_share_and_the_counts_make_up_what_the_server_shows():
    adaptive = plan(clipping=Clipping(kind="adaptive"), server_noise_multiplier=0.4)
    z, count = adaptive.server_noise_multiplier, adaptive.count_stddev
    z_sum = (z**-2 - (2 * count) ** -2) ** -0.5
    assert adaptive.share_of_sum == pytest.approx((z / z_sum) ** 2, rel=1e-12)
    assert 0.0 < adaptive.share_of_sum < 1.0
    much = plan(clipping=Clipping(kind="adaptive"), server_noise_multiplier=2 * count)
    assert much.share_of_sum == 0.0


@pytest.mark.parametrize("clients", [9, 157, 277, 314])
def test_a_sum_that_may_show_anything_has_a_share(clients):
    """At an ulp less than the count's; it was 0 there, by which z was divided."""
    adaptive = NoisePlan(
        zone_sizes=(clients,),
        sampling=FullParticipation(),
        clipping=Clipping(kind="adaptive"),
        server_noise_multiplier=clients / 10,
    )
    least = 2 * adaptive.count_stddev
    below = dataclasses.replace(
        adaptive, server_noise_multiplier=math.nextafter(least, 0.0)
    )
    assert below.share_of_sum > 0.0
    assert (adaptive.share_of_sum > 0.0) == (clients / 10 < least)


def test_numbers_are_drawn_by_clients_nodes_and_who_passes_sums_on():
    plan = NoisePlan(
        zone_sizes=(30, 20),
        sampling=FullParticipation(),
        client_noise_multiplier=1.0,
        noising_clients=(30, 20),
        zone_noise_multipliers=(1.0, 0.0),
        server_noise_multiplier=1.0,
        size=10,
    )
    # Fifty clients, a zone and the server; two zones and the server pass sums on.
    assert plan.drawn_numbers == 10 * (50 + 2 + 3)
