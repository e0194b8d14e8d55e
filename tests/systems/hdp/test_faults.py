"""Schedules of faults, who is Byzantine, and what skipped zones cost."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import tasks
from tff_hdp.errors import FileError
from tff_hdp.privacy import (
    Clipping,
    Ledger,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    configurations,
    worst,
)
from tff_hdp.privacy.composition import ORDERS
from tff_hdp.systems.hdp import federation
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.faults import (
    Faults,
    byzantine_clients,
    byzantine_counts,
    parse_schedule,
)
from tff_hdp.systems.hdp.federation import threat_of_round
from tff_hdp.systems.hdp.run import Hdp
from tff_hdp.systems.hdp.seats import read_seats
from tff_hdp.topology import Zoning


@pytest.mark.parametrize(
    "content", ["", "{", "3", "[3]", "[null]", '[{"zone": 1}]', "\x00"]
)
def test_damaged_elections_are_named(tmp_path, content):
    (tmp_path / "round_00001.json").write_text(content)
    with pytest.raises(
        FileError, match=r"round_00001\.json: (holds no|not JSON)"
    ) as error:
        read_seats(tmp_path)
    assert "\n" not in str(error.value)


def test_schedules():
    assert parse_schedule(()) == ()
    assert parse_schedule(("0.1",)) == ((1, 0.1),)
    faults = Faults(byzantine=parse_schedule(("5:0.1", "20:0.3", "30:0")))
    shares = [faults.byzantine_share(number) for number in (1, 4, 5, 19, 20, 30, 99)]
    assert shares == [0.0, 0.0, 0.1, 0.1, 0.3, 0.0, 0.0]
    assert faults.largest_byzantine_share == 0.3
    assert Faults().largest_byzantine_share == 0.0


@pytest.mark.parametrize("word", ["many", "1:", ":", "0.1:2:3", "1.5:0.1"])
def test_words_that_are_no_schedule(word):
    with pytest.raises(ValueError, match=f"byzantine is {word}; allowed: SHARE"):
        parse_schedule((word,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drop_rate": 1.0}, "drop_rate is 1.0"),
        ({"drop_rate": float("nan")}, "drop_rate is nan"),
        ({"online_rate": 0.0}, "online_rate is 0.0"),
        ({"online_rate": 1e-17}, "online_rate is 1e-17; allowed: more, so that"),
        (
            {"online_rate": 1e-8, "drop_rate": 1 - 1e-9},
            "online_rate is 1e-08; allowed: more, so that with drop_rate=0.9+ some",
        ),
        ({"online_rate": 1.01}, "online_rate is 1.01"),
        ({"online_rate": float("nan")}, "online_rate is nan"),
        ({"supernode_failure_rate": -0.1}, "supernode_failure_rate is -0.1"),
        ({"byzantine": ((1, 1.0),)}, "byzantine is 1:1; allowed: shares"),
        ({"byzantine": ((0, 0.1),)}, "increasing rounds from 1 on"),
        ({"byzantine": ((5, 0.1), (5, 0.2))}, "increasing rounds from 1 on"),
    ],
)
def test_faults_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        Faults(**changes)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.floats(0, 0.99),
    st.floats(0, 0.99),
    st.integers(0, 2**32),
)
def test_a_larger_share_adds_clients(sizes, one, other, seed):
    zone_of = np.repeat(np.arange(len(sizes)), sizes)
    zoning = Zoning(tuple(map(str, range(len(zone_of)))), tuple(zone_of))
    small, large = sorted((one, other))
    few, many = (
        byzantine_clients(zoning, share, rng=np.random.default_rng(seed))
        for share in (small, large)
    )
    assert not np.any(few & ~many)
    counts = tuple(np.bincount(zone_of, many, len(sizes)).astype(int))
    assert counts == byzantine_counts(sizes, large)
    assert all(c <= large * n + 1e-6 for c, n in zip(counts, sizes, strict=True))


def test_shares_that_divide_a_zone_count_exactly():
    assert byzantine_counts((10, 20, 3), 0.3) == (3, 6, 0)


def test_byzantine_clients_are_counted_where_they_are_most():
    """In zones of 4 and 40 a quarter is 1 and 10, of whom 3 may have noised."""
    plan = NoisePlan(
        zone_sizes=(4, 40),
        sampling=PoissonSampling((0.5, 0.5)),
        client_noise_multiplier=1.0,
        noising_clients=(4, 2),
    )
    told = {"secure_aggregation_protocol": "bonawitz", "sign_messages": False}
    for secure, known in (("server", False), ("both", True)):
        config = HdpConfig(
            noise_multiplier=1.0, byzantine=("0.25",), secure_aggregation=secure, **told
        )
        threat = federation._threat(config, plan)
        assert (threat.colluding_clients, threat.colluders_in_zone) == (3, 10)
        # Only in zones do clients mask with each other.
        assert threat.peers_known == known


def test_a_target_is_met_against_whom_the_run_assumes(hdp_config, tmp_path):
    """Who knows the cohort has no amplification by sampling to reckon with."""
    config = hdp_config(
        tmp_path,
        noise_multiplier=None,
        target_epsilon=4.0,
        target_observer="aggregator",
        cohort_known=True,
    )
    task = tasks.load("digits", seed=0)
    made = federation.build_federation(
        config, task, partition_seed=0, clipping=Clipping()
    )
    rows = account(made.plan, config.rounds, config.delta, ("rdp",), threat=made.threat)
    assert 3.9 < worst(rows, "aggregator", method="rdp").epsilon_rdp <= 4.0


def test_a_zone_that_no_election_gave_a_super_node_counts_as_skipped():
    config = HdpConfig(privacy="ldp", noise_multiplier=1.0, elect_super_nodes="rotate")
    plan = configurations.c1(
        zone_sizes=(20, 20),
        sampling=PoissonSampling((0.5, 0.5)),
        noise_multiplier=1.0,
    )
    ledger, assumed = Ledger(), SimpleNamespace(threat=ThreatModel())
    system = SimpleNamespace(plan=plan, federation=assumed, config=config)
    accounted = Hdp.accounted(system, {"aggregator": None, "skipped_zones": 1})
    ledger.record(**accounted)
    assert ledger.history[0][0].threat.skipped_zones == 1


# Account ----------------------------------------------------------------------


def ldp_plan(**options):
    return configurations.c1(
        zone_sizes=(20, 30, 25),
        sampling=PoissonSampling((0.3,) * 3),
        noise_multiplier=2.0,
        **options,
    )


def test_a_skipped_zones_client_noise_is_not_counted():
    """Against the closed form: K participants of the zones that are left."""
    # Of few numbers, so that what their precision costs stays below the tolerance.
    plan = dataclasses.replace(ldp_plan(), size=10**4)
    threat = threat_of_round(ThreatModel(), plan, 1)
    rows = account(plan, 10, 1e-5, ("rdp",), threat=threat)
    rows = [r for r in rows if r.observer == "released_model"]
    assert [row.zone for row in rows] == [0, 1, 2]
    orders = np.asarray(ORDERS, float)
    for row in rows:
        # The zone skipped may be the largest of the others.
        others = {0: 20 + 25, 1: 30 + 20, 2: 25 + 20}[row.zone]
        k = 1 + np.arange(others)
        log_pmf = stats.binom.logpmf(k - 1, others - 1, 0.3)
        a = orders[:, None]
        moments = np.logaddexp.reduce(log_pmf + a * (a - 1) / (2 * 4.0 * k), axis=1)
        rdp = np.logaddexp(np.log(0.7), np.log(0.3) + moments) / (orders - 1)
        epsilon = (
            10 * rdp + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1)
        )
        assert row.epsilon_rdp == pytest.approx(epsilon.min(), rel=1e-5)


def test_skipping_never_lowers_epsilon_and_leaves_central_noise_alone():
    plan, threat = ldp_plan(), ThreatModel(dropout_rate=0.1)
    cost = []
    for skipped in (0, 1, 2, plan.num_zones):
        assumed = threat_of_round(threat, plan, skipped)
        rows = account(plan, 10, 1e-5, ("rdp",), threat=assumed)
        cost.append(worst(rows, "released_model").epsilon_rdp)
    assert cost == sorted(cost)
    assert cost[0] < cost[1] < cost[2] == cost[3]
    assert threat_of_round(threat, plan, 0) == threat
    central = configurations.c2(
        zone_sizes=(20, 30),
        sampling=PoissonSampling((0.3,) * 2),
        noise_multiplier=2.0,
    )
    assert threat_of_round(threat, central, 2) == threat
