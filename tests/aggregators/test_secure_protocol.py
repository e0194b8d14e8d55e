"""A round's sums by the protocol: exact, or left out, whoever drops out."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.aggregators import secure_protocol
from tff_hdp.aggregators.secure_protocol import Share, protocol_sums
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import PoissonSampling, configurations
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.protocols.secagg import noise

SIZE = 6
MODES = {
    "zone": {"secure_aggregation": True, "min_zone_clients": 3},
    "server": {"secure_server": True},
    "both": {
        "secure_aggregation": True,
        "secure_server": True,
        "min_zone_clients": 3,
    },
}


def plan_of(mode, config="none", zones=3, z=1.0):
    options = {"noise_multiplier": z} if config != "none" else {}
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=(30,) * zones,
        sampling=PoissonSampling((0.2,) * zones),
        **options,
        **MODES[mode],
    )
    return with_encoding(plan, size=SIZE - 1, bits=30)


def shares_of(counts, plan, seed=0):
    rng = np.random.default_rng(seed)
    largest = int(plan.encoding.clip / plan.encoding.step)
    return [
        [Share(rng.integers(-largest, largest, SIZE)) for _ in range(count)]
        for count in counts
    ]


def plain_sums(shares, least):
    return np.array(
        [
            sum((s.vector for s in zone), np.zeros(SIZE, np.int64))
            * (len(zone) >= least)
            for zone in shares
        ]
    )


def run(plan, shares, protocol="bonawitz", **options):
    return protocol_sums(
        plan, shares, protocol=protocol, round_number=3, size=SIZE, **options
    )


@pytest.mark.parametrize("protocol", ["bonawitz", "graph"])
@settings(max_examples=25, deadline=None)
@given(
    mode=st.sampled_from(list(MODES)),
    counts=st.lists(st.integers(0, 7), min_size=3, max_size=3),
    dropped=st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_exactly_the_survivors_sum_or_nothing(protocol, mode, counts, dropped):
    """Also where most of a zone drops out: those who are left start anew."""
    plan = plan_of(mode)
    shares = shares_of(counts, plan)
    found = run(plan, shares, protocol, dropped=dropped)
    expected = plain_sums(shares, plan.min_zone_clients)
    if plan.secure_server:
        expected = expected.sum(axis=0)
    np.testing.assert_array_equal(found.vectors, expected)
    few = [0 < count < plan.min_zone_clients for count in counts]
    assert found.left_out.tolist() == few


@pytest.mark.parametrize("mode", MODES)
def test_parties_that_sign_come_to_the_same(mode):
    """The second zone starts anew: three of its seven are no quorum."""
    plan = plan_of(mode)
    shares = shares_of((5, 3, 2), plan)
    plain, signed = (
        run(plan, shares, dropped=(1, 4, 0), signed=signed) for signed in (False, True)
    )
    np.testing.assert_array_equal(signed.vectors, plain.vectors)
    assert signed.left_out.tolist() == plain.left_out.tolist()
    # Of every party that stays at the least four messages.
    parties = 8 * plan.secure_aggregation + 3 * plan.secure_server
    more = signed.costs["secagg_bytes_up"] - plain.costs["secagg_bytes_up"]
    assert more > parties * 4 * 64


@pytest.mark.parametrize("mode", MODES)
def test_everybody_adds_exactly_sampled_noise_under_the_mask(mode):
    """Clients in zones; super-nodes where the server sees a sum, left out or not."""
    wide = 40
    for config, counts in (("c1", (3, 4, 0)), ("c2", (3, 1, 0))):
        plan = dataclasses.replace(plan_of(mode, config), encoding=None)
        plan = with_encoding(plan, size=wide - 1, bits=30)
        shares = [
            [Share(np.zeros(wide, np.int64), config == "c1") for _ in range(count)]
            for count in counts
        ]
        outputs = [
            protocol_sums(plan, shares, protocol="graph", round_number=n, size=wide)
            for n in range(20)
        ]
        noised = np.stack([o.vectors for o in outputs]) * plan.encoding.step
        assert not noised[..., -1].any()
        noised = noised[..., :-1]
        if plan.secure_server:
            # Seven clients, or three super-nodes.
            variance = 7.0 if config == "c1" else 3.0
            assert noised.std() == pytest.approx(math.sqrt(variance), rel=0.13)
        elif config == "c1":
            for zone, count in enumerate(counts):
                std = noised[:, zone].std()
                assert std == pytest.approx(math.sqrt(count), rel=0.13)
        else:
            # Super-nodes add theirs to what came out.
            assert not noised.any()


def test_noise_is_discrete_gaussian_in_law():
    """Chi-square against the probabilities, on a grid of few steps."""
    plan = plan_of("zone", "c1", zones=1)
    # Few coordinates at a time: rounding many on so coarse a grid is refused.
    size, rounds = 500, 4
    plan = with_encoding(dataclasses.replace(plan, encoding=None), size=size, bits=11)
    sigma = plan.client_noise_multiplier * plan.clipping.clip_norm / plan.encoding.step
    assert 10 < sigma < 20
    shares = [[Share(np.zeros(size + 1, np.int64), carries_noise=True)] * 3]
    found = [
        protocol_sums(
            plan, shares, protocol="bonawitz", round_number=number, size=size + 1
        )
        for number in range(rounds)
    ]
    values = np.concatenate([sums.vectors[0, :-1] for sums in found])
    draws = size * rounds
    support = np.arange(-200, 201)
    single = np.exp(-(support**2) / (2 * sigma**2))
    single /= single.sum()
    law = np.convolve(np.convolve(single, single), single)
    edges = [-25, -10, 0, 10, 25]
    centres = np.arange(-600, 601)
    expected = [p.sum() for p in np.split(law, np.searchsorted(centres, edges))]
    observed = np.bincount(np.digitize(values, edges), minlength=6)
    chi2 = (
        (observed - draws * np.array(expected)) ** 2 / (draws * np.array(expected))
    ).sum()
    assert chi2 < 25.7  # 99.99 % of chi-square with 5 degrees of freedom
    assert noise.sum_gap(sigma, 3) < 1e-300


def test_drop_outs_cost_and_costs_add_up():
    plan = plan_of("both")
    shares = shares_of((6, 6, 6), plan)
    calm = run(plan, shares).costs
    rough = run(plan, shares, dropped=(2, 2, 2)).costs
    assert rough["secagg_bytes_up"] > calm["secagg_bytes_up"]
    assert rough["secagg_client_bytes"] > calm["secagg_client_bytes"]
    for costs in (calm, rough):
        assert 0 < costs["secagg_seconds"] <= costs["secagg_total_seconds"]


@pytest.mark.parametrize(("dropped", "attempts"), [(2, 1), (3, 2)])
def test_more_drop_outs_than_a_sparse_graph_bears_have_it_drawn_anew(
    monkeypatch, dropped, attempts
):
    """Else one colluder among those left may be all that joins two of them."""
    run_round, asked = secure_protocol.run_round, []

    def counted(inputs, terms, **options):
        asked.append((len(inputs), terms.min_survivors, options["degree"]))
        return run_round(inputs, terms, **options)

    monkeypatch.setattr(secure_protocol, "run_round", counted)
    plan = plan_of("zone", zones=1)
    shares = shares_of((10 - dropped,), plan)
    found = run(plan, shares, "graph", dropped=(dropped,))
    np.testing.assert_array_equal(found.vectors, plain_sums(shares, 3))
    assert asked == [(10, 8, 4), (7, 6, 4)][:attempts]


def test_nothing_is_run_where_nobody_came():
    found = run(plan_of("zone"), [[], [], []])
    assert not found.vectors.any()
    assert not found.left_out.any()
    assert found.costs["secagg_bytes_up"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_who_is_of_no_zone_makes_none_large_enough_to_be_shown(mode):
    """A third party beside two, of whom the sum would be shown of three."""
    plan = plan_of(mode, zones=2)
    shares = shares_of((2, 3), plan)
    expected = plain_sums(shares, plan.min_zone_clients)
    shares[0].append(Share(np.zeros(SIZE, np.int64), counted=False))
    found = run(plan, shares)
    if plan.secure_server:
        expected = expected.sum(axis=0)
    np.testing.assert_array_equal(found.vectors, expected)
    assert found.left_out.tolist() == [plan.secure_aggregation, False]


def test_plans_that_ignore_small_zones_are_refused():
    plan = dataclasses.replace(plan_of("zone"), min_zone_clients=1)
    with pytest.raises(ValueError, match=r"min_zone_clients is 1; .* at least 2"):
        run(plan, [[], [], []])


def test_a_sum_that_failed_is_tried_as_another_attempt(monkeypatch):
    """Who answers both must know which is which, and what it has helped to unmask."""
    run_round, asked = secure_protocol.run_round, []

    def noted(inputs, terms, **options):
        asked.append((terms.session, terms.attempt, options["unmasked"]))
        return run_round(inputs, terms, **options)

    monkeypatch.setattr(secure_protocol, "run_round", noted)
    plan = plan_of("zone", zones=1)
    run(plan, shares_of((7,), plan), "graph", dropped=(3,))
    assert [terms for *terms, _ in asked] == [["zone 0", 0], ["zone 0", 1]]
    assert asked[0][2] is asked[1][2] is not None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda z: z[:1], "zones is of 1; allowed: 3"),
        (lambda z: [*z, []], "zones is of 4; allowed: 3"),
        # They wrapped around, and nobody was told.
        (lambda z: [[Share(np.full(SIZE, 2**28))] * 3, [], []], r"^sum of zones\[0\] "),
        (
            lambda z: [[Share(np.full(SIZE, np.nan))] * 3, [], []],
            r"\[0\].vector is",
        ),
        (
            lambda z: [[Share(np.full(SIZE, 2**40))] * 3, [], []],
            r"\[0\].vector is",
        ),
        (lambda z: [[Share(np.zeros(2, int))] * 3, [], []], r"\[0\].vector is"),
    ],
)
def test_what_is_no_sum_of_the_plans_is_refused(change, name):
    plan = plan_of("zone")
    shares = shares_of((5, 3, 2), plan)
    with pytest.raises(ArgumentError, match=name):
        run(plan, change(shares))


@pytest.mark.parametrize(
    ("dropped", "name"),
    [
        *(((0, 0), "dropped"), ((0, -1), "dropped")),
        *(((0, 0, -1), r"dropped\[2\]"), ((0, 0, np.nan), r"dropped\[2\]")),
    ],
)
def test_who_dropped_out_is_told_of_every_zone(dropped, name):
    plan = plan_of("zone")
    with pytest.raises(ArgumentError, match=rf"^{name} is"):
        run(plan, shares_of((5, 3, 2), plan), dropped=dropped)


def test_the_sum_over_zones_may_not_wrap_around_either():
    zone = [Share(np.full(SIZE, 2**27))] * 3
    for mode in ("both", "server"):
        with pytest.raises(ArgumentError, match=r"^sum of zones is int64"):
            run(plan_of(mode), [zone] * 3)
    found = run(plan_of("zone"), [zone] * 3)
    np.testing.assert_array_equal(found.vectors, 3 * 2**27)
