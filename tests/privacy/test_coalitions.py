"""Secure sums of zones in which many of those who take part collude."""

import pytest

from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    coalitions,
)


def super_node(sampling, colluding, *, secure=True, least=2, **threat):
    """The epsilon by RDP of a client of 50 against its own super-node."""
    plan = NoisePlan(
        zone_sizes=(50, 50),
        sampling=sampling,
        client_noise_multiplier=1.0,
        noising_clients=(50, 50),
        secure_aggregation=secure,
        min_zone_clients=least if secure else 1,
    )
    model = ThreatModel(colluding_clients=colluding, **threat)
    rows = account(plan, 20, 1e-5, ("rdp",), threat=model)
    return next(row for row in rows if row.observer == "super_node")


@pytest.mark.parametrize(
    ("sampling", "colluding", "elected", "hides"),
    [
        (FullParticipation(), 25, False, True),
        (FullParticipation(), 26, False, False),
        (FullParticipation(), 24, True, True),
        (FullParticipation(), 25, True, False),
        # Of twenty drawn, ten are at most half.
        (FixedSizeSampling((20, 20)), 10, False, True),
        (FixedSizeSampling((20, 20)), 11, False, False),
        # Some round in which two come are both colluders'.
        (PoissonSampling((0.2, 0.2)), 45, False, False),
        (PoissonSampling((0.2, 0.2)), 30, False, False),
        (PoissonSampling((0.2, 0.2)), 0, True, True),
    ],
)
def test_a_sum_that_a_majority_unmasks_is_seen_in_parts(
    sampling, colluding, elected, hides
):
    found = super_node(sampling, colluding, elected_super_nodes=elected)
    plain = super_node(sampling, colluding, secure=False, elected_super_nodes=elected)
    if hides:
        assert found.epsilon_rdp < 0.7 * plain.epsilon_rdp
        assert "sum only" in found.assumptions
    else:
        assert found.epsilon_rdp == plain.epsilon_rdp
        assert "sum only" not in found.assumptions


def test_that_any_zone_is_unmasked_is_as_likely_as_of_all_of_them():
    def plan_of(zones):
        return NoisePlan(
            zone_sizes=(400,) * zones, sampling=PoissonSampling((0.5,) * zones)
        )

    def holds(corrupt, zones):
        every = (corrupt,) * zones
        return coalitions.sums_hold(plan_of(zones), every, 0.0, coalitions.majority)

    corrupt = max(c for c in range(60, 200) if holds(c, 1))
    once = coalitions._unmasking(
        plan_of(1), 0, corrupt, 0.0, coalitions.majority, False
    )
    most = int(2.0**-60 / once)
    assert holds(corrupt, most) and not holds(corrupt, most + 1)
