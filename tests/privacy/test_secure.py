"""The account under secure aggregation: what the server sees, grids, left-out zones."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    PoissonSampling,
    ThreatModel,
    account,
    configurations,
    worst,
)
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.ledger import plan_from_dict, plan_to_dict
from tff_hdp.privacy.plan import MIN_STEPS
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.privacy.spectrum import Spectrum, binomial_pool
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.privacy.views import view
from tff_hdp.protocols.secagg import FixedPoint, noise

SIZES = (10,) * 5
SAMPLING = PoissonSampling((0.3,) * 5)
DELTA = 1e-5


def epsilon(plan, observer, rounds=20, kind=None, **assumed):
    rows = account(plan, rounds, DELTA, ("rdp",), threat=ThreatModel(**assumed))
    return worst(rows, observer, kind).epsilon_rdp


def plan_of(config, z=1.0, **options):
    options = {"zone_sizes": SIZES, "sampling": SAMPLING} | options
    return configurations.CONFIGURATIONS[config](noise_multiplier=z, **options)


# What the server sees --------------------------------------------------------


@pytest.mark.parametrize("config", ["ldp", "hdp"])
def test_secure_server_sees_what_is_released(config):
    """Without noise of its own it learns nothing beyond the released model."""
    plain, secure = plan_of(config), plan_of(config, secure_server=True)
    assert epsilon(secure, "aggregator") == epsilon(secure, "released_model")
    assert epsilon(secure, "aggregator") < epsilon(plain, "aggregator")
    assert epsilon(secure, "released_model") == epsilon(plain, "released_model")


def test_secure_server_knows_its_own_noise():
    plan = plan_of("c6", beta=0.4, secure_server=True)
    rows = account(plan, 20, DELTA, methods=("rdp",))
    multiplier = {r.observer: r.noise_multiplier for r in rows if r.zone in (None, 0)}
    assert multiplier["aggregator"] == pytest.approx(math.sqrt(2))
    assert multiplier["released_model"] == pytest.approx(math.sqrt(3))
    assert worst(rows, "aggregator").epsilon_rdp is not None


def test_secure_server_does_not_help_trusting_clients():
    assert epsilon(plan_of("cdp", secure_server=True), "aggregator") is None


def test_secure_server_cannot_hide_zones_from_colluding_super_nodes():
    plan, alone = plan_of("hdp", secure_server=True), plan_of("hdp")
    found = epsilon(plan, "aggregator", colluding_super_nodes=4)
    assert found == epsilon(alone, "aggregator")


@pytest.mark.parametrize("config", ["ldp", "hdp"])
@pytest.mark.parametrize("observer", ["super_node", "aggregator", "released_model"])
def test_secure_sums_that_do_not_hold_are_seen_as_plain_ones(config, observer):
    plan = plan_of(config, secure_server=True, secure_aggregation=True)
    found = epsilon(plan, observer, secure_sums_hold=False)
    assert found == epsilon(plan_of(config), observer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upper_levels": (Level((0, 0, 1, 1, 1), (0.0, 0.0)),)}, "upper_levels"),
        ({"estimator": "bounded"}, "estimator bounded"),
        (
            {"zone_sizes": (9,), "sampling": PoissonSampling((0.3,))},
            "secure_server is True; allowed: False with 1 zone",
        ),
        ({"mixing": "equal", "zone_weights": (5, 6, 7, 8, 9)}, "mixing equal"),
    ],
)
def test_secure_server_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        plan_of("hdp", secure_server=True, **options)


def test_a_config_asks_for_it():
    plan = AccountConfig(secure_server=True, min_zone_clients=3).noise_plan()
    assert plan.secure_server
    assert plan.min_zone_clients == 3


# Grids -----------------------------------------------------------------------


@pytest.mark.parametrize("clients", [2, 100, 1000])
def test_discrete_noise_of_ten_steps_is_accounted_as_gaussian(clients):
    """Kairouz et al.'s bound is that of a Gaussian, for any model."""
    found = noise.concentrated_epsilon(7.0, MIN_STEPS, clients, 10**12)
    assert found == pytest.approx(7.0 / (math.sqrt(clients) * MIN_STEPS), rel=1e-15)


def test_discrete_plus_continuous_noise_blurs_into_a_gaussian():
    """The density of their sum, pointwise, at the least noise allowed of each."""
    s = t = MIN_STEPS
    n = np.arange(-400, 401)
    mass = np.exp(-(n**2) / (2 * s * s))
    mass /= mass.sum()
    for y in np.linspace(0.0, 60.0, 25):
        density = (mass * stats.norm.pdf(y - n, scale=t)).sum()
        expected = stats.norm.pdf(y, scale=math.hypot(s, t))
        assert density == pytest.approx(expected, rel=1e-12)


def test_encoding_leaves_the_account_as_it_was():
    for options in ({"secure_aggregation": True}, {"secure_server": True}):
        plan = plan_of("ldp", size=1000, **options)
        encoded = with_encoding(plan, size=1000)
        for observer in ("super_node", "aggregator", "released_model"):
            ours, ideal = epsilon(encoded, observer), epsilon(plan, observer)
            assert ideal <= ours == pytest.approx(ideal, rel=1e-9)


def test_noise_on_other_grids_is_not_counted():
    options = {"secure_aggregation": True, "mixing": (0.3, 0.3, 0.2, 0.1, 0.1)}
    plan = plan_of("ldp", **options)
    encoded = with_encoding(plan, size=1000)
    assert epsilon(encoded, "released_model") > epsilon(plan, "released_model")
    rows = account(encoded, 1, DELTA, methods=("rdp",))
    first = next(r for r in rows if r.observer == "released_model" and r.zone == 0)
    assert "another grid" in first.assumptions
    # The first two zones share a grid: twice 10 clients, 30 % of whom come.
    assert first.noise_multiplier == pytest.approx(math.sqrt(20 * 0.3))


def test_noise_finer_than_the_grid_is_not_counted():
    plan = dataclasses.replace(plan_of("c3", beta=0.4), secure_aggregation=True)
    z = 0.5 * MIN_STEPS * with_encoding(plan, size=10).encoding.step
    fine = dataclasses.replace(plan, zone_noise_multipliers=(0, 0, z, z, z))
    encoded = with_encoding(fine, size=10)
    rows = account(encoded, 1, DELTA, methods=("rdp",))
    ldp = next(
        r for r in rows if (r.observer, r.client_kind) == ("released_model", "ldp")
    )
    assert "finer than the grid" in ldp.assumptions


@settings(max_examples=50, deadline=None)
@given(
    config=st.sampled_from(["ldp", "hdp", "cdp", "c6"]),
    z=st.floats(1e-3, 10.0),
    size=st.integers(1, 10**7),
    bits=st.integers(24, 32),
    server=st.booleans(),
)
def test_the_sum_and_its_noise_fit_the_ring(config, z, size, bits, server):
    options = {"beta": 0.4} if config == "c6" else {}
    secured = {"secure_server": True} if server else {"secure_aggregation": True}
    plan = plan_of(config, z, clipping=Clipping(clip_norm=0.7), **options, **secured)
    encoding = with_encoding(plan, size=size, bits=bits).encoding
    clients = 50 if server else 10
    variance = clients * z * z if config == "ldp" else 0.0
    if server and config in ("hdp", "c6"):
        variance += (5 if config == "hdp" else 2) * z * z
    room = 2 ** (bits - 1) - 1 - clients * (0.7 / encoding.step + 0.5)
    if variance == 0.0:
        assert room >= 0
        return
    steps = 0.7 * math.sqrt(variance) / encoding.step
    wraps = size * 2 * math.exp(-(room**2) / (2 * steps**2))
    assert wraps <= 2.0**-39


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encoding": FixedPoint(1.0, 1e-6, 32, 50)},
            "encoding is .* None without secure aggregation",
        ),
        (
            {"encoding": FixedPoint(1.0, 1e-6, 32, 9), "secure_aggregation": True},
            "max_clients is 9; allowed: at least 10",
        ),
        (
            {"encoding": FixedPoint(1.0, 0.2, 8, 10), "secure_aggregation": True},
            "client_noise_multiplier is 1.0",
        ),
    ],
)
def test_encoding_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        plan_of("ldp", **options)


def test_encoding_refuses_adaptive_clipping():
    plan = plan_of("cdp", clipping=Clipping(kind="adaptive"), secure_aggregation=True)
    with pytest.raises(ValueError, match="adaptive"):
        with_encoding(plan, size=10)


def test_encoding_refuses_steps_as_wide_as_the_clip_norm():
    plan = plan_of("hdp", secure_aggregation=True)
    with pytest.raises(
        ValueError, match="bits is 12; allowed: more: rounding 1000000 coordinates"
    ):
        with_encoding(plan, size=10**6, bits=12)


@pytest.mark.parametrize("estimator", ["realised", "bounded"])
def test_encoding_refuses_bits_too_few_for_weights(estimator):
    """At 16 bits a weight of 1 is (2^15 - 1) // k, here 65 and 63 of at least 64."""

    def plan_of_zone(clients, estimator):
        return configurations.none(
            zone_sizes=(clients, 10),
            sampling=FullParticipation(),
            estimator=estimator,
            secure_aggregation=True,
        )

    for clients in (500, 511):
        with_encoding(plan_of_zone(clients, estimator), size=10, bits=16)
    for clients, one in ((512, 63), (5000, 6), (40_000, 0)):
        plan = plan_of_zone(clients, estimator)
        words = f"bits is 16; .* {clients} clients .* {one} steps .* {estimator}, which"
        with pytest.raises(ArgumentError, match=words):
            with_encoding(plan, size=10, bits=16)
        # Nobody divides by weights there, which are sent as 0.
        with_encoding(plan_of_zone(clients, "fixed"), size=10, bits=16)
        with_encoding(plan, size=10)


def test_serialises():
    plan = with_encoding(
        plan_of("ldp", secure_aggregation=True, min_zone_clients=3), size=10
    )
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan


# Zones left out --------------------------------------------------------------


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


def test_what_a_grid_costs_where_clients_noise_and_where_super_nodes_do():
    """As docs/privacy.md has it, over 200 rounds."""
    sums = {"secure_aggregation": True, "secure_server": True}

    def costs(config):
        plan = plan_of(config, **sums)
        plain = epsilon(plan, "released_model", rounds=200)
        for steps in (10, 100, 1000):
            grid = FixedPoint(clip=1.0, step=1 / steps, bits=30, max_clients=50)
            gridded = dataclasses.replace(plan, encoding=grid)
            yield epsilon(gridded, "released_model", rounds=200) / plain - 1

    super_nodes, clients = (list(costs(config)) for config in ("hdp", "ldp"))
    assert 0.01 < super_nodes[0] < 0.05 and super_nodes[2] < 5e-6
    assert 0.2 < clients[0] < 1.0 and 0.002 < clients[1] < 0.02
    assert clients[2] < 0.0002
