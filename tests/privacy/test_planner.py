"""From promises to plans: against brute force, and what cannot be kept."""

import dataclasses
import fractions
import itertools
import math

import numpy as np
import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    calibrate,
    demands,
    planned,
    planner,
    worst,
)
from tff_hdp.privacy.promises import Promise

ROUNDS, DELTA = 20, 1e-5
ALIKE = NoisePlan(
    zone_sizes=(20,) * 4, sampling=PoissonSampling((0.3,) * 4), noising_clients=(6,) * 4
)
THREE = {"super_node": 12.0, "aggregator": 6.0, "released_model": 2.0}


PLD_OF_TINY_DELTA = {"method": "pld", "delta": 1e-12}


def make(federation=ALIKE, promises=THREE, **options):
    settings = {"rounds": ROUNDS, "delta": DELTA, "method": "rdp"} | options
    return planner.plan(federation, promises, **settings)


def keeps(plan, promises=THREE):
    """Whether a plan keeps the promises to the clients they are made to."""
    rows = account(plan, ROUNDS, DELTA, ("rdp",))
    for observer, epsilon in promises.items():
        kind = "ldp" if observer == "super_node" else None
        found = worst(rows, observer, kind).epsilon_rdp
        if found is None or found > epsilon:
            return False
    return True


def released(plan):
    """Standard deviation in the model, written out for zones that are alike."""
    s, (q, *_), n = plan.num_zones, plan.participation, plan.zone_sizes[0]
    one = 1.0 / (s * q * n)
    client = s * q * plan.noising_clients[0] * plan.client_noise_multiplier**2
    zones = sum(z * z for z in plan.zone_noise_multipliers)
    return one * math.sqrt(client + zones + plan.server_noise_multiplier**2)


@pytest.mark.parametrize(
    ("q", "rounds", "epsilon"),
    [
        (0.01, 20, 0.1),
        pytest.param(0.01, 20, 1.0, marks=pytest.mark.slow),
        pytest.param(0.001, 1, 1.0, marks=pytest.mark.slow),
        (0.001, 1, 0.05),
    ],
)
def test_small_cohorts_have_a_plan_by_the_account_that_counts(q, rounds, epsilon):
    """Their epsilon by PLD falls off much faster than that by Renyi DP."""
    federation = NoisePlan(zone_sizes=(100,), sampling=PoissonSampling((q,)))
    found = planner.plan(
        federation, {"released_model": epsilon}, rounds=rounds, delta=DELTA
    )
    least = calibrate(
        lambda z: dataclasses.replace(federation, server_noise_multiplier=z),
        target_epsilon=epsilon,
        observer="released_model",
        rounds=rounds,
        delta=DELTA,
        method="pld",
    )
    assert found.kept[0].epsilon <= epsilon
    assert found.plan.server_noise_multiplier == pytest.approx(least, rel=2e-3)


def test_a_secure_sum_that_does_not_hold_saves_no_noise_and_costs_none():
    """The server then sees every zone's output, as without it."""
    secure = dataclasses.replace(ALIKE, secure_server=True)
    threat = ThreatModel(secure_sums_hold=False)
    promises = {"aggregator": 6.0}
    found, plain = make(secure, promises, threat=threat), make(promises=promises)
    assert found.noise == pytest.approx(plain.noise, rel=1e-3)
    assert found.kept[0].epsilon == pytest.approx(plain.kept[0].epsilon, rel=2e-3)


def test_no_plan_on_a_grid_keeps_the_promises_with_less_noise():
    found = make()
    assert found.noise == pytest.approx(released(found.plan), rel=1e-9)
    assert keeps(found.plan)
    least, total = found.plan.client_noise_multiplier, 0.99 * found.noise
    tried = 0
    for client, zone in itertools.product(
        (0.98, 1.0, 1.02, 1.05, 1.1, 1.2), (0.0, 0.5, 0.9, 0.97, 1.0, 1.03, 1.1, 1.3)
    ):
        plan = dataclasses.replace(
            ALIKE,
            client_noise_multiplier=client * least,
            zone_noise_multipliers=tuple(
                zone * z for z in found.plan.zone_noise_multipliers
            ),
        )
        # All that is left of 1 % less noise; none may be left.
        rest = total**2 - released(plan) ** 2
        if rest >= 0:
            unit = plan.released_sensitivities[0]
            server = math.sqrt(rest) / unit
            plan = dataclasses.replace(plan, server_noise_multiplier=server)
            assert released(plan) == pytest.approx(total)
            assert not keeps(plan)
            tried += 1
    assert tried > 20


def test_noise_is_where_the_gaps_are():
    plan = make().plan
    assert plan.client_noise_multiplier > 0
    assert min(plan.zone_noise_multipliers) > 0
    assert plan.server_noise_multiplier > 0
    # With the upper promises met on the way, nothing is added for them.
    loose = {"super_node": 1.0, "aggregator": 50.0, "released_model": 50.0}
    everybody = dataclasses.replace(ALIKE, noising_clients=(20,) * 4)
    plan = make(everybody, loose).plan
    assert not any(plan.zone_noise_multipliers) and not plan.server_noise_multiplier
    # Nobody's promise, nobody's noise.
    plan = make(promises={"released_model": 2.0}).plan
    assert not plan.clients_carry_noise and not any(plan.zone_noise_multipliers)


def test_kept_says_what_came_of_each_promise():
    found = make(relax=True)
    by_name = {kept.promise.observer: kept for kept in found.kept}
    rows = account(found.plan, ROUNDS, DELTA, ("rdp",))
    for observer in ("aggregator", "released_model"):
        epsilon = worst(rows, observer).epsilon_rdp
        assert by_name[observer].epsilon == pytest.approx(epsilon, rel=1e-12)
    total = math.sqrt(sum(kept.noise**2 for kept in found.kept))
    assert total == pytest.approx(found.noise)
    # The model's promise asks for more noise than the others have put there.
    assert by_name["released_model"].saved > 0.02
    assert by_name["super_node"].saved < 0.02


@pytest.mark.parametrize("epsilons", [(3.0, 8.0), (8.0, 3.0)], ids=str)
def test_the_stricter_of_two_promises_to_one_observer_binds(epsilons):
    for observer in ("super_node", "aggregator", "released_model"):
        one = make(promises=[Promise(observer, 3.0)])
        both = make(promises=[Promise(observer, epsilon) for epsilon in epsilons])
        assert both.plan == one.plan and both.noise > 0
        assert [kept.epsilon <= kept.promise.epsilon for kept in both.kept] == [
            True
        ] * 2


@pytest.mark.parametrize(
    ("promises", "zones", "rounds"),
    [
        ({"aggregator": 0.5}, 100, 2000),
        ({"aggregator": 0.1, "released_model": 0.01}, 100, 2000),
        ({"aggregator": 1e-3}, 10, 200),
    ],
    ids=str,
)
def test_what_noise_of_finite_precision_costs_does_not_break_a_promise(
    promises, zones, rounds
):
    federation = NoisePlan(
        zone_sizes=(100,) * zones, sampling=PoissonSampling((0.1,) * zones)
    )
    found = make(federation, promises, rounds=rounds)
    rows = account(found.plan, rounds, DELTA, ("rdp",))
    for kept in found.kept:
        epsilon = worst(rows, kept.promise.observer).epsilon_rdp
        assert epsilon == kept.epsilon <= kept.promise.epsilon


def test_a_plan_that_the_account_does_not_confirm_is_not_returned(monkeypatch):
    """Fail closed: whatever the search aims at, the account has the last word."""
    monkeypatch.setattr(demands.Demand, "accept", lambda *_: False)
    with pytest.raises(ArgumentError, match="can be seen to keep"):
        make(promises={"aggregator": 6.0})


def test_by_privacy_loss_distributions_as_by_renyi_dp():
    promises = {"super_node": 12.0, "aggregator": 6.0}
    found = make(promises=promises, method="pld")
    rows = account(found.plan, ROUNDS, DELTA, ("pld",))
    for kept, kind in zip(found.kept, ("ldp", None), strict=True):
        epsilon = worst(rows, kept.promise.observer, kind, "pld").epsilon_pld
        assert epsilon == kept.epsilon <= kept.promise.epsilon
    assert found.noise < make(promises=promises).noise
    assert max(k.epsilon / k.promise.epsilon for k in found.kept) > 0.999


def test_unequal_zones_get_what_each_needs():
    federation = NoisePlan(
        zone_sizes=(10, 30, 60),
        sampling=PoissonSampling((0.5, 0.2, 0.1)),
        mixing="equal",
    )
    found = make(federation, {"aggregator": 3.0, "released_model": 2.5})
    rows = account(found.plan, ROUNDS, DELTA, ("rdp",))
    seen = [r.epsilon_rdp for r in rows if r.observer == "aggregator"]
    # Each zone's noise is the least for it alone.
    assert seen == pytest.approx([3.0] * 3, rel=2e-3) and max(seen) <= 3.0
    assert len(set(found.plan.zone_noise_multipliers)) == 3
    assert worst(rows, "released_model").epsilon_rdp <= 2.5


def test_noise_in_the_model_is_what_the_bounded_mean_has():
    """Each client's noise as it is; a node's by twice what a client weighs."""
    plan = NoisePlan(
        zone_sizes=(10, 10),
        sampling=FullParticipation(),
        estimator="bounded",
        noising_clients=(10, 10),
        client_noise_multiplier=1.5,
    )
    assert planner.noise_in_model(plan) == pytest.approx(1.5 * math.sqrt(20) / 20)
    noisy = dataclasses.replace(
        plan, client_noise_multiplier=0.0, server_noise_multiplier=1.5
    )
    assert planner.noise_in_model(noisy) == pytest.approx(2 * 1.5 / 20)


def test_the_planner_finds_noise_of_clients_alone_where_that_is_least():
    federation = NoisePlan(
        zone_sizes=(10, 10),
        sampling=FullParticipation(),
        noising_clients=(10, 10),
        estimator="bounded",
    )
    found = make(federation, {"released_model": 3.0, "aggregator": 6.0}, rounds=10)
    alone = dataclasses.replace(federation, client_noise_multiplier=1.5)
    rows = account(alone, 10, DELTA, ("rdp",))
    assert worst(rows, "released_model").epsilon_rdp <= 3.0
    assert worst(rows, "aggregator").epsilon_rdp <= 6.0
    assert found.noise <= planner.noise_in_model(alone) * 1.01


def test_clients_that_trust_the_server_need_no_noise_of_their_zone():
    found = make(
        dataclasses.replace(ALIKE, noising_clients=(0, 0, 0, 6)),
        {"aggregator": 6.0, "released_model": 2.0},
        trusting=(20, 5, 0, 14),
    )
    noise = found.plan.zone_noise_multipliers
    assert noise[0] == 0 < noise[1]
    assert noise[1] == pytest.approx(noise[2])


def test_levels_secure_sums_and_collusion():
    levels = (Level((0, 0, 1, 1), (0.0, 0.0)),)
    tree = dataclasses.replace(ALIKE, upper_levels=levels)
    promises = [
        Promise("super_node", 12.0),
        Promise("super_node", 9.0, level=2),
        Promise("aggregator", 4.0),
        Promise("released_model", 2.0),
    ]
    threat = ThreatModel(colluding_clients=2)
    found = make(tree, promises, threat=threat)
    rows = account(found.plan, ROUNDS, DELTA, ("rdp",), threat=threat)
    for promise in promises:
        own = promise.observer == "super_node" and promise.level == 1
        kept = [
            r.epsilon_rdp
            for r in rows
            if r.observer == promise.observer
            and (promise.observer != "super_node" or r.level == promise.level)
            and (r.client_kind == "ldp" or not own)
        ]
        assert max(kept) <= promise.epsilon
        assert max(kept) > 0.99 * promise.epsilon
    sums = dataclasses.replace(ALIKE, secure_aggregation=True, secure_server=True)
    hidden = make(sums, {"aggregator": 6.0, "released_model": 2.0})
    assert len(set(hidden.plan.zone_noise_multipliers)) == 1
    plain = make(ALIKE, {"aggregator": 6.0})
    part = make(sums, {"aggregator": 6.0})
    assert part.noise < 0.7 * plain.noise


@pytest.mark.parametrize(
    ("federation", "promises", "options", "words"),
    [
        (ALIKE, {"cloud": 1.0}, {}, "promises is cloud; allowed: super_node"),
        (ALIKE, {"aggregator": 0.0}, {}, "promises is 0.0; .* > 0"),
        (ALIKE, {}, {}, "promises is empty"),
        (ALIKE, THREE, {"rounds": 0}, "rounds is 0"),
        (ALIKE, THREE, {"trusting": (20,) * 4}, r"trusting\[0\] is 20; allowed: 0..14"),
        (
            dataclasses.replace(ALIKE, noising_clients=(0,) * 4),
            {"super_node": 5.0},
            {},
            "super_node<=5; .*no client trusts nobody",
        ),
        (
            ALIKE,
            [Promise("super_node", 5.0, 3)],
            {},
            "super_node:3<=5; .*: super_node, aggregator, released_model, fellow_s",
        ),
        (ALIKE, THREE, {"method": "foo"}, "method is foo; allowed: rdp, pld"),
        (ALIKE, THREE, {"say": None}, "say is None; allowed: a function of words"),
        (ALIKE, "aggregator<=8", {}, "promises is aggregator<=8; .*list of Promise"),
        (ALIKE, ("aggregator", 8.0), {}, "promises is aggregator,8.0; .*Promise"),
        (ALIKE, None, {}, "promises is None; .*list of Promise"),
        (ALIKE, {"aggregator": "8"}, {}, "promises is '8'; .*finite number > 0"),
        (ALIKE, {"aggregator": 6.0}, PLD_OF_TINY_DELTA, "not resolved below delta"),
        (ALIKE, {"aggregator": 1e-9}, {}, r"aggregator<=1e-09; allowed: \S+ or more"),
        (
            dataclasses.replace(ALIKE, noising_clients=(0,) * 4),
            {"aggregator": 5.0},
            {
                "threat": ThreatModel(neighbours="add_or_remove", cohort_known=True),
            },
            "aggregator<=5; .*learns who takes part",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(
    federation, promises, options, words
):
    with pytest.raises(ArgumentError, match=words):
        make(federation, promises, **options)


@pytest.mark.parametrize(
    ("federation", "words"),
    [
        ("clients", "federation is str"),
        (dataclasses.replace(ALIKE, estimator="realised"), "estimator is realised"),
        (
            dataclasses.replace(ALIKE, clipping=Clipping(kind="adaptive")),
            "^federation.clipping.kind is adaptive; allowed: flat .*or per_layer$",
        ),
    ],
)
def test_what_is_no_federation_is_refused_by_name(federation, words):
    with pytest.raises(ArgumentError, match=words):
        make(federation)


@pytest.mark.parametrize(
    ("promises", "options"),
    [
        ([Promise("aggregator", np.float32(6.0))], {}),
        ([Promise("aggregator", np.int64(6))], {}),
        ([Promise("aggregator", fractions.Fraction(6))], {}),
        ([Promise("super_node", 6.0, np.int64(1))], {}),
        ({"aggregator": 6.0}, {"delta": np.float32(1e-5)}),
        ({"aggregator": 6.0}, {"rounds": np.int64(20)}),
        ({"aggregator": 6.0}, {"trusting": np.array([1, 2, 0, 0])}),
        ({"aggregator": 6.0}, {"trusting": [1.0, 2.0, 0.0, 0.0]}),
    ],
)
def test_a_plan_of_any_numbers_goes_through_its_file(tmp_path, promises, options):
    found = make(promises=promises, **options)
    found.write(tmp_path / "plan.json")
    assert planned.read_plan(tmp_path / "plan.json") == found
    assert "<=6" in str(found.kept[0].promise)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trusting": (0.5, 1.5, 0, 0)}, r"trusting\[0\] is 0.5; allowed: a whole"),
        ({"trusting": (True, 0, 0, 0)}, r"trusting\[0\] is True; allowed: a whole"),
        ({"trusting": "1234"}, "trusting is '1234'; allowed: a sequence"),
        ({"trusting": 3}, "trusting is 3; allowed: a sequence"),
        ({"threat": None}, "threat is None; allowed: a ThreatModel"),
        ({"rounds": 10**6 + 1, "method": "pld"}, "rounds is 1000001; allowed: at most"),
        ({"threat": "cohort_known"}, "threat is cohort_known; allowed: a Threat"),
    ],
)
def test_what_a_plans_file_cannot_hold_is_refused_before_the_search(
    monkeypatch, options, words
):
    monkeypatch.setattr(planner, "_Keeper", None)
    with pytest.raises(ArgumentError, match=words):
        make(**options)
