"""The account where zones with few clients are left out."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from tests.privacy.five_zones import DELTA, epsilon, plan_of
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    ThreatModel,
    account,
    worst,
)
from tff_hdp.privacy.spectrum import Spectrum, binomial_pool
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.views import view


def test_tipping_the_balance_by_brute_force():
    """One zone, hidden Poisson participation: the Renyi divergence, integrated.

    The worst case: clients all at +S, the outputs with and without one of them,
    given how many others came.
    """
    n, q, m, z, a = 6, 0.4, 3, 2.0, 4.0
    plan = plan_of(
        "hdp",
        z,
        zone_sizes=(n,),
        sampling=PoissonSampling((q,)),
        min_zone_clients=m,
    )

    def moment(shift):
        def ratio(y):
            absent = stats.norm.pdf(y, 0, z)
            present = (1 - q) * absent + q * stats.norm.pdf(y, shift, z)
            return absent * (present / absent) ** a

        return integrate.quad(ratio, -25, 40, limit=500)[0]

    expected = 0.0
    for others in range(n):
        shift = 0 if others < m - 1 else m if others == m - 1 else 1
        expected += stats.binom.pmf(others, n - 1, q) * moment(shift)
    rdp = math.log(expected) / (a - 1)
    mechanism = view(AccountedRound(plan), "released_model", 3, 0, False).mechanism
    bound = mechanism.rdp((a,))[0]
    # Rounds with fewer others are accounted as if the client's coming counted.
    slack = sum(stats.binom.pmf(c, n - 1, q) for c in range(m - 1))
    assert rdp <= bound <= math.log(expected + slack * (moment(1) - 1)) / (a - 1) + 1e-9


def test_leaving_out_costs_some_where_it_is_rare():
    zones = {"zone_sizes": (50,) * 5, "sampling": PoissonSampling((0.2,) * 5)}
    plain = epsilon(plan_of("hdp", **zones), "aggregator")
    least = epsilon(plan_of("hdp", min_zone_clients=2, **zones), "aggregator")
    assert plain < least < 1.1 * plain
    certain = plan_of("hdp", min_zone_clients=40, **zones)
    assert epsilon(certain, "aggregator") >= plain


def test_leaving_out_costs_some_where_noise_may_be_missing():
    """A zone that nobody came to has none, whether or not a client tips the balance."""
    zones = {"zone_sizes": (200,) * 2, "sampling": PoissonSampling((0.2,) * 2)}
    options = {"alpha": 0, "beta": 0.5, "secure_server": True, **zones}
    found = {}
    for least in (1, 2):
        plan = plan_of("c7", min_zone_clients=least, **options)
        rows = account(plan, 5, DELTA, ("rdp", "pld"))
        found[least] = worst(rows, "aggregator", "trusting")
    for method in ("epsilon_rdp", "epsilon_pld"):
        plain, left = (getattr(found[least], method) for least in (1, 2))
        assert plain <= left < 1.5 * plain


def test_a_zone_that_needs_all_its_clients():
    """Removing any of them takes the whole sum away: m S."""
    plan = plan_of(
        "hdp",
        zone_sizes=(4,),
        sampling=FullParticipation(),
        min_zone_clients=4,
    )
    wide = plan_of("hdp", 0.25, zone_sizes=(4,), sampling=FullParticipation())
    assert epsilon(plan, "aggregator") == pytest.approx(epsilon(wide, "aggregator"))


def test_client_noise_of_zones_left_out_does_not_count():
    plan = plan_of("ldp", min_zone_clients=3)
    assert epsilon(plan, "released_model") > epsilon(plan_of("ldp"), "released_model")
    # Against its own zone's sum the client's presence keeps the zone as it is.
    for observer in ("super_node", "aggregator"):
        assert epsilon(plan, observer) == epsilon(plan_of("ldp"), observer)


def test_pool_of_a_zone_left_out_below():
    pool = binomial_pool(1.0, 4, 0.5).left_out_below(3)
    np.testing.assert_allclose(
        np.exp(pool.log_pmf), [11 / 16, 0, 0, 4 / 16, 1 / 16], rtol=1e-12
    )


def test_zero_out_neighbours_reveal_participation():
    plan, zeroed = plan_of("hdp", min_zone_clients=2), {"neighbours": "zero_out"}
    whole = epsilon(plan_of("hdp"), "aggregator", **zeroed)
    assert epsilon(plan, "aggregator", **zeroed) > whole
    row = account(plan, 1, DELTA, ("rdp",), threat=ThreatModel(**zeroed))[-1]
    assert "revealed" in row.sampling


@pytest.mark.parametrize("privacy", ["cdp", "hdp", "ldp"])
@pytest.mark.parametrize("q", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("least", [1, 2, 4])
def test_drop_outs_that_do_not_come_are_accounted(privacy, q, least):
    """Fewer may make it likelier that a client tips the balance for its zone."""
    zones = {"zone_sizes": (20,) * 3, "sampling": PoissonSampling((q,) * 3)}
    plan = plan_of(privacy, min_zone_clients=least, **zones)
    for observer in ("aggregator", "released_model"):
        found = [
            row.epsilon_rdp
            for rate in (0.0, 0.1, 0.3, 0.6, 0.9)
            for row in account(
                plan, 20, DELTA, ("rdp",), threat=ThreatModel(dropout_rate=rate)
            )
            if row.observer == observer
        ]
        assert found == sorted(found, key=lambda e: math.inf if e is None else e)


@pytest.mark.parametrize("least", [1, 2, 5])
def test_with_skips_keeps_the_mass(least):
    plain = Spectrum((1.0, 4.0), (math.log(0.3), math.log(0.7)))
    spectrum = plain.with_skips(least=least, others=9, rates=(0.3, 0.3))
    assert sum(map(math.exp, spectrum.log_probabilities)) == pytest.approx(1.0)
    assert list(spectrum.variances) == sorted(spectrum.variances)


@pytest.mark.parametrize("colluders", [0, 1, 3, 5])
@pytest.mark.parametrize("least", [2, 4])
def test_colluders_stay_away_where_that_tips_the_balance(least, colluders):
    """Of c that are drawn as many come as make m - 1 others likeliest."""
    others, rate, outputs = 7, 0.3, Spectrum((1.0,), (0.0,))
    tips = 0.0
    for drawn in range(colluders + 1):
        chance = stats.binom.pmf(drawn, colluders, rate)
        honest = stats.binom(others - colluders, rate)
        tips += chance * max(honest.pmf(least - 1 - i) for i in range(drawn + 1))
    found = outputs.with_skips(
        least=least, others=others, rates=(rate, rate), colluders=colluders
    )
    np.testing.assert_allclose(np.exp(found.log_probabilities), [tips, 1.0 - tips])


def test_colluders_of_a_zone_that_may_be_left_out_are_accounted():
    plan = plan_of("hdp", min_zone_clients=3)
    for observer in ("aggregator", "released_model"):
        found = [epsilon(plan, observer, colluding_in_zone=c) for c in (0, 1, 3, 9)]
        assert found == sorted(set(found))
    whole = plan_of("hdp")
    assert epsilon(whole, "aggregator", colluding_in_zone=9) == epsilon(
        whole, "aggregator"
    )


def delta_where_it_is_known_who_is_online(n, k, m, z, online, epsilon):
    """Of one zone, k of n drawn, all but one client at +S and it at S or at -S.

    It is online; any other is with that probability, and the observer knows who.
    """
    y = np.linspace(-14 * z, k + 14 * z, 3000)
    total = 0.0
    for others in range(n):
        logs = []
        for own in (1, -1):
            pairs = [
                (k / n if drawn else 1 - k / n, drawn, came)
                for drawn in (0, 1)
                for came in range(k - drawn + 1)
            ]
            terms = [
                math.log(share * likely)
                + stats.norm.logpdf(y, (came + drawn * own) * (came + drawn >= m), z)
                for share, drawn, came in pairs
                if (likely := stats.hypergeom.pmf(came, n - 1, others, k - drawn)) > 0
            ]
            logs.append(np.logaddexp.reduce(terms))
        deltas = [
            (np.exp(p) * -np.expm1(np.minimum(epsilon - p + q, 0.0))).sum()
            for p, q in (logs, logs[::-1])
        ]
        total += stats.binom.pmf(others, n - 1, online) * max(deltas) * (y[1] - y[0])
    return total


@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_who_is_drawn_in_the_place_of_a_client_by_brute_force(least):
    """A cohort of a fixed size, of which it is known who is offline."""
    n, k, z, online, epsilon = 5, 4, 3.0, 0.9, 4.5
    plan = plan_of(
        "hdp",
        z,
        zone_sizes=(n,),
        sampling=FixedSizeSampling((k,)),
        min_zone_clients=least,
    )
    run = AccountedRound(plan, ThreatModel(dropout_rate=1 - online))
    seen = view(run, "released_model", 3, 0, False)
    pld = seen.mechanism.pld(1, 1e-3)
    found = delta_where_it_is_known_who_is_online(n, k, least, z, online, epsilon)
    assert found <= pld.get_delta_for_epsilon(epsilon)
    # A sum of two is no farther from none than an update is from another.
    assert ("hidden" in seen.sampling) == (least <= 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_zone_clients": 0}, "min_zone_clients is 0; allowed: 1..10"),
        ({"min_zone_clients": 11}, "min_zone_clients is 11"),
        (
            {"min_zone_clients": 11, "zone_sizes": (20, 10, 20, 20, 20)},
            "min_zone_clients is 11; allowed: 1..10",
        ),
        (
            {"min_zone_clients": 4, "sampling": FixedSizeSampling((3,) * 5)},
            "allowed: 1..3",
        ),
    ],
)
def test_min_zone_clients_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        plan_of("hdp", **options)
