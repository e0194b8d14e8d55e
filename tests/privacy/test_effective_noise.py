"""The noise that protects a client, against a list of everybody who adds some.

Every cohort is enumerated, and all that an observer may know: other zones' outputs, a
node's of another branch, clients' noise. The Renyi divergence accounted may be no less
than that by the worst of what is known.
"""

import contextlib
import itertools
import math

import numpy as np
import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
)
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.views import observers, view

ORDERS = (1.5, 4.0)


def test_no_observer_is_accounted_as_if_it_knew_less_than_it_may():
    rng = np.random.default_rng(7)
    exact = 0
    for _ in range(250):
        plan, threat = a_case(rng)
        for observer, level in observers(plan):
            for zone, me in clients_of(plan):
                is_noising = carries(plan)[me]
                seen = view(
                    AccountedRound(plan, threat), observer, level, zone, is_noising
                )
                found = np.full(len(ORDERS), 0.0 if seen.sees_nothing else math.inf)
                if seen.mechanism is not None:
                    found = seen.mechanism.rdp(ORDERS)
                least = divergences(plan, threat, observer, level, me)
                case = (plan, threat, observer, level, zone, is_noising)
                assert (found >= least * (1 - 1e-9) - 1e-12).all(), case
                if is_plain(plan, threat) and not observer.startswith("fellow_"):
                    np.testing.assert_allclose(found, least, rtol=1e-9, atol=1e-12)
                    exact += 1
    assert exact > 50


@pytest.mark.parametrize(
    ("sizes", "sampling", "noising"),
    [
        # One of two is drawn more often than one of three.
        ((1, 2, 3), FixedSizeSampling((1, 1, 1)), (1, 1, 1)),
        # Two of three are drawn more often than one.
        ((1, 3, 3), FixedSizeSampling((1, 2, 1)), (1, 2, 2)),
        # One of two that noise is there for certain, two of four are so only often.
        ((1, 2, 4), FixedSizeSampling((1, 1, 2)), (1, 2, 2)),
        # Two that come seldom are worth less or more than one that comes often.
        ((1, 1, 2), PoissonSampling((0.6, 0.6, 0.3)), (1, 1, 2)),
    ],
)
def test_the_zone_whose_noise_is_lost_may_be_any(sizes, sampling, noising):
    plan = NoisePlan(
        zone_sizes=sizes,
        sampling=sampling,
        client_noise_multiplier=1.0,
        noising_clients=noising,
    )
    threat = ThreatModel(
        neighbours="zero_out", participation_revealed=True, colluding_super_nodes=1
    )
    seen = view(AccountedRound(plan, threat), "released_model", 3, 0, True)
    least = divergences(plan, threat, "released_model", 3, 0)
    assert (seen.mechanism.rdp(ORDERS) >= least * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    ("observer", "lost", "threat"),
    [
        ("fellow_super_node", 1, ThreatModel()),
        ("fellow_super_node", 2, ThreatModel(colluding_super_nodes=1)),
        ("released_model", 1, ThreatModel(colluding_super_nodes=1)),
        ("released_model", 1, ThreatModel(elected_super_nodes=True)),
        ("released_model", 1, ThreatModel(skipped_zones=1)),
        ("released_model", 0, ThreatModel()),
    ],
)
def test_the_zone_whose_noise_is_lost_may_be_one_on_the_clients_grid(
    observer, lost, threat
):
    """Noise on another grid counts for nothing, so it is no loss."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        s, n = int(rng.integers(3, 6)), int(rng.integers(2, 6))
        parts = rng.choice([2, 2, 3, 4], s)
        plan = with_encoding(
            NoisePlan(
                zone_sizes=(n,) * s,
                sampling=FullParticipation(),
                client_noise_multiplier=1.0,
                noising_clients=(n,) * s,
                mixing=tuple((parts / parts.sum()).tolist()),
                secure_aggregation=True,
            ),
            size=100,
        )
        for zone in range(s):
            seen = view(AccountedRound(plan, threat), observer, 3, zone, True)
            others = [j for j in range(s) if j != zone]
            least = min(
                n * (1 + sum(parts[j] == parts[zone] for j in others if j not in gone))
                for gone in itertools.combinations(others, lost)
            )
            assert seen.effective_noise**2 == pytest.approx(least, rel=1e-9)
            words = "client noise of zones on another grid is not counted"
            assert (words in seen.assumptions) == (len({*parts}) > 1)


def is_plain(plan, threat):
    """Whether nothing is left to bounds: all noise is of one law, and nobody knows it.

    Where zones may be left out or denominators are random an account is of less noise
    than there is.
    """
    return (
        threat == ThreatModel(neighbours="zero_out", participation_revealed=True)
        and plan.estimator == "fixed"
        and plan.min_zone_clients == 1
    )


def zones_of(plan):
    return np.repeat(np.arange(plan.num_zones), plan.zone_sizes)


def carries(plan):
    """Of all clients, a zone's noising ones first."""
    return np.concatenate(
        [
            np.arange(n) < a
            for n, a in zip(plan.zone_sizes, plan.noise_carriers, strict=True)
        ]
    )


def clients_of(plan):
    """The first and the last client of every zone, each with its zone."""
    ends = np.cumsum(plan.zone_sizes)
    for zone, (n, end) in enumerate(zip(plan.zone_sizes, ends, strict=True)):
        for me in sorted({end - n, end - 1}):
            yield zone, me


def cohorts(plan, stays, me):
    """Who may deliver where a client does, bool [cohorts, clients], and how likely."""
    zone_of = zones_of(plan)
    came = np.array(list(itertools.product([False, True], repeat=len(zone_of))))
    came = came[came[:, me]]
    likely = np.ones(len(came))
    for j, n in enumerate(plan.zone_sizes):
        mine = int(zone_of[me] == j)
        others = n - mine
        if isinstance(plan.sampling, FixedSizeSampling):
            k = plan.sampling.sizes[j] - mine
            chance = np.zeros(others + 1)
            for d in range(k + 1):
                ways = math.comb(others - d, k - d) / math.comb(others, k)
                chance[d] = ways * stays**d * (1 - stays) ** (k - d)
        else:
            q, d = plan.participation[j] * stays, np.arange(others + 1)
            chance = q**d * (1 - q) ** (others - d)
        likely *= chance[came[:, zone_of == j].sum(1) - mine]
    return came[likely > 0], likely[likely > 0]


def divergences(plan, threat, observer, level, me):
    """Where participation is seen and an update zeroed, [orders]."""
    zone_of, noising = zones_of(plan), carries(plan)
    zone, zones = zone_of[me], range(plan.num_zones)
    parents = [np.array(upper.parents) for upper in plan.upper_levels]
    above = list(itertools.accumulate(parents, lambda v, up: up[v], initial=[*zones]))
    above = [np.array(nodes) for nodes in above] + [np.zeros(len(zones), int)]
    # The output seen is of a node above the client, of a level or of the server.
    if threat.colluding_super_nodes == len(zones):
        level = 1
    only_total = observer == "aggregator" and plan.secure_server and level > 1
    depth = len(above) if only_total else min(level - 1, len(above))
    bare = depth == 0 and not plan.secure_aggregation

    came, likely = cohorts(plan, 1.0 - threat.dropout_rate, me)
    counts = np.stack([came[:, zone_of == j].sum(1) for j in zones], 1)
    bounded = plan.estimator == "bounded"
    floors, p = np.array(plan.denominators), np.ones(len(zones))
    if depth > 1:
        p = np.array(plan.mixing_weights)
    # What one client's update and its noise are multiplied by in the output.
    share = p / np.maximum(floors, counts * bounded)
    # That the client's own zone may be left out is taken for no help.
    stays = (counts >= plan.min_zone_clients) | (np.array(zones) == zone)

    # Everybody's zones, level and variance in the output, by cohort.
    parties = [({j}, 0) for j in zone_of]
    adds = noising & came & stays[:, zone_of]
    if plan.top_up and depth > 0:
        adds = noising
    variances = [adds * (plan.client_noise_multiplier * share[:, zone_of]) ** 2]
    for d, nodes in enumerate(plan.node_noise, 1):
        for v, z in enumerate(own.noise_multiplier for own in nodes):
            beneath = np.flatnonzero(above[d - 1] == v)
            unit = ((1 + bounded) * p / floors)[beneath].max()
            parties.append((set(beneath), d))
            variances.append(np.full((len(came), 1), (z * unit) ** 2))
    variances = np.concatenate(variances, 1)
    node = above[max(depth, 1) - 1]
    visible = set(np.flatnonzero(node == node[zone]))
    seen = np.array([z <= visible and d <= depth for z, d in parties])
    if bare:
        seen &= np.arange(len(parties)) == me
    if only_total:
        seen[-1] = False

    # What may be known of it.
    others = [j for j in zones if j != zone]
    lost = threat.colluding_super_nodes + threat.skipped_zones
    told = threat.colluding_clients + (observer == "fellow_client")
    if threat.elected_super_nodes:
        lost += observer == "released_model"
        told += depth == 0
    branches = [(set(), 0)]
    if observer == "fellow_super_node":
        branches = [
            (set(np.flatnonzero(nodes == v)), d)
            for d, nodes in enumerate(above[:-1], 1)
            for v in set(nodes) - {nodes[zone]}
        ]
    colluders = np.flatnonzero(noising & (np.arange(len(noising)) != me))
    # Who tells besides those that collude may be of any zone.
    most, besides = threat.colluders_in_zone, told - threat.colluding_clients
    left = []
    for gone, (under, highest), clients in itertools.product(
        itertools.combinations(others, min(lost, len(others))),
        branches,
        itertools.chain.from_iterable(
            itertools.combinations(colluders, count)
            for count in range(min(told, len(colluders)) + 1)
        ),
    ):
        by_zone = np.bincount(zone_of[list(clients)], minlength=len(zones))
        if np.maximum(by_zone - most, 0).sum() > besides:
            continue
        known = np.array(
            [
                (d <= 1 and z <= {*gone}) or (d <= highest and z <= under)
                for z, d in parties
            ]
        )
        known[list(clients)] = True
        left.append(variances @ (seen & ~known))

    move, a = share[:, zone], np.array(ORDERS)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        v = np.where(move > 0, np.array(left) / move**2, math.inf)
        moments = np.exp((a * (a - 1) / 2)[:, None, None] / v) @ likely
    q = plan.participation[zone]  # Others drop out at most so often; it may never.
    return np.log(1 - q + q * moments.max(1)) / (a - 1)


def a_case(rng):
    """A small plan and a threat model, of nearly every kind that there is."""
    sizes = [(2, 1), (2, 3), (1, 2, 2), (2, 2, 2), (2, 2, 1, 1)][rng.integers(5)]
    s = len(sizes)

    def some(*values, count=s):
        return tuple(rng.choice(values, count).tolist())

    def one(*values):
        return values[rng.integers(len(values))]

    upper, estimator = (), one("fixed", "fixed", "fixed", "bounded")
    mixing = one("weighted", "equal", "own")
    if mixing == "own":
        mixing = ((0.0, 1.0), (0.5, 0.3, 0.2), (0.4, 0.1, 0.2, 0.3))[s - 2]
    if s == 4 and one(True, False):
        parents = one((0, 0, 1, 1), (0, 0, 0, 1), (0, 1, 1, 1))
        upper = (Level(parents, some(0.0, 0.7, 1.5, count=2)),)
    total = (mixing, estimator, upper) == ("weighted", "fixed", ())
    plan = NoisePlan(
        zone_sizes=sizes,
        sampling=one(
            PoissonSampling(some(0.3, 0.6, 1.0)),
            FixedSizeSampling(
                tuple(int(rng.integers(min(sizes), n + 1)) for n in sizes)
            ),
            FullParticipation(),
        ),
        client_noise_multiplier=one(0.0, 0.8, 2.0),
        noising_clients=tuple(int(rng.integers(0, n + 1)) for n in sizes),
        zone_noise_multipliers=some(0.0, 0.5, 1.2),
        server_noise_multiplier=one(0.0, 0.4, 1.0),
        upper_levels=upper,
        estimator=estimator,
        mixing=mixing,
        zone_weights=one(None, some(0.5, 0.8, 1.0)),
        secure_aggregation=one(True, False),
        secure_server=total and one(True, False),
        min_zone_clients=one(1, min(sizes)),
        top_up=estimator == "fixed" and one(True, False, False, False),
    )
    known = {}
    if one(True, False):
        known = {
            "dropout_rate": one(0.0, 0.3),
            "colluding_super_nodes": int(rng.integers(0, s + 1)),
            "colluding_clients": int(rng.integers(0, min(3, sum(sizes)))),
            "elected_super_nodes": one(True, False),
            "skipped_zones": one(0, 1),
        }
    known |= {"neighbours": "zero_out", "participation_revealed": True}
    if one(True, False):
        threat = ThreatModel(**known, colluding_in_zone=int(rng.integers(0, 3)))
        with contextlib.suppress(ArgumentError):  # Fewer or more than there can be.
            threat.check_fits(plan)
            return plan, threat
    return plan, ThreatModel(**known)


@pytest.mark.parametrize("observer", ["super_node", "aggregator"])
def test_of_a_zones_sum_no_more_know_than_collude_in_the_zone(observer):
    """Fifty collude in ten zones, five in each."""
    plan = NoisePlan(
        zone_sizes=(400,) * 10,
        sampling=PoissonSampling((0.5,) * 10),
        client_noise_multiplier=1.0,
        noising_clients=(400,) * 10,
        secure_aggregation=True,
    )
    threats = (
        ThreatModel(colluding_clients=50, colluding_in_zone=5),
        ThreatModel(colluding_clients=5),
        ThreatModel(colluding_clients=50),
    )
    level = 1 if observer == "super_node" else plan.server_level
    found = [
        view(AccountedRound(plan, threat), observer, level, 0, True)
        for threat in threats
    ]
    assert "5 noising clients subtract their noise" in found[0].assumptions
    epsilons = [seen.mechanism.rdp(ORDERS) for seen in found]
    np.testing.assert_allclose(epsilons[0], epsilons[1], rtol=1e-12)
    assert (epsilons[0] < 0.9 * epsilons[2]).all()


@pytest.mark.parametrize(
    ("threat", "words"),
    [
        (
            ThreatModel(colluding_clients=5),
            "the zone's secure sum is taken as unmasked: those who collude may "
            "be a majority of it",
        ),
        (ThreatModel(secure_sums_hold=False), "secure sums are taken as unmasked"),
        (ThreatModel(), None),
    ],
)
def test_that_a_secure_sum_may_be_unmasked_is_said(threat, words):
    plan = NoisePlan(
        zone_sizes=(50,) * 2,
        sampling=PoissonSampling((0.2,) * 2),
        client_noise_multiplier=1.0,
        noising_clients=(50,) * 2,
        secure_aggregation=True,
    )
    seen = view(AccountedRound(plan, threat), "super_node", 1, 0, True)
    assert [each for each in seen.assumptions if "unmasked" in each] == [words] * (
        words is not None
    )


@pytest.mark.parametrize(("zones", "said"), [(1, False), (5, True)])
def test_that_noise_is_taken_for_known_in_every_zone_is_said(zones, said):
    plan = NoisePlan(
        zone_sizes=(10,) * zones,
        sampling=FixedSizeSampling((4,) * zones),
        client_noise_multiplier=1.0,
        noising_clients=(10,) * zones,
    )
    seen = view(AccountedRound(plan, ThreatModel()), "fellow_client", 3, 0, True)
    words = "as if the noise of 1 clients were known in every zone"
    assert (words in seen.assumptions) == said
