import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.privacy import (
    FixedSizeSampling,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
)
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.views import client_kind

DELTA = 1e-5
multipliers = st.sampled_from([0.0, 0.5, 1.0, 3.0])


@st.composite
def runs(draw, *, colluding=True, equal=False):
    s = draw(st.integers(1, 4))
    if equal:
        sizes = (draw(st.integers(4, 12)),) * s
    else:
        sizes = tuple(draw(st.lists(st.integers(4, 12), min_size=s, max_size=s)))
    q = draw(st.sampled_from([0.1, 0.35, 0.8, 1.0]))
    noising = tuple(draw(st.sampled_from([0, n // 2, n])) for n in sizes)
    plan = NoisePlan(
        zone_sizes=sizes,
        sampling=PoissonSampling((q,) * s),
        client_noise_multiplier=draw(multipliers),
        noising_clients=(noising[0],) * s if equal else noising,
        zone_noise_multipliers=tuple(
            draw(st.lists(multipliers, min_size=s, max_size=s))
        ),
        server_noise_multiplier=draw(multipliers),
        mixing=draw(st.sampled_from(["weighted", "equal"])),
        secure_aggregation=draw(st.booleans()),
    )
    threat = ThreatModel(
        cohort_known=draw(st.booleans()),
        peers_known=draw(st.booleans()),
        elected_super_nodes=draw(st.booleans()) if colluding else False,
        colluding_super_nodes=draw(st.integers(0, s)) if colluding else 0,
        colluding_clients=draw(st.integers(0, 3)) if colluding else 0,
        dropout_rate=draw(st.sampled_from([0.0, 0.2])),
        skipped_zones=draw(st.integers(0, s)) if colluding else 0,
    )
    return AccountedRound(plan, threat)


def changed(run, plan=None, **assumed):
    """The round with another plan, or other assumptions."""
    threat = dataclasses.replace(run.threat, **assumed)
    return AccountedRound(plan or run.plan, threat)


def has_client(plan, zone, kind):
    noising = plan.noising_clients[zone]
    return (noising > 0 and client_kind(plan, zone, True) == kind) or (
        noising < plan.zone_sizes[zone] and client_kind(plan, zone, False) == kind
    )


def epsilons(run, rounds=20):
    """Epsilon by (observer, kind, zone); infinite where nothing holds.

    Every client that there is has one against each of the three observers.
    """
    table, plan = {}, run.plan
    for row in account(plan, rounds, DELTA, ("rdp",), threat=run.threat):
        epsilon = math.inf if row.epsilon_rdp is None else row.epsilon_rdp
        zones = range(plan.num_zones) if row.zone is None else (row.zone,)
        for zone in zones:
            if not has_client(plan, zone, row.client_kind):
                continue
            table[row.observer, row.client_kind, zone] = epsilon
    assert table.keys() >= {
        (observer, client_kind(plan, zone, is_noising), zone)
        for observer in ("super_node", "aggregator", "released_model")
        for zone, (n, a) in enumerate(
            zip(plan.zone_sizes, plan.noising_clients, strict=True)
        )
        for is_noising in {a > 0, a == n}
    }
    return table


def at_most(a, b):
    return all(a[k] <= b[k] * (1 + 1e-9) + 1e-12 for k in a.keys() & b.keys())


@settings(max_examples=40, deadline=None)
@given(runs(), st.sampled_from([1.5, 4.0]))
def test_epsilon_falls_with_noise(run, factor):
    plan = run.plan
    louder = dataclasses.replace(
        plan,
        client_noise_multiplier=plan.client_noise_multiplier * factor,
        zone_noise_multipliers=tuple(z * factor for z in plan.zone_noise_multipliers),
        server_noise_multiplier=plan.server_noise_multiplier * factor,
    )
    assert at_most(epsilons(changed(run, louder)), epsilons(run))


@settings(max_examples=25, deadline=None)
@given(runs(), st.integers(1, 50), st.integers(1, 50))
def test_epsilon_rises_with_rounds(run, rounds, more):
    assert at_most(epsilons(run, rounds), epsilons(run, rounds + more))


@settings(max_examples=25, deadline=None)
@given(runs(), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_epsilon_rises_with_q_where_participants_carry_no_noise(run, a, b):
    s = run.plan.num_zones
    quiet = dataclasses.replace(run.plan, client_noise_multiplier=0.0)
    at = [
        changed(run, dataclasses.replace(quiet, sampling=PoissonSampling((q,) * s)))
        for q in sorted((a, b))
    ]
    assert at_most(epsilons(at[0]), epsilons(at[1]))


@settings(max_examples=60, deadline=None)
@given(runs())
def test_release_is_never_worse_protected_than_the_aggregators_view(run):
    table = epsilons(changed(run, elected_super_nodes=False))
    for (observer, kind, zone), epsilon in table.items():
        if observer == "released_model":
            assert epsilon <= table["aggregator", kind, zone] * (1 + 1e-9) + 1e-12


@settings(max_examples=40, deadline=None)
@given(runs(colluding=False), st.integers(0, 4), st.integers(0, 3))
def test_collusion_never_helps(run, super_nodes, clients):
    colluding = changed(
        run,
        colluding_super_nodes=min(super_nodes, run.plan.num_zones),
        colluding_clients=clients,
        elected_super_nodes=True,
    )
    assert at_most(epsilons(run), epsilons(colluding))


@settings(max_examples=40, deadline=None)
@given(runs(colluding=False), st.integers(0, 3))
def test_a_skipped_zones_noise_is_as_lost_as_a_colluding_super_nodes(run, zones):
    """Short of all zones, of which the client's own cannot have been skipped."""
    zones = min(zones, run.plan.num_zones - 1)
    skipped = epsilons(changed(run, skipped_zones=zones))
    assert skipped == epsilons(changed(run, colluding_super_nodes=zones))
    assert at_most(epsilons(run), skipped)


@settings(max_examples=30, deadline=None)
@given(runs(), st.randoms(use_true_random=False))
def test_permuting_zones_changes_nothing(run, random):
    plan = run.plan
    order = list(range(plan.num_zones))
    random.shuffle(order)

    def permuted(values):
        return tuple(values[i] for i in order)

    moved = dataclasses.replace(
        plan,
        zone_sizes=permuted(plan.zone_sizes),
        sampling=PoissonSampling(permuted(plan.sampling.probabilities)),
        noising_clients=permuted(plan.noising_clients),
        zone_noise_multipliers=permuted(plan.zone_noise_multipliers),
    )
    before, after = epsilons(run), epsilons(changed(run, moved))
    for (observer, kind, zone), epsilon in after.items():
        assert epsilon == pytest.approx(before[observer, kind, order[zone]], rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 5).map(lambda n: 2 * n),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([0.5, 2.0]),
)
def test_splitting_a_zone_does_not_change_ldp_against_the_super_node(n, q, z):
    def against_super_node(sizes):
        plan = NoisePlan(
            zone_sizes=sizes,
            sampling=PoissonSampling((q,) * len(sizes)),
            client_noise_multiplier=z,
            noising_clients=sizes,
        )
        return epsilons(AccountedRound(plan))["super_node", "ldp", 0]

    whole, halves = (against_super_node(z) for z in ((n,), (n // 2, n - n // 2)))
    # But for what finite precision costs, which grows with the numbers drawn.
    assert whole == pytest.approx(halves, rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(runs(colluding=False), st.sampled_from(["zero_out", "replace_one"]))
def test_replacing_is_no_cheaper_than_zeroing(run, relation):
    zeroed, other = (changed(run, neighbours=n) for n in ("zero_out", relation))
    assert at_most(epsilons(zeroed), epsilons(other))


@settings(max_examples=15, deadline=None)
@given(runs(equal=True), st.integers(1, 11))
def test_who_does_not_know_a_fixed_cohort_has_no_larger_epsilon(run, k):
    plan = run.plan
    sizes = (min(k, plan.zone_sizes[0]),) * plan.num_zones
    fixed = dataclasses.replace(plan, sampling=FixedSizeSampling(sizes))
    hidden, known = (
        changed(run, fixed, cohort_known=told, peers_known=told)
        for told in (False, True)
    )
    assert at_most(epsilons(hidden), epsilons(known))


@settings(max_examples=3, deadline=None)
@given(runs(equal=True))
def test_fixed_size_plans_get_rows_for_everybody(run):
    plan = run.plan
    k = max(1, plan.zone_sizes[0] // 2)
    fixed = dataclasses.replace(plan, sampling=FixedSizeSampling((k,) * plan.num_zones))
    epsilons(changed(run, fixed))
    for row in account(fixed, 10, DELTA, ("rdp",), threat=run.threat):
        assert row.epsilon_rdp is not None or "no guarantee" in row.assumptions
