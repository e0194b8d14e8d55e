"""Who is protected from whom, and by how much noise."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from tests.thinning import thinned
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    configurations,
    worst,
)
from tff_hdp.privacy.composition import epsilon_by_pld
from tff_hdp.privacy.sampled import FixedSizeGaussian
from tff_hdp.privacy.table import code_of
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.views import observers as observers_of
from tff_hdp.privacy.views import view

T, DELTA = 200, 1e-5
CIFAR = {"zone_sizes": (50,) * 10, "sampling": PoissonSampling((0.2,) * 10)}
RDP = ("rdp",)


def make(name, *, z=1.0, **options):
    return configurations.CONFIGURATIONS[name](noise_multiplier=z, **CIFAR | options)


def test_none_where_nothing_protects():
    for name, observers in {
        "hdp": {"super_node"},
        "cdp": {"super_node", "aggregator"},
        "ldp": set(),
    }.items():
        rows = account(make(name), T, DELTA)
        unprotected = {r.observer for r in rows if r.epsilon_rdp is None}
        assert unprotected == observers
        for r in rows:
            if r.observer in observers:
                assert r.epsilon_pld is None
                assert r.noise_multiplier is None
                assert "no guarantee" in r.assumptions


def test_trusting_clients_behind_noising_ones_have_a_guarantee_only_in_large_zones(row):
    small = account(make("c5", alpha=0.5), T, DELTA)
    seen = row(small, "aggregator", "trusting")
    assert seen.epsilon_rdp is None and seen.epsilon_pld is None
    assert "no noising participant" in seen.assumptions
    large = {"zone_sizes": (500,), "sampling": PoissonSampling((0.2,))}
    seen = row(
        account(make("c5", alpha=0.5, **large), T, DELTA),
        "aggregator",
        "trusting",
    )
    assert seen.noise_multiplier == pytest.approx(math.sqrt(50))
    assert 1.17 < seen.epsilon_pld < seen.epsilon_rdp < 2.5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"zone_noise_multipliers": (1.0,) * 10},
        # All of the last zone come, so the noise of that one does not vary.
        {"sampling": PoissonSampling((0.2,) * 9 + (1.0,))},
        # Where a client without noise is drawn, one fewer with noise may be.
        {"sampling": FixedSizeSampling((10,) * 10), "noising_clients": (25,) * 10},
        {
            "sampling": FixedSizeSampling((10,) * 10),
            "noising_clients": (25,) * 10,
            "zone_noise_multipliers": (1.0,) * 10,
        },
    ],
)
def test_where_clients_noise_nobody_s_coming_is_hidden(changes):
    """What the aggregator does may then depend on how many came."""
    plan = dataclasses.replace(make("ldp"), **changes)
    rows = account(plan, T, DELTA, RDP)
    assert {r.observer for r in rows} >= {"aggregator", "released_model"}
    assert any("participation revealed" in r.sampling for r in rows)
    assert not any("participation hidden" in r.sampling for r in rows)


@pytest.mark.parametrize("estimator", ["fixed", "bounded"])
@pytest.mark.parametrize("sampled", ["poisson", "fixed", "full"])
@pytest.mark.parametrize(("name", "shares"), [("ldp", {}), ("c5", {"alpha": 0.5})])
def test_the_relation_taken_is_one_that_may_be_asked_for(
    name, shares, sampled, estimator
):
    sampling = {
        "poisson": CIFAR["sampling"],
        "fixed": FixedSizeSampling((10,) * 10),
        "full": FullParticipation(),
    }[sampled]
    plan = make(name, sampling=sampling, estimator=estimator, **shares)
    for r in account(plan, 1, DELTA, ()):
        # Who carries no noise may be taken away, which of everybody cannot be asked.
        if r.client_kind == "ldp" or estimator == "bounded":
            AccountedRound(plan, ThreatModel(neighbours=r.neighbours))


@pytest.mark.parametrize(
    ("noise", "sizes", "fixed", "fellows"),
    [
        ({"server_noise_multiplier": 1.0}, (2, 2), False, []),
        ({"zone_noise_multipliers": (1.0, 0.0)}, (2, 2), False, ["super_node"]),
        (
            {"client_noise_multiplier": 1.0, "noising_clients": (1, 0)},
            (1, 1),
            False,
            ["super_node", "client"],
        ),
        (
            {"client_noise_multiplier": 1.0, "noising_clients": (2,)},
            (2,),
            False,
            ["client"],
        ),
        ({"client_noise_multiplier": 1.0, "noising_clients": (1,)}, (1,), False, []),
        # Whoever is drawn knows that one place fewer is left.
        ({"server_noise_multiplier": 1.0}, (2, 2), True, ["client"]),
    ],
)
def test_whoever_knows_some_of_the_noise_or_the_draw_has_a_row(
    noise, sizes, fixed, fellows
):
    sampling = FixedSizeSampling(sizes) if fixed else FullParticipation()
    plan = NoisePlan(zone_sizes=sizes, sampling=sampling, **noise)
    rows = account(plan, 1, DELTA, RDP)
    found = dict.fromkeys(r.observer for r in rows if r.observer.startswith("fellow_"))
    assert list(found) == [f"fellow_{name}" for name in fellows]


def test_revealed_cohort_costs_amplification(row):
    hidden = row(account(make("hdp"), T, DELTA), "aggregator")
    threat = ThreatModel(cohort_known=True)
    shown = row(account(make("hdp"), T, DELTA, threat=threat), "aggregator")
    assert shown.epsilon_rdp == pytest.approx(55.83, rel=5e-4)
    assert shown.epsilon_rdp > 2 * hidden.epsilon_rdp
    assert shown.neighbours == "zero_out"


def test_a_fellow_who_knows_its_peers_knows_when_the_client_took_part(row):
    """Its delta is the mean, over how often the client came, of Gaussians' deltas."""
    rows = account(make("hdp"), T, DELTA, threat=ThreatModel(peers_known=True))
    fellow, released = row(rows, "fellow_client"), row(rows, "released_model")
    assert "participation revealed" in fellow.sampling
    assert "and which others of its zone do" in fellow.assumptions
    assert "participation hidden" in released.sampling
    z, epsilon = math.sqrt(10), fellow.epsilon_pld
    came = stats.binom(T, 0.2)
    mu = np.sqrt(np.arange(1, T + 1)) / z
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )
    assert came.pmf(np.arange(1, T + 1)) @ delta == pytest.approx(DELTA, rel=0.02)
    assert epsilon > 2 * released.epsilon_pld
    hidden = {r.observer for r in account(make("hdp"), T, DELTA, RDP)}
    assert "fellow_client" not in hidden


def test_colluding_super_nodes_take_their_noise_away(row):
    rows = account(
        make("hdp"), T, DELTA, RDP, threat=ThreatModel(colluding_super_nodes=6)
    )
    assert row(rows, "released_model").noise_multiplier == pytest.approx(2.0)
    assert row(rows, "aggregator").noise_multiplier == pytest.approx(1.0)
    elected = account(
        make("hdp"), T, DELTA, RDP, threat=ThreatModel(elected_super_nodes=True)
    )
    assert row(elected, "released_model").noise_multiplier == pytest.approx(3.0)
    everyone = account(
        make("hdp"), T, DELTA, RDP, threat=ThreatModel(colluding_super_nodes=10)
    )
    assert all(r.epsilon_rdp is None for r in everyone)
    # An LDP client's own noise stays: its super-node's view is all they gain.
    ldp = account(
        make("ldp"), T, DELTA, RDP, threat=ThreatModel(colluding_super_nodes=10)
    )
    assert len({r.epsilon_rdp for r in ldp}) == 1


def test_colluding_clients_subtract_their_noise(row):
    rows = account(make("ldp"), T, DELTA, RDP, threat=ThreatModel(colluding_clients=20))
    aggregator = row(rows, "aggregator")
    assert aggregator.noise_multiplier == pytest.approx(math.sqrt(0.2 * 30))
    alone = account(
        make("ldp"), T, DELTA, RDP, threat=ThreatModel(colluding_clients=499)
    )
    assert len({r.epsilon_rdp for r in alone}) == 1


def test_secure_aggregation_lets_a_zone_protect_its_members(row):
    rows = account(make("ldp", secure_aggregation=True), T, DELTA, RDP)
    assert row(rows, "super_node").epsilon_rdp == pytest.approx(11.659, rel=5e-4)
    plan, threat = (
        make("ldp", secure_aggregation=True),
        ThreatModel(elected_super_nodes=True),
    )
    r = row(account(plan, T, DELTA, RDP, threat=threat), "super_node")
    assert r.noise_multiplier == pytest.approx(math.sqrt(0.2 * 49))


def test_top_up_restores_the_poisson_account(row):
    rows = account(make("ldp", top_up=True), T, DELTA)
    released, aggregator = row(rows, "released_model"), row(rows, "aggregator")
    central = row(account(make("cdp", z=math.sqrt(500)), T, DELTA), "released_model")
    assert released.noise_multiplier == pytest.approx(math.sqrt(500))
    assert released.epsilon_rdp == pytest.approx(central.epsilon_rdp, rel=1e-3)
    assert aggregator.noise_multiplier == pytest.approx(math.sqrt(50))
    assert "trusted to top up" in released.assumptions
    assert row(rows, "super_node").neighbours == "zero_out"


def test_upper_levels_add_their_noise_in_released_units(row):
    plan = NoisePlan(
        **CIFAR,
        zone_noise_multipliers=(1.0,) * 10,
        upper_levels=(Level((0,) * 6 + (1,) * 4, (3.0, 0.0)),),
        server_noise_multiplier=2.0,
    )
    rows = account(plan, T, DELTA, RDP)
    level_2 = [r for r in rows if r.observer == "super_node" and r.level == 2]
    assert {r.noise_multiplier for r in level_2} == {1.0}
    regions = [r for r in rows if r.observer == "aggregator"]
    assert regions[0].noise_multiplier == pytest.approx(math.sqrt(6 + 9))
    assert regions[-1].noise_multiplier == pytest.approx(2.0)
    released = row(rows, "released_model")
    assert released.noise_multiplier == pytest.approx(math.sqrt(10 + 9 + 4))


def test_unequal_zones_have_a_row_each(row):
    plan = NoisePlan(
        zone_sizes=(10, 40),
        sampling=PoissonSampling((0.5, 0.25)),
        zone_noise_multipliers=(1.0, 2.0),
        mixing="equal",
    )
    rows = account(plan, 50, DELTA, RDP)
    assert [r.zone for r in rows if r.observer == "aggregator"] == [0, 1]
    # u = p S / D: 1/2 over 5, 1/2 over 10.
    expected = {0: math.hypot(1.0, 2.0 * 0.5), 1: math.hypot(1.0 * 2, 2.0)}
    for zone, z in expected.items():
        r = row(rows, "released_model", zone=zone)
        assert r.noise_multiplier == pytest.approx(z)
    weakest = worst(rows, "released_model")
    assert weakest.zone == 0


def test_a_zone_of_no_weight_loses_nothing_in_the_release(row):
    plan = NoisePlan(
        zone_sizes=(10, 10),
        sampling=FullParticipation(),
        zone_noise_multipliers=(1.0, 1.0),
        mixing=(0.0, 1.0),
    )
    rows = account(plan, 10, DELTA)
    assert row(rows, "released_model", zone=0).epsilon_rdp == 0.0
    assert row(rows, "aggregator").epsilon_pld > 1.0


@pytest.mark.parametrize(
    ("parents", "left"),
    [
        # What stays of zones' and nodes' variances beside the server's, whoever looks.
        ((0, 0, 1, 1), (2, 1)),
        # The lone zone's node knows one zone's noise and its own; another zone's
        # super-node knows one zone's.
        ((0, 0, 0, 1), (3, 1)),
        ((0, 0, 0, 0), (3, 1)),
    ],
)
def test_a_node_above_other_zones_knows_all_their_noise_and_its_own(parents, left):
    zone, node, server = 1.0, 2.0, 0.5
    plan = NoisePlan(
        zone_sizes=(10,) * 4,
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=1.0),
        zone_noise_multipliers=(zone,) * 4,
        upper_levels=(Level(parents, (node,) * (max(parents) + 1)),),
        server_noise_multiplier=server,
    )
    seen = view(AccountedRound(plan, ThreatModel()), "fellow_super_node", 4, 0, False)
    zones, nodes = left
    expected = zones * zone**2 + nodes * node**2 + server**2
    assert seen.effective_noise == pytest.approx(expected**0.5)


def test_noise_of_nodes_above_zones_alone_has_fellows_too():
    plan = NoisePlan(
        zone_sizes=(10,) * 4,
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=1.0),
        upper_levels=(Level((0, 0, 1, 1), (2.0, 2.0)),),
    )
    assert ("fellow_super_node", 4) in list(observers_of(plan))
    seen = view(AccountedRound(plan, ThreatModel()), "fellow_super_node", 4, 0, False)
    assert seen.effective_noise == pytest.approx(2.0)


def test_who_colludes_knows_what_a_client_of_the_zone_knows(row):
    """With a masking protocol: which others of the zone take part."""
    alone = account(make("hdp"), T, DELTA, RDP, threat=ThreatModel(peers_known=True))
    told = ThreatModel(peers_known=True, colluding_in_zone=1)
    rows = account(make("hdp"), T, DELTA, RDP, threat=told)
    fellow = row(alone, "fellow_client").epsilon_rdp
    for observer in ("aggregator", "released_model", "fellow_super_node"):
        assert row(rows, observer).epsilon_rdp > 2 * row(alone, observer).epsilon_rdp
        assert row(rows, observer).epsilon_rdp >= fellow
    assert row(rows, "released_model").epsilon_rdp == pytest.approx(fellow)


def test_clients_that_collude_are_not_why_there_is_no_guarantee(row):
    told = ThreatModel(peers_known=True, colluding_in_zone=1)
    seen = row(account(make("cdp"), T, DELTA, RDP, threat=told), "aggregator")
    assert seen.assumptions == "no guarantee: no noise is added before this observer"
    rows = account(make("hdp"), T, DELTA, RDP, threat=told)
    (said,) = (
        s for s in row(rows, "aggregator").assumptions.split("; ") if "coll" in s
    )
    assert code_of(said) == "X"


@pytest.mark.parametrize(
    ("noise", "observer", "assumed", "reason"),
    [
        ({"secure_server": True}, "aggregator", {}, "no noise is added before"),
        ({}, "released_model", {"skipped_zones": 1}, "nobody adds noise"),
        ({}, "released_model", {"colluding_super_nodes": 2}, "the super-node sees"),
        ({"noising_clients": (0, 5)}, "super_node", {}, "the super-node sees its zone"),
        ({"noising_clients": (2, 0)}, "super_node", {"colluding_clients": 2}, None),
        ({"noising_clients": (0, 1)}, "fellow_client", {}, None),
        ({"noising_clients": (0, 5)}, "released_model", {"skipped_zones": 1}, None),
    ],
)
def test_a_row_without_a_guarantee_begins_with_the_reason(
    noise, observer, assumed, reason
):
    """What is assumed of the parties is said after it."""
    plan = NoisePlan(
        zone_sizes=(5, 5),
        sampling=FullParticipation(),
        **{"client_noise_multiplier": 1.0, "secure_aggregation": True, **noise},
    )
    rows = account(plan, 1, DELTA, RDP, threat=ThreatModel(**assumed))
    said = worst(rows, observer, "trusting").assumptions
    reason = reason or "all the noise in what the observer sees is known to it, missing"
    assert said.startswith(f"no guarantee: {reason}")
    assert plan.secure_server == ("the sum over all zones only" in said)


@pytest.mark.parametrize("observer", thinned(["aggregator", "released_model"], every=2))
def test_colluding_clients_of_a_zone_leave_fewer_who_may_have_come(observer, row):
    sizes = {"sampling": FixedSizeSampling((10,) * 10), "z": 2.0}
    found = {}
    for colluders in (0, 15):
        told = ThreatModel(colluding_in_zone=colluders)
        rows = account(make("hdp", **sizes), T, DELTA, threat=told)
        of_one = found[colluders] = row(rows, observer)
        seen = FixedSizeGaussian(50, 10, of_one.noise_multiplier, colluders)
        expected, _ = epsilon_by_pld(frozenset([(seen, T)]), DELTA)
        assert of_one.epsilon_pld == pytest.approx(expected, rel=1e-4)
    # As many of them as come are none of the others.
    fewer = {"zone_sizes": (35,) * 10, **sizes}
    most = row(account(make("hdp", **fewer), T, DELTA), observer).epsilon_pld
    assert found[0].epsilon_pld < found[15].epsilon_pld < most


def test_a_fellow_client_knows_its_noise_where_all_super_nodes_collude_too(row):
    plan = make("ldp", secure_aggregation=True)
    told = ThreatModel(colluding_super_nodes=10)
    rows = account(plan, T, DELTA, RDP, threat=told)
    one_less = ThreatModel(colluding_super_nodes=10, colluding_clients=1)
    expected = row(account(plan, T, DELTA, RDP, threat=one_less), "super_node")
    fellow = row(rows, "fellow_client").epsilon_rdp
    assert fellow == pytest.approx(expected.epsilon_rdp)
    assert fellow > row(rows, "super_node").epsilon_rdp


def test_noise_that_may_be_the_fellows_alone_is_no_crash(row):
    plan = NoisePlan(
        zone_sizes=(5, 5),
        sampling=FixedSizeSampling((1, 1)),
        client_noise_multiplier=1.0,
        noising_clients=(5, 0),
    )
    rows = account(plan, 3, DELTA)
    assert row(rows, "fellow_client", "trusting").epsilon_pld is None
    assert row(rows, "released_model", "trusting").epsilon_pld > 0.0
