"""Plans from files, as an attacker meets their rounds."""

import dataclasses

import pytest

from tff_hdp.attacks.config import AttackConfig
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import NoisePlan, PoissonSampling, ThreatModel, planner
from tff_hdp.privacy.planned import Planned


def test_a_planners_file_is_attacked_as_its_rounds_are(tmp_path):
    federation = NoisePlan(
        zone_sizes=(10, 30),
        sampling=PoissonSampling((0.5, 0.2)),
        noising_clients=(5, 9),
    )
    promises = {"super_node": 9.0, "aggregator": 4.0, "released_model": 1.0}
    made = planner.plan(federation, promises, rounds=1, delta=1e-5, method="rdp")
    path = tmp_path / "plan.json"
    made.write(path)
    config = AttackConfig(plan=str(path), level="1")
    plan = config.noise_plan(0.5)
    assert plan.zone_sizes == (5, 6) and plan.noising_clients == (2, 1)
    assert plan.clipping.clip_norm == 0.5
    # One of three clients that do not noise; the server has the least of either zone.
    assert config.vantage(0.5).noise_multiplier == 0
    z, zones = made.plan.client_noise_multiplier, made.plan.zone_noise_multipliers
    server = dataclasses.replace(config, level="2").vantage(0.5).noise_multiplier
    sums = (2 * z**2 + zones[0] ** 2, z**2 + zones[1] ** 2)
    assert server == pytest.approx(min(sums) ** 0.5)
    other = {"zones": 3, "privacy": "ldp", "attack": "table4", "system": "gfl"}
    for name, value in [*other.items(), ("attack", "observers")]:
        with pytest.raises(ArgumentError, match="plan"):
            dataclasses.replace(config, **{name: value})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_up": True}, "top_up True; allowed: one with top_up False"),
        ({"estimator": "bounded"}, "estimator bounded; allowed: one with estimator"),
        ({"zone_weights": (6.0, 20.0)}, "zone_weights"),
    ],
)
def test_a_plan_whose_rounds_have_more_to_them_is_refused(tmp_path, options, said):
    """Its noise would be another than that of the round attacked."""
    plan = NoisePlan(
        zone_sizes=(10, 30),
        sampling=PoissonSampling((0.5, 0.2)),
        noising_clients=(10, 30),
        client_noise_multiplier=1.0,
        **options,
    )
    path = tmp_path / "plan.json"
    Planned(plan=plan, threat=ThreatModel(), rounds=1, delta=1e-5).write(path)
    with pytest.raises(ArgumentError, match=f"plan is one with {said}"):
        AttackConfig(plan=str(path), level="1")


@pytest.mark.parametrize(
    ("size", "noising", "q", "cohort"),
    [
        # Of 22 that all noise 15 are expected, or 14.999...
        (22, 22, 15 / 22, (15, 15)),
        # As floats .29 of 100 are less than 29.
        (100, 100, 0.29, (29, 29)),
        (200, 100, 0.29, (58, 29)),
        # A client alone noises if all do.
        (9, 9, 0.05, (1, 1)),
        (9, 8, 0.05, (1, 0)),
    ],
)
def test_as_many_of_a_planned_cohort_noise_as_of_its_zone(
    tmp_path, size, noising, q, cohort
):
    plan = NoisePlan(
        zone_sizes=(size,),
        sampling=PoissonSampling((q,)),
        client_noise_multiplier=1.0,
        noising_clients=(noising,),
    )
    path = tmp_path / "plan.json"
    Planned(plan=plan, threat=ThreatModel(), rounds=1, delta=1e-5).write(path)
    found = AttackConfig(plan=str(path), level="outside").noise_plan(0.5)
    assert (*found.zone_sizes, *found.noising_clients) == cohort
