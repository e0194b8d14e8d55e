"""The account under secure aggregation: what the server sees, and grids."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.privacy.five_zones import DELTA, epsilon, plan_of
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Level,
    PoissonSampling,
    account,
    configurations,
    worst,
)
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.parts import MIN_STEPS
from tff_hdp.privacy.plan import plan_from_dict, plan_to_dict
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.protocols.secagg import FixedPoint, noise

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


@pytest.mark.parametrize(
    ("sums", "zones", "server"),
    [
        *(("none", False, False), ("zone", True, False)),
        *(("server", False, True), ("both", True, True)),
    ],
)
def test_a_config_asks_for_it(sums, zones, server):
    plan = AccountConfig(secure_aggregation=sums, min_zone_clients=3).noise_plan()
    assert (plan.secure_aggregation, plan.secure_server) == (zones, server)
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


@pytest.mark.parametrize(
    ("config", "name"),
    [("hdp", r"zone_noise_multipliers\[0\]"), ("cdp", "server_noise_multiplier")],
)
def test_noise_of_few_steps_is_refused_wherever_it_is_on_the_grid(config, name):
    """Of less than ten steps what is drawn is not accounted as a Gaussian."""

    def gridded(step):
        grid = FixedPoint(clip=1.0, step=step, bits=30, max_clients=50)
        return plan_of(config, encoding=grid, secure_server=True)

    gridded(0.1)
    with pytest.raises(ArgumentError, match=f"^{name} is 1.0; allowed: 0 or at least"):
        gridded(0.1001)


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
