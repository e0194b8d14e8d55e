"""Schedules of faults, who is Byzantine, and whether these unmask sums."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_hdp.errors import FileError
from tff_hdp.privacy import FixedSizeSampling, NoisePlan, PoissonSampling
from tff_hdp.protocols.secagg.graphs import sparse
from tff_hdp.protocols.secagg.rounds import masking_graph
from tff_hdp.systems.hdp import faults as hdp_faults
from tff_hdp.systems.hdp import federation
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.faults import (
    Faults,
    byzantine_clients,
    byzantine_counts,
    parse_schedule,
    sums_hold,
)
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


# Secure sums among Byzantine clients ---------------------------------------------


def secure_config(protocol="bonawitz", *, signed=False):
    return HdpConfig(
        privacy="hdp",
        noise_multiplier=1.0,
        secure_aggregation="zone",
        secure_aggregation_protocol=protocol,
        sign_messages=signed or None,
    )


def unmasks(corrupt, others, *, signed):
    """Whether so many of a cohort hold the shares, or make the quorum, of a sum."""
    k = corrupt + others
    if signed:
        return corrupt > (k - 1) // 3
    return corrupt >= masking_graph("bonawitz", k).threshold


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("fewest", [2, 4])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize(("size", "corrupt"), [(7, 1), (6, 3), (7, 4), (5, 4)])
def test_how_often_byzantine_clients_unmask_a_sum(
    signed, fewest, sampling, loss, size, corrupt
):
    """Against all cohorts that there are, and all that may drop out of them."""
    q, k = 0.4, 4
    laws = {"poisson": PoissonSampling((q,)), "fixed": FixedSizeSampling((k,))}
    plan = NoisePlan(
        zone_sizes=(size,), sampling=laws[sampling], min_zone_clients=fewest
    )
    config = secure_config(signed=signed)
    found = hdp_faults._outnumbered(plan, 0, size, corrupt, loss, config.most_unmasked)
    expected, total = 0.0, 0.0
    for came in itertools.product([False, True], repeat=size):
        n = sum(came)
        likely = q**n * (1 - q) ** (size - n) if sampling == "poisson" else n == k
        total += likely
        bad = sum(came[:corrupt])
        for left in range(n - bad + 1):
            stay = math.comb(n - bad, left) * (1 - loss) ** left
            stay *= loss ** (n - bad - left)
            # A cohort of fewer is left out; one has no fellows to share secrets with.
            if bad + left >= fewest and bad and unmasks(bad, left, signed=signed):
                expected += likely * stay
    assert found == pytest.approx(expected / total, abs=1e-12)


@pytest.mark.parametrize(
    ("bad", "protocol", "signed", "holds"),
    [
        (0, "bonawitz", False, True),
        (50, "bonawitz", False, True),
        (51, "bonawitz", False, False),
        (33, "bonawitz", True, True),
        (34, "bonawitz", True, False),
        (10, "graph", False, True),
        (11, "graph", False, False),
        (51, "intrinsic", False, False),
    ],
)
def test_a_share_that_the_protocol_bears(bad, protocol, signed, holds):
    """Of a hundred that all take part; a tenth is what sparse graphs are made for."""
    plan = NoisePlan(zone_sizes=(100,), sampling=PoissonSampling((1.0,)))
    config = secure_config(protocol, signed=signed)
    assert sums_hold(plan, (bad,), 0.0, config.most_unmasked) == holds
    assert sparse(100).degree is not None


def test_where_few_are_drawn_a_smaller_share_does():
    few = NoisePlan(zone_sizes=(100,), sampling=PoissonSampling((0.1,)))
    many = NoisePlan(zone_sizes=(10_000,), sampling=PoissonSampling((0.1,)))
    most = secure_config().most_unmasked
    assert not sums_hold(few, (20,), 0.0, most)
    assert sums_hold(many, (2_000,), 0.0, most)
    assert not sums_hold(many, (2_000,), 0.7, most)


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
