"""Whatever is given for an argument, it is taken or refused by its name."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

from tff_hdp.errors import ArgumentError, NoiseError
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Ledger,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    accountant,
    calibrate,
    configurations,
    planner,
    worst,
)
from tff_hdp.privacy.promises import Promise
from tff_hdp.topology import Zoning

ODD = (
    *(None, True, "x", "", b"x", -1, 0, 1, 0.5, 1.5, 1e308, 1e-320, math.nan),
    *(math.inf, 10**400, 2**63, (), [], (1,), (None,), [[1]], {}, {"a": 1}, object()),
    *(np.float32(1), np.int64(3), np.array(3), 1j, abs, set(), range(3)),
    *(np.array([1, 2]), [[], []]),
)
PLAN = configurations.c7(
    zone_sizes=(4, 4),
    noise_multiplier=1.0,
    alpha=0.5,
    beta=0.5,
    sampling=PoissonSampling((0.5, 0.5)),
)


def fields_of(value):
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def plan_of(z):
    return configurations.c2(
        zone_sizes=(4, 4), noise_multiplier=z, sampling=FullParticipation()
    )


def account_of_a_ledger(**options):
    ledger = Ledger()
    ledger.record(PLAN)
    ledger.account(**options)


SOUND = {
    "account": (
        account,
        {
            **{"plan": PLAN, "rounds": 3, "delta": 1e-5, "methods": ("rdp",)},
            "threat": ThreatModel(),
        },
    ),
    "calibrate": (
        calibrate,
        {
            **{"make_plan": plan_of, "target_epsilon": 2.0, "rounds": 2},
            **{"observer": "released_model", "client_kind": None, "delta": 1e-5},
            **{"method": "rdp", "threat": ThreatModel()},
        },
    ),
    "worst": (
        lambda **options: worst(account(PLAN, 1, 1e-5, ("rdp",)), **options),
        {"observer": "released_model", "kind": None, "method": "rdp"},
    ),
    "NoisePlan": (NoisePlan, fields_of(PLAN)),
    "ThreatModel": (ThreatModel, fields_of(ThreatModel())),
    "Level": (Level, {"parents": (0, 0), "noise_multipliers": (1.0,)}),
    "Clipping": (Clipping, fields_of(Clipping())),
    "PoissonSampling": (PoissonSampling, {"probabilities": (0.5, 0.5)}),
    "FixedSizeSampling": (FixedSizeSampling, {"sizes": (2, 2)}),
    "Promise": (Promise, {"observer": "super_node", "epsilon": 1.0, "level": 2}),
    "planner": (
        planner.plan,
        {
            "federation": plan_of(0.0),
            "promises": {"released_model": 2.0},
            **{"rounds": 3, "delta": 1e-5, "method": "rdp"},
            **{"trusting": (0, 0), "threat": ThreatModel(), "relax": False},
        },
    ),
    "record": (
        lambda **options: Ledger().record(**options),
        {"plan": PLAN, "count": 2, "threat": ThreatModel(), "events": None},
    ),
    "Ledger.account": (account_of_a_ledger, {"delta": 1e-5, "methods": ("rdp",)}),
    "Zoning": (
        Zoning,
        {
            **{"client_ids": ("a", "b"), "zone_of": (0, 1)},
            **{"parents": (), "zone_names": ("x", "y")},
        },
    ),
}


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name, (_, sound) in SOUND.items() for argument in sound],
)
def test_what_is_no_argument_is_refused(name, argument):
    call, sound = SOUND[name]
    call(**sound)
    for value in ODD:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                call(**sound | {argument: value})
            except (ArgumentError, NoiseError) as error:
                assert "\n" not in str(error) and len(str(error)) < 2000


@pytest.mark.parametrize("method", ["paper", *ODD])
def test_an_epsilon_by_no_sound_method_is_refused(method):
    row, *_ = account(PLAN, 10, 1e-5, methods=accountant.METHODS)
    if method is None:
        assert row.epsilon(method) == row.epsilon()
        return
    with pytest.raises(ArgumentError, match=r"^method is .*; allowed: rdp, pld"):
        row.epsilon(method)


def test_the_worst_of_no_rows_is_refused_in_a_whole_sentence():
    with pytest.raises(ArgumentError, match=r"^observer is aggregator; allowed: none"):
        worst([], "aggregator")


@pytest.mark.parametrize("name", ["fixd", None, "Poisson"])
def test_a_way_to_draw_that_nobody_knows_is_not_taken_for_poisson(name):
    with pytest.raises(ArgumentError, match=r"sampling is .*; allowed: poisson"):
        configurations.sampling_of(name, 2, (4, 4))
