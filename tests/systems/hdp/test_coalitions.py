"""Whether Byzantine clients, and an elected super-node with them, unmask sums."""

import itertools
import math

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    coalitions,
)
from tff_hdp.privacy.coalitions import sums_hold
from tff_hdp.privacy.planned import Planned
from tff_hdp.protocols.secagg.graphs import sparse
from tff_hdp.protocols.secagg.rounds import masking_graph
from tff_hdp.systems.hdp import federation
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.planned import check_promises


def secure_config(protocol="bonawitz", *, signed=False, **options):
    return HdpConfig(
        privacy="ldp",
        noise_multiplier=1.0,
        secure_aggregation="zone",
        secure_aggregation_protocol=protocol,
        sign_messages=signed or None,
        **options,
    )


def unmasks(corrupt, others, *, signed):
    """Whether so many of a cohort hold the shares, or make the quorum, of a sum."""
    k = corrupt + others
    if signed:
        return corrupt > (k - 1) // 3
    return corrupt >= masking_graph("bonawitz", k).threshold


@pytest.mark.parametrize("elected", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("fewest", [2, 4])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize(("size", "corrupt"), [(7, 0), (7, 1), (6, 3), (7, 4), (5, 4)])
def test_how_often_a_sum_is_unmasked(
    elected, signed, fewest, sampling, loss, size, corrupt
):
    """Against all cohorts that there are, and all that may drop out of them."""
    q, k = 0.4, 4
    laws = {"poisson": PoissonSampling((q,)), "fixed": FixedSizeSampling((k,))}
    plan = NoisePlan(
        zone_sizes=(size,), sampling=laws[sampling], min_zone_clients=fewest
    )
    bears = secure_config(signed=signed).most_unmasked
    found = coalitions._unmasking(plan, 0, corrupt, loss, bears, elected)
    expected, total = 0.0, 0.0
    for came in itertools.product([False, True], repeat=size):
        n = sum(came)
        likely = q**n * (1 - q) ** (size - n) if sampling == "poisson" else n == k
        total += likely
        bad = sum(came[:corrupt])
        for left in range(n - bad + 1):
            stay = math.comb(n - bad, left) * (1 - loss) ** left
            stay *= loss ** (n - bad - left)
            # A cohort of fewer is left out.
            if bad + left < fewest:
                continue
            # An elected super-node is one of those who are not corrupt, and tells as
            # they do; or it was not drawn, or has dropped out.
            for is_in in {False, elected}:
                told, others = bad + is_in, left - is_in
                if told and others > 0 and unmasks(told, others, signed=signed):
                    expected += likely * stay
                    break
    assert found == pytest.approx(expected / total, abs=1e-12)


@pytest.mark.parametrize(
    ("bad", "protocol", "signed", "elected", "holds"),
    [
        (0, "bonawitz", False, True, True),
        (50, "bonawitz", False, False, True),
        (51, "bonawitz", False, False, False),
        (49, "bonawitz", False, True, True),
        (50, "bonawitz", False, True, False),
        (33, "bonawitz", True, False, True),
        (34, "bonawitz", True, False, False),
        (32, "bonawitz", True, True, True),
        (33, "bonawitz", True, True, False),
        (10, "graph", False, False, True),
        (11, "graph", False, False, False),
        (0, "graph", False, True, True),
        (9, "graph", False, True, True),
        (10, "graph", False, True, False),
        (51, "intrinsic", False, False, False),
    ],
)
def test_a_share_that_the_protocol_bears(bad, protocol, signed, elected, holds):
    """Of a hundred that all take part; a tenth is what sparse graphs are made for."""
    plan = NoisePlan(zone_sizes=(100,), sampling=PoissonSampling((1.0,)))
    bears = secure_config(protocol, signed=signed).most_unmasked
    assert sums_hold(plan, (bad,), 0.0, bears, elected=elected) == holds
    assert sparse(100).degree is not None


def test_where_few_are_drawn_a_smaller_share_does():
    few = NoisePlan(zone_sizes=(100,), sampling=PoissonSampling((0.1,)))
    many = NoisePlan(zone_sizes=(10_000,), sampling=PoissonSampling((0.1,)))
    most = secure_config().most_unmasked
    assert not sums_hold(few, (20,), 0.0, most)
    assert sums_hold(many, (2_000,), 0.0, most)
    assert not sums_hold(many, (2_000,), 0.7, most)


@pytest.mark.parametrize("fault_model", ["crash", "byzantine"])
def test_an_elected_super_node_among_two_or_three_that_sign_is_a_third(fault_model):
    """So their zone is left out, unless asked for: then its sum is seen in parts."""
    elects = {
        "elect_super_nodes": "rotate",
        "election_fault_model": fault_model,
        "partition": "iid",
    }
    signs = fault_model == "byzantine"
    for least, holds in ((None, True), (3, not signs), (4, True)):
        config = secure_config(min_zone_clients=least, **elects)
        plan = NoisePlan(
            zone_sizes=(50, 50),
            sampling=PoissonSampling((0.2, 0.2)),
            client_noise_multiplier=1.0,
            noising_clients=(50, 50),
            secure_aggregation=True,
            min_zone_clients=config.least_zone_clients,
        )
        assert federation._threat(config, plan).secure_sums_hold == holds
    assert config.parties_sign == signs


@pytest.mark.parametrize(
    ("protocol", "cohort", "byzantine"),
    [("bonawitz", 5, 2), ("bonawitz", 9, 4)],
)
def test_byzantine_clients_make_a_majority_with_an_elected_super_node(
    protocol, cohort, byzantine
):
    """Two of five are none, three are: they hold every secret of the other two."""
    plan = NoisePlan(
        zone_sizes=(50, 50),
        sampling=FixedSizeSampling((cohort, cohort)),
        client_noise_multiplier=1.0,
        noising_clients=(50, 50),
        secure_aggregation=True,
        min_zone_clients=2,
    )
    for elects, holds in (("none", True), ("rotate", False)):
        config = secure_config(
            protocol, elect_super_nodes=elects, byzantine=(str(byzantine / 50),)
        )
        assert federation._threat(config, plan).secure_sums_hold == holds


# Plans that assume colluders -----------------------------------------------------


def check(tmp_path, *, clients=0, super_nodes=0, skipped=0, sums, **options):
    """Checks a run of zones of fifty that all come under a plan with its colluders."""
    plan = NoisePlan(
        zone_sizes=(50,) * 10,
        sampling=FullParticipation(),
        zone_noise_multipliers=(1.0,) * 10,
        secure_aggregation=sums == "zone",
        secure_server=sums == "server",
        min_zone_clients=2 if sums == "zone" else 1,
    )
    assumed = ThreatModel(
        colluding_in_zone=clients,
        colluding_super_nodes=super_nodes,
        skipped_zones=skipped,
        peers_known=True,
    )
    file = tmp_path / "plan.json"
    Planned(
        plan=plan, threat=assumed, rounds=2, delta=1e-5, method="rdp", kept=()
    ).write(file)
    config = HdpConfig(
        plan=str(file), rounds=2, delta=1e-5, secure_aggregation=sums, **options
    )
    check_promises(config, plan, ThreatModel())


@pytest.mark.parametrize(
    ("party", "bears", "majority", "signed", "protocol"),
    [
        ("clients", 25, 26, None, "bonawitz"),
        ("clients", 16, 26, True, "bonawitz"),
        ("clients", 5, 26, None, "graph"),
        ("super_nodes", 5, 6, None, "bonawitz"),
        ("super_nodes", 3, 6, True, "bonawitz"),
        ("super_nodes", 1, 6, None, "graph"),
    ],
)
def test_a_plan_may_assume_as_many_colluders_as_its_sums_bear(
    tmp_path, party, bears, majority, signed, protocol
):
    run = {"secure_aggregation_protocol": protocol, "sign_messages": signed}
    run["sums"] = "zone" if party == "clients" else "server"
    check(tmp_path, **{party: bears}, **run)
    if bears + 1 < majority:
        with pytest.raises(
            ArgumentError, match=r"secure_aggregation_protocol is .*coll"
        ):
            check(tmp_path, **{party: bears + 1}, **run)
    # Of a majority no account relies on the sum.
    check(tmp_path, **{party: majority}, **run)


def test_a_sum_bears_fewer_colluders_where_zones_are_skipped(tmp_path):
    """Three of ten that sign cannot unmask a sum; of nine that are left they can."""
    run = {"secure_aggregation_protocol": "bonawitz", "sign_messages": True}
    run |= {"sums": "server", "super_nodes": 3}
    check(tmp_path, **run)
    with pytest.raises(ArgumentError, match=r"secure_aggregation_protocol is .*coll"):
        check(tmp_path, skipped=1, **run)
