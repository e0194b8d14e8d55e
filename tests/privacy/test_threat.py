"""Threat models: what they may assume, and that nothing else of a run moves."""

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    FixedSizeSampling,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    calibrate,
    configurations,
)
from tff_hdp.privacy.threat import AccountedRound

PLAN = NoisePlan(
    zone_sizes=(10, 20, 30),
    sampling=PoissonSampling((0.2,) * 3),
    server_noise_multiplier=1.0,
)


@pytest.mark.parametrize(
    ("assumed", "words"),
    [
        ({"dropout_rate": 1.0}, "dropout_rate is 1.0; allowed"),
        ({"neighbours": "swap"}, "neighbours is swap; allowed: add_or_remove, zero"),
        ({"colluding_super_nodes": -1}, "colluding_super_nodes is -1"),
        ({"colluding_clients": 0.5}, "colluding_clients is 0.5"),
        ({"skipped_zones": -1}, "skipped_zones is -1"),
        ({"colluding_super_nodes": 4}, r"colluding_super_nodes is 4; allowed: 0\.\.3"),
        ({"colluding_clients": 60}, r"colluding_clients is 60; allowed: 0\.\.59"),
        ({"colluding_in_zone": 60}, r"colluding_in_zone is 60; allowed: 0\.\.59"),
        ({"skipped_zones": 4}, r"skipped_zones is 4; allowed: 0\.\.3"),
    ],
)
def test_what_cannot_be_assumed_is_refused_by_name_and_value(assumed, words):
    with pytest.raises(ArgumentError, match=words):
        AccountedRound(PLAN, ThreatModel(**assumed))


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"sampling": FixedSizeSampling((2, 2, 2))}, "replace_one or zero_out"),
        ({"client_noise_multiplier": 1.0, "noising_clients": (1, 0, 0)}, "zero_out"),
        ({"estimator": "bounded"}, None),
        (
            {
                "client_noise_multiplier": 1.0,
                "noising_clients": (1, 0, 0),
                "top_up": True,
            },
            None,
        ),
    ],
)
def test_add_or_remove_needs_fitting_sampling_and_noise(changes, allowed):
    fields = {"zone_sizes": PLAN.zone_sizes, "sampling": PLAN.sampling} | changes
    plan, threat = NoisePlan(**fields), ThreatModel(neighbours="add_or_remove")
    if allowed is None:
        assert AccountedRound(plan, threat).threat is threat
        return
    with pytest.raises(ArgumentError, match=allowed):
        AccountedRound(plan, threat)


def test_calibration_pays_for_what_is_assumed():
    def make(z):
        return configurations.c2(
            zone_sizes=(50,) * 4,
            sampling=PoissonSampling((0.2,) * 4),
            noise_multiplier=z,
        )

    asked = {
        "target_epsilon": 3.0,
        "observer": "released_model",
        "rounds": 50,
        "delta": 1e-5,
    }
    alone = calibrate(make, **asked)
    # Three of four super-nodes' noise gone: half the noise is left.
    colluding = calibrate(make, **asked, threat=ThreatModel(colluding_super_nodes=3))
    assert colluding == pytest.approx(2 * alone, rel=3e-4)


def test_colluders_in_a_zone_are_not_fewer_than_all_of_them_make_there():
    """Twenty in four zones: some zone has five."""
    plan = configurations.c2(
        zone_sizes=(50,) * 4,
        sampling=FixedSizeSampling((10,) * 4),
        noise_multiplier=1.0,
    )
    allowed = "at least 5, colluding_clients being 20 in 4 zones"
    for few in (0, 4):
        threat = ThreatModel(colluding_clients=20, colluding_in_zone=few)
        with pytest.raises(
            ArgumentError, match=f"colluding_in_zone is {few}.*{allowed}"
        ):
            account(plan, 1, 1e-5, ("rdp",), threat=threat)
    for enough in (5, 20, None):
        threat = ThreatModel(colluding_clients=20, colluding_in_zone=enough)
        account(plan, 1, 1e-5, ("rdp",), threat=threat)
