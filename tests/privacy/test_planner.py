"""From promises to plans: against brute force, and what cannot be kept."""

import dataclasses
import itertools
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    demands,
    planner,
    worst,
)
from tff_hdp.privacy.promises import Kept, Promise

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
            "super_node<=5; .*--trust_nobody",
        ),
        (
            ALIKE,
            [Promise("super_node", 5.0, 3)],
            {},
            "super_node:3<=5; .*: super_node, aggregator, released_model, fellow_s",
        ),
        (ALIKE, THREE, {"method": "foo"}, "method is foo; allowed: rdp, pld"),
        (ALIKE, "aggregator<=8", {}, "promises is aggregator<=8; .*list of Promise"),
        (ALIKE, ("aggregator", 8.0), {}, "promises is aggregator,8.0; .*Promise"),
        (ALIKE, None, {}, "promises is None; .*list of Promise"),
        (ALIKE, {"aggregator": "8"}, {}, "promises is 8; .*finite number > 0"),
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
    "sampling",
    [FullParticipation(), FixedSizeSampling((6,) * 4), ALIKE.sampling],
    ids=str,
)
def test_a_plan_goes_through_its_file(tmp_path, sampling):
    plan = dataclasses.replace(ALIKE, sampling=sampling, server_noise_multiplier=2.0)
    threat = ThreatModel(dropout_rate=0.05)
    kept = Kept(promise=Promise("aggregator", 3.0), epsilon=2.9, noise=1.0)
    found = planner.Planned(
        plan=plan, threat=threat, rounds=ROUNDS, delta=DELTA, kept=(kept,)
    )
    path = tmp_path / "plan.json"
    found.write(path)
    read = planner.read_plan(path)
    assert read == found
    fields = json.loads(path.read_text())
    for wrong, words in (
        ({"format": None}, "format None, not 2: make it again with scripts/plan.py"),
        ({"method": "paper"}, "method is paper; allowed: rdp, pld"),
        ({"plan": {}}, "plan is"),
    ):
        path.write_text(json.dumps(fields | wrong))
        with pytest.raises(FileError, match=f"plan.json: no plan of .*{words}"):
            planner.read_plan(path)


# Against brute force, for federations of any shape -----------------------------------

# Of what the planner found, before the whole plan is brought to 1 % less noise.
GRID = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.0, 1.0, 1.02, 1.05, 1.1, 1.3, 2.0)


@st.composite
def federations(draw):
    """Unequal zones, mixes of trust, levels, and promises to be kept."""
    sizes = draw(st.lists(st.integers(4, 25), min_size=1, max_size=4))
    zones = range(len(sizes))
    rates = [draw(st.sampled_from((0.2, 0.5, 0.8))) for _ in zones]
    noising = [draw(st.integers(0, n)) for n in sizes]
    trusting = [
        draw(st.integers(0, n - m)) for n, m in zip(sizes, noising, strict=True)
    ]
    levels = ()
    if len(sizes) > 2 and draw(st.booleans()):
        levels = (Level((0, *(1 for _ in zones[1:])), (0.0, 0.0)),)
    federation = NoisePlan(
        zone_sizes=sizes,
        sampling=PoissonSampling(rates),
        mixing=draw(st.sampled_from(("weighted", "equal"))),
        noising_clients=noising,
        upper_levels=levels,
    )
    promises = [Promise("released_model", draw(st.floats(1.0, 6.0)))]
    nobodys = [
        m == 0 and c == n for n, m, c in zip(sizes, noising, trusting, strict=True)
    ]
    if not all(nobodys) and draw(st.booleans()):
        promises.append(Promise("aggregator", draw(st.floats(2.0, 15.0))))
    if not all(nobodys) and levels and draw(st.booleans()):
        promises.append(Promise("super_node", draw(st.floats(3.0, 20.0)), 2))
    if any(noising) and draw(st.booleans()):
        promises.append(Promise("super_node", draw(st.floats(5.0, 40.0))))
    if len(sizes) > 1 and draw(st.booleans()):
        promises.append(Promise("fellow_super_node", draw(st.floats(2.0, 9.0))))
    return federation, promises, trusting


def noise_above(plan, zone):
    """Whether a zone's super-node or one above it adds noise."""
    node, noise = zone, plan.zone_noise_multipliers[zone]
    for level in plan.upper_levels:
        node = level.parents[node]
        noise += level.noise_multipliers[node]
    return noise > 0


def all_kept(plan, promises, trusting):
    """Whether everybody has what it was promised, by the account."""
    carries = plan.client_noise_multiplier > 0
    relying = [
        n - carries * m > c
        for n, m, c in zip(plan.zone_sizes, plan.noising_clients, trusting, strict=True)
    ]
    rows = account(plan, ROUNDS, DELTA, ("rdp",))
    noised = list(map(noise_above, itertools.repeat(plan), range(plan.num_zones)))
    kinds = {
        kind: [j for j, some in enumerate(noised) if some == (kind == "hdp")]
        for kind in ("hdp", "trusting")
    }
    for promise in promises:
        own = promise.observer == "super_node" and promise.level == 1
        if own and not carries:
            return False
        seers = {promise.observer}
        if promise.observer == "fellow_super_node":
            # It sees the model, and no more than others where no zone noises.
            seers.add("released_model")
        for row in rows:
            if row.observer not in seers:
                continue
            if promise.observer == "super_node" and row.level != promise.level:
                continue
            if row.client_kind == "ldp":
                theirs = True
            elif promise.observer in ("super_node", "aggregator"):
                # A row of no zone is of all that have its kind of clients.
                zones = kinds[row.client_kind] if row.zone is None else [row.zone]
                theirs = not own and any(relying[j] for j in zones)
            else:
                theirs = True
            kept = row.epsilon_rdp is not None and row.epsilon_rdp <= promise.epsilon
            if theirs and not kept:
                return False
    return True


def noise_of(plan):
    """Standard deviation in the released model, written out."""
    q, n, s = plan.participation, plan.zone_sizes, plan.num_zones
    expected = [q[j] * n[j] for j in range(s)]
    # How far one client moves the average.
    unit = [
        1.0 / sum(expected) if plan.mixing == "weighted" else 1.0 / (s * expected[j])
        for j in range(s)
    ]
    z = plan.client_noise_multiplier
    total = sum(
        unit[j] ** 2
        * (q[j] * plan.noising_clients[j] * z**2 + plan.zone_noise_multipliers[j] ** 2)
        for j in range(s)
    )
    nodes = list(range(s))
    for level in plan.upper_levels:
        nodes = [level.parents[node] for node in nodes]
        for node, own in enumerate(level.noise_multipliers):
            most = max(unit[j] for j in range(s) if nodes[j] == node)
            total += (own * most) ** 2
    return math.sqrt(total + (plan.server_noise_multiplier * max(unit)) ** 2)


def other_plan(plan, chance, noise):
    """The plan with each party's noise another, and so much in the model; or None."""

    def other(z, most=1.0):
        return chance.choice(GRID) * (z or chance.choice((0.0, 0.0, 0.3 * most)))

    changed = dataclasses.replace(
        plan,
        client_noise_multiplier=(
            other(plan.client_noise_multiplier) if any(plan.noising_clients) else 0.0
        ),
        zone_noise_multipliers=tuple(map(other, plan.zone_noise_multipliers)),
        upper_levels=tuple(
            Level(level.parents, tuple(map(other, level.noise_multipliers)))
            for level in plan.upper_levels
        ),
        server_noise_multiplier=other(plan.server_noise_multiplier),
    )
    return scaled(changed, noise) if noise_of(changed) else None


def scaled(plan, noise):
    """The plan with everybody's noise in proportion, and so much in the model."""
    return times(plan, itertools.repeat(noise / noise_of(plan)))


def times(plan, factors):
    """The plan with each party's noise times a factor, from the clients up."""
    factors = iter(factors)
    return dataclasses.replace(
        plan,
        client_noise_multiplier=next(factors) * plan.client_noise_multiplier,
        zone_noise_multipliers=tuple(
            next(factors) * z for z in plan.zone_noise_multipliers
        ),
        upper_levels=tuple(
            Level(
                level.parents, tuple(next(factors) * z for z in level.noise_multipliers)
            )
            for level in plan.upper_levels
        ),
        server_noise_multiplier=next(factors) * plan.server_noise_multiplier,
    )


def check_against_brute_force(federation, promises, trusting, chance, tries):
    found = make(federation, promises, trusting=trusting)
    assert found.noise == pytest.approx(noise_of(found.plan), rel=1e-9)
    assert all_kept(found.plan, promises, trusting)
    for _ in range(tries):
        draw = chance.choice((other_plan, plan_of_any_shares))
        other = draw(found.plan, chance, 0.99 * found.noise)
        if other is not None:
            assert not all_kept(other, promises, trusting), other


UNEQUAL = NoisePlan(
    zone_sizes=(3, 6, 9), sampling=PoissonSampling((0.8, 0.5, 0.2)), mixing="equal"
)
TRUST = dataclasses.replace(UNEQUAL, mixing="weighted", noising_clients=(1, 0, 3))
TREE = dataclasses.replace(TRUST, upper_levels=(Level((0, 1, 1), (0.0, 0.0)),))
FAR = [Promise("aggregator", 6.0), Promise("released_model", 1.5)]
OWN = [Promise("super_node", 12.0), *FAR]
UPPER = [*OWN[:1], Promise("super_node", 8.0, 2), Promise("aggregator", 4.0), FAR[1]]
CASES = {
    "unequal zones": (UNEQUAL, FAR, (0, 0, 0)),
    "mixes of trust": (TRUST, OWN, (1, 6, 3)),
    "a level above": (TREE, UPPER, (0, 0, 0)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_shift_of_noise_between_parties_saves_any(case):
    federation, promises, trusting = case
    found = make(federation, promises, trusting=trusting)
    assert found.noise == pytest.approx(noise_of(found.plan), rel=1e-9)
    # Whether a plan keeps them is told apart within 1 %.
    assert all_kept(scaled(found.plan, 1.01 * found.noise), promises, trusting)
    assert not all_kept(scaled(found.plan, 0.99 * found.noise), promises, trusting)
    upper = sum(len(level.noise_multipliers) for level in found.plan.upper_levels)
    shifts = itertools.product((0.93, 1.07), repeat=2 + found.plan.num_zones + upper)
    tried = [
        scaled(times(found.plan, factors), 0.99 * found.noise)
        for factors in random.Random(0).sample(list(shifts), 12)
    ]
    assert len(set(tried)) > 4
    for plan in tried:
        assert not all_kept(plan, promises, trusting), plan


# Whatever else the plan: shares of the noise over the whole of what there may be -----

FEW = NoisePlan(
    zone_sizes=(20,) * 4, sampling=PoissonSampling((0.3,) * 4), noising_clients=(1,) * 4
)
# Looser and looser for the own super-node.
LOOSER = (6.0, 40.0)


def shared(client, zones):
    """For FEW, noise of 1 in the model, shared so; the server has the rest."""
    units = dict.fromkeys(("client", "zone", "server"), 0.0)
    for party, field in (
        ("client", {"client_noise_multiplier": 1.0}),
        ("zone", {"zone_noise_multipliers": (1.0,) * 4}),
        ("server", {"server_noise_multiplier": 1.0}),
    ):
        units[party] = noise_of(dataclasses.replace(FEW, **field))
    return dataclasses.replace(
        FEW,
        client_noise_multiplier=math.sqrt(client) / units["client"],
        zone_noise_multipliers=(math.sqrt(zones) / units["zone"],) * 4,
        server_noise_multiplier=math.sqrt(1.0 - client - zones) / units["server"],
    )


@pytest.mark.parametrize("released", [None, 2.0], ids=["two", "three"])
def test_no_share_of_the_clients_in_the_noise_is_better(released):
    """It used to be least for the client noise that the own super-node needs."""
    far = [Promise("aggregator", 6.0)]
    far += [Promise("released_model", released)] if released else []
    promises = [Promise("super_node", 40.0), *far]
    found = make(FEW, promises)
    assert (
        found.plan.client_noise_multiplier
        > 1.2 * make(FEW, promises[:1]).plan.client_noise_multiplier
    )
    shares = [i / 8 for i in range(9)]
    for client, zones in itertools.product(shares, shares):
        server = 1.0 - client - zones
        if server >= -1e-9 and (released or server < 0.1):
            plan = shared(client, min(zones, 1.0 - client))
            plan = scaled(plan, 0.99 * found.noise)
            assert not all_kept(plan, promises, (0,) * 4), plan


def test_a_looser_promise_never_costs_more_noise():
    far = {"aggregator": 6.0, "released_model": 2.0}
    own = [make(FEW, {"super_node": e, **far}).noise for e in LOOSER]
    middle = [make(FEW, {**THREE, "aggregator": e}).noise for e in (3.0, 12.0)]
    for stricter, looser in (*itertools.pairwise(own), *itertools.pairwise(middle)):
        assert looser <= 1.006 * stricter


def plan_of_any_shares(plan, chance, noise):
    """The plan with everybody's noise drawn anew, and so much in the model; or None."""

    def any_noise(_):
        return chance.random() ** chance.choice((1, 3, 8)) * chance.choice((0, 1, 1, 1))

    changed = dataclasses.replace(
        plan,
        client_noise_multiplier=any_noise(0) if any(plan.noising_clients) else 0.0,
        zone_noise_multipliers=tuple(map(any_noise, plan.zone_noise_multipliers)),
        upper_levels=tuple(
            Level(level.parents, tuple(map(any_noise, level.noise_multipliers)))
            for level in plan.upper_levels
        ),
        server_noise_multiplier=any_noise(0),
    )
    return scaled(changed, noise) if noise_of(changed) else None


@settings(max_examples=4, derandomize=True, deadline=None)
@given(federations(), st.randoms(use_true_random=False))
def test_no_other_plan_keeps_the_promises_with_less_noise(given_federation, chance):
    check_against_brute_force(*given_federation, chance, tries=12)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(federations(), st.randoms(use_true_random=False))
def test_no_other_plan_of_many_keeps_them_with_less_noise(given_federation, chance):
    check_against_brute_force(*given_federation, chance, tries=100)
