"""What an observer holds against what the plan and its account say it holds."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from tff_hdp.attacks.observation import Federation
from tff_hdp.attacks.vantage import Held, Vantage, parse_level
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    ThreatModel,
    account,
    configurations,
)
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.privacy.views import client_kind

SIZE, CLIP, Z = 120_000, 0.5, 1.3
SIZES = (2, 2)
SHARES = {
    "c3": {"beta": 0.5},
    "c5": {"alpha": 0.5},
    "c6": {"beta": 0.5},
    "c7": {"alpha": 0.5, "beta": 0.5},
}
MODES = ("none", *(f"c{i}" for i in range(1, 8)))  # c1, c2, c4: ldp, hdp, cdp


def plan_of(mode, sizes=SIZES, **options):
    given = {"noise_multiplier": Z} if mode != "none" else {}
    return configurations.CONFIGURATIONS[mode](
        zone_sizes=sizes,
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=CLIP),
        **given,
        **SHARES.get(mode, {}),
        **options,
    )


@functools.cache
def updates_of(sizes, size=SIZE):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=size) / 300 for _ in range(n)] for n in sizes]


def clipped(update, plan):
    if not plan.is_noisy:
        return update
    return update * min(1.0, CLIP / np.linalg.norm(update))


@functools.cache
def round_of(plan, size=SIZE):
    shapes = [[size // 2 // 100, 100], [size - size // 2]]
    return Federation(plan, shapes).round(updates_of(plan.zone_sizes, size))


def expected(vantage, size=SIZE):
    """The sum of clipped updates that the observer does not know, written out."""
    plan, given = vantage.plan, updates_of(vantage.plan.zone_sizes, size)
    if vantage.sees_clients:
        return clipped(given[vantage.zone][vantage.index], plan)
    return sum(
        clipped(update, plan)
        for zone in vantage.seen_zones
        for index, update in enumerate(given[zone])
        if (zone, index) not in vantage.known
    )


def vantages(plan):
    for level in (0, *range(1, len(plan.upper_levels) + 3), "outside"):
        yield Vantage(plan=plan, level=level)
    yield Vantage(plan=plan, level=1, elected=True)
    if not plan.upper_levels and not plan.secure_server:
        yield Vantage(plan=plan, level="outside", colluding_super_nodes=1)
    yield Vantage(plan=plan, level=0, zone=1, index=1)


PLANS = {
    **{mode: plan_of(mode) for mode in MODES},
    **{
        f"{mode} secure": plan_of(mode, secure_aggregation=True, secure_server=True)
        for mode in ("none", "cdp", "ldp", "c7")
    },
    "deeper": plan_of(
        "c7",
        (2, 2, 1, 3),
        upper_levels=(Level((0, 0, 1, 1), (0.7, 0.0)), Level((0, 0), (0.9,))),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_mean_and_deviation_are_those_of_plan_and_view(name):
    plan = PLANS[name]
    for vantage in vantages(plan):
        noise = round_of(plan).seen_by(vantage) - expected(vantage)
        nu = vantage.noise_multiplier
        if name == "c5" and vantage.own is not None:
            # The account counts the observer as a noising client, to be safe.
            assert noise.std() >= 0.99 * nu * CLIP
        elif nu == 0:
            assert np.abs(noise).max() < 1e-5
        else:
            # Five standard errors of a deviation of 120,000 draws.
            assert noise.std() == pytest.approx(nu * CLIP, rel=0.01), vantage
        assert abs(noise.mean()) < 6 * max(noise.std(), 1e-9) / np.sqrt(SIZE)


@pytest.mark.parametrize("mode", ["hdp", "ldp"])
def test_leaders_that_pool_subtract_all_their_parts(mode):
    """Two of a zone of four, elected in turn: two records and their noise are left."""
    size = 40_000
    plan = plan_of(mode, (4, 2), secure_aggregation=True, secure_server=True)
    vantage = Vantage(plan=plan, level=1, elected=True, fellow_leaders=1)
    assert vantage.unknown_clients == 2 and vantage.known == [(0, 3), (0, 1)]
    nu = {"hdp": 0, "ldp": 2**0.5 * Z}[mode]
    assert vantage.noise_multiplier == pytest.approx(nu)
    noise = round_of(plan, size).seen_by(vantage) - expected(vantage, size)
    # Six standard errors of a deviation of 40,000 draws.
    assert noise.std() == pytest.approx(nu * CLIP, rel=0.022, abs=1e-5)
    for options in ({"elected": False}, {"fellow_leaders": 3}):
        with pytest.raises(ArgumentError, match="fellow_leaders"):
            dataclasses.replace(vantage, **options)
    # While others lead they subtract as much from the model.
    away = vantage.away
    assert away.unknown_clients == 4 and away.known == vantage.known
    nu = {"hdp": 2**0.5 * Z, "ldp": 2 * Z}[mode]
    assert away.noise_multiplier == pytest.approx(nu)
    noise = round_of(plan, size).seen_by(away) - expected(away, size)
    assert noise.std() == pytest.approx(nu * CLIP, rel=0.022)
    for options in (
        {"level": "outside"},
        {"level": 1},
        {"plan": plan_of(mode, (1, 5))},
    ):
        with pytest.raises(ArgumentError, match="same_zone is True"):
            dataclasses.replace(away, **{"fellow_leaders": 0, **options})


@pytest.mark.parametrize(("led", "fellows"), [(0, 0), (3, 0), (2, 1), (20, 0)])
def test_a_run_of_which_some_rounds_are_led(led, fellows):
    """Zones of four: m of a led sum noise it, and 4 + m of what comes of the others."""
    plan = plan_of("ldp", (4, 4), secure_aggregation=True, secure_server=True)
    vantage = Vantage(plan=plan, level=1, elected=True, fellow_leaders=fellows)
    held, m = Held.by_leading(vantage, led, 20), 3 - fellows
    mu = (led / m + (20 - led) / (4 + m)) ** 0.5 / Z
    assert held.bound.mu == pytest.approx(mu)
    assert held.noise_multiplier == pytest.approx(1 / mu)
    assert held.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1 / mu, 1e-5), rel=1e-3)
    assert (held.rounds, held.neighbours) == (20, "zero_out")
    with pytest.raises(ArgumentError, match=r"led is 21; allowed: 0\.\.20"):
        Held.by_leading(vantage, 21, 20)
    with pytest.raises(ArgumentError, match="elected is False"):
        Held.by_leading(Vantage(plan=plan, level=1), 1, 20)


@pytest.mark.parametrize("mode", MODES)
def test_who_always_or_never_leads_is_an_observer_of_the_account(mode):
    """Finite precision comes on top, and every fellow is taken for one who noises."""
    plan, delta = plan_of(mode, (3, 3), secure_aggregation=True), 1e-5
    vantage = Vantage(plan=plan, level=1, elected=True)
    kind = client_kind(plan, 0, plan.noising_clients[0] > 0)
    fellow = "fellow_client" if plan.clients_carry_noise else "released_model"
    elected = ThreatModel(elected_super_nodes=True)
    for led, name, threat in ((7, "super_node", elected), (0, fellow, ThreatModel())):
        rows = account(plan, 7, delta, ("pld",), threat=threat)
        (row,) = (r for r in rows if (r.observer, r.client_kind) == (name, kind))
        found = Held.by_leading(vantage, led, 7).epsilon(delta)
        if mode == "c5" and led == 0:
            assert found < row.epsilon_pld
        else:
            assert found == pytest.approx(row.epsilon_pld, rel=1e-5)


def test_rounds_without_a_guarantee_leave_none():
    """Led once under HDP, the sum is bare, whatever noise the models have."""
    plan = plan_of("hdp", (3, 3), secure_aggregation=True)
    held = Held.by_leading(Vantage(plan=plan, level=1, elected=True), 1, 20)
    assert held.epsilon(1e-5) is None and held.noise_multiplier == 0
    assert math.isinf(held.bound.mu)


@pytest.mark.parametrize("mode", ["none", "cdp", "hdp", "ldp"])
def test_own_part_is_subtracted_exactly(mode):
    """Own noise included: what is left does not depend on what the observer sent."""
    plan = plan_of(mode)
    seen, vantage = round_of(plan), Vantage(plan=plan, level=0)
    zone, index = vantage.own
    own = seen.contributions[zone][index]
    others = seen.outputs[-1][0] / seen.units[0] - seen.seen_by(vantage)
    np.testing.assert_allclose(others, own, atol=1e-6)
    if mode == "ldp":
        assert own.std() > 0.9 * Z * CLIP


def test_an_observer_of_a_larger_zone_counts_by_as_much_less():
    """Zones of two and four that weigh the same, seen by the last of the second.

    A record of it counts half of one of the victim's zone, the observer's own too.
    """
    size, sizes = 2000, (2, 4)
    plan = plan_of("none", sizes, mixing="equal")
    first, second = updates_of(sizes, size)
    found = round_of(plan, size).seen_by(Vantage(plan=plan, level=0))
    expected = sum(first) + sum(second[:-1]) / 2
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["none", "hdp", "ldp"])
def test_fixed_point_sums(mode):
    size = 20_000
    plan = plan_of(mode, secure_aggregation=True, secure_server=True)
    largest = CLIP if mode == "none" else None
    plan = with_encoding(plan, size=size, largest=largest)
    for vantage in vantages(plan):
        noise = round_of(plan, size).seen_by(vantage) - expected(vantage, size)
        if vantage.noise_multiplier == 0:
            assert np.abs(noise).max() < 1e-5
        else:
            nu = vantage.noise_multiplier * CLIP
            assert noise.std() == pytest.approx(nu, rel=0.03)


@pytest.mark.parametrize(
    ("level", "elected", "secure", "m", "nu"),
    [
        (1, False, False, 1, {"ldp": 1, "hdp": 0, "cdp": 0}),
        (1, False, True, 2, {"ldp": 2**0.5, "hdp": 0, "cdp": 0}),
        (1, True, True, 1, {"ldp": 1, "hdp": 0, "cdp": 0}),
        (2, False, False, 2, {"ldp": 2**0.5, "hdp": 1, "cdp": 0}),
        (2, False, True, 4, {"ldp": 2, "hdp": 2**0.5, "cdp": 0}),
        (0, False, False, 3, {"ldp": 3**0.5, "hdp": 2**0.5, "cdp": 1}),
        ("outside", False, False, 4, {"ldp": 2, "hdp": 2**0.5, "cdp": 1}),
    ],
)
def test_cells_of_two_zones_and_four_clients(level, elected, secure, m, nu):
    for mode, multiplier in nu.items():
        plan = plan_of(mode, secure_aggregation=secure, secure_server=secure)
        vantage = Vantage(plan=plan, level=level, elected=elected)
        assert vantage.unknown_clients == m
        assert vantage.noise_multiplier == pytest.approx(multiplier * Z)


@pytest.mark.parametrize(
    ("multiplier", "rounds"), [(1e-3, 1), (1e3, 2 * 10**6), (1.0, 1)]
)
def test_epsilon_is_one_that_holds_though_pld_has_none(multiplier, rounds):
    """At most a tenth above the exact one of Balle and Wang (2018)."""
    plan = dataclasses.replace(plan_of("ldp"), client_noise_multiplier=multiplier)
    vantage = Vantage(plan=plan, level=1)
    mu, delta = rounds**0.5 / multiplier, 1e-5

    def excess(epsilon):
        first = scipy.stats.norm.cdf(mu / 2 - epsilon / mu)
        log_tail = scipy.stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return first - np.exp(epsilon + log_tail) - delta

    exact = scipy.optimize.brentq(excess, 0.0, mu**2 / 2 + 10 * mu)
    assert exact <= Held.of(vantage, rounds).epsilon(delta) <= 1.1 * exact


def test_no_noise_is_no_guarantee_at_any_number_of_rounds():
    vantage = Vantage(plan=plan_of("none"), level=1)
    assert Held.of(vantage, 1).epsilon(1e-5) is None
    assert Held.of(vantage, 2 * 10**6).epsilon(1e-5) is None


def test_whoever_sees_nothing_of_the_victim_is_refused():
    """It passed for one who sees all, and was divided by the weight of the zone."""
    plan = plan_of("hdp", mixing=(0.0, 1.0))
    for level in (0, "outside"):
        with pytest.raises(ArgumentError, match=r"^plan.mixing_weights\[0\] is 0.0; "):
            Vantage(plan=plan, level=level)
        Vantage(plan=plan, level=level, zone=1)
    seen = round_of(plan, 2000)
    with pytest.raises(ArgumentError, match="for an observer of outputs"):
        seen.seen_by(Vantage(plan=plan, level=2))
    for elected in (False, True):
        found = seen.seen_by(Vantage(plan=plan, level=1, elected=elected))
        assert np.isfinite(found).all()


def test_observers_that_are_not_there_are_refused():
    plan = plan_of("hdp")
    for options in (
        {"level": 3},
        {"level": 2, "elected": True},
        {"level": 0, "zone": 2},
        {"level": "outside", "colluding_super_nodes": 2},
        {"level": 0, "index": 2},
        {"level": 1, "elected": True, "plan": plan_of("hdp", (1, 2))},
        {"level": 0, "plan": plan_of("hdp", (1,))},
    ):
        with pytest.raises(ArgumentError):
            Vantage(**{"plan": plan, **options})
    with pytest.raises(ArgumentError, match="level is side"):
        parse_level("side")
    with pytest.raises(ArgumentError, match=r"level is 1{9}"):
        parse_level("1" * 5000)
    with pytest.raises(ArgumentError, match="updates"):
        Federation(plan, [[3]]).round([[np.zeros(3)], []])
