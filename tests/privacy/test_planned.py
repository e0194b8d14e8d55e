"""A plan's file: what is written, read back and refused."""

import dataclasses
import json

import pytest

from tff_hdp.errors import FileError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    planned,
)
from tff_hdp.privacy.promises import Kept, Promise

PLAN = NoisePlan(
    zone_sizes=(20,) * 4, sampling=PoissonSampling((0.3,) * 4), noising_clients=(6,) * 4
)


@pytest.mark.parametrize(
    "sampling",
    [FullParticipation(), FixedSizeSampling((6,) * 4), PLAN.sampling],
    ids=str,
)
def test_a_plan_goes_through_its_file(tmp_path, sampling):
    plan = dataclasses.replace(PLAN, sampling=sampling, server_noise_multiplier=2.0)
    threat = ThreatModel(dropout_rate=0.05)
    kept = Kept(promise=Promise("aggregator", 3.0), epsilon=2.9, noise=1.0)
    found = planned.Planned(
        plan=plan, threat=threat, rounds=20, delta=1e-5, kept=(kept,)
    )
    path = tmp_path / "plan.json"
    found.write(path)
    read = planned.read_plan(path)
    assert read == found
    fields = json.loads(path.read_text())
    for wrong, words in (
        ({"format": None}, "format None, not 3: make it again with scripts/plan.py"),
        ({"method": "paper"}, "method is paper; allowed: rdp, pld"),
        ({"plan": {}}, "plan is"),
        ({"trusting": [1]}, "trusting is 1; allowed: 4 entries"),
        ({"trusting": ["x"]}, r"trusting\[0\] is x"),
        ({"noising": [1]}, r"noising\[0\] is 1; allowed: the id of a client"),
        ({"noise": "x"}, "noise is x; allowed: a finite number"),
        ({"kept": [fields["kept"][0] | {"epsilon": "x"}]}, "epsilon is x"),
        ({"kept": [fields["kept"][0] | {"saved": -1.0}]}, "saved is -1.0"),
        (
            {"kept": [{"promise": {"observer": "super_node", "epsilon": 1.0}}]},
            "missing 2 required",
        ),
        (
            {"plan": fields["plan"] | {"server_noise_multiplier": 1e308}},
            r"server_noise_multiplier is 1e\+308",
        ),
    ):
        path.write_text(json.dumps(fields | wrong))
        with pytest.raises(FileError, match=f"plan.json: no plan of .*{words}"):
            planned.read_plan(path)
