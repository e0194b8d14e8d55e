import json
import math
import re
import warnings

import numpy as np
import pytest

from tff_hdp.errors import ArgumentError
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
    configurations,
)
from tff_hdp.privacy.accountant import worst
from tff_hdp.privacy.configurations import USERS_OF_SHARES

POISSON = PoissonSampling((0.2,) * 3)


def plan(**options):
    return NoisePlan(**{"zone_sizes": (10, 20, 30), "sampling": POISSON, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_noise_multiplier": math.nan}, "client_noise_multiplier is nan"),
        ({"server_noise_multiplier": -1.0}, "server_noise_multiplier is -1.0"),
        ({"server_noise_multiplier": math.inf}, "server_noise_multiplier is inf"),
        (
            {"zone_noise_multipliers": (1.0, -2.0, 0.0)},
            r"zone_noise_multipliers\[1\] is -2.0",
        ),
        (
            {"zone_noise_multipliers": (1.0,)},
            "zone_noise_multipliers is 1.0; allowed: 3 entries",
        ),
        ({"zone_sizes": (10, 0, 30)}, r"zone_sizes\[1\] is 0"),
        ({"zone_sizes": ()}, "zone_sizes is empty"),
        (
            {"mixing": (0.5, 0.2, 0.2)},
            "mixing is 0.5,0.2,0.2; allowed: .* sum to 1, not 0.9",
        ),
        ({"noising_clients": (11, 0, 0)}, r"noising_clients\[0\] is 11"),
        ({"sampling": FixedSizeSampling((11, 1, 1))}, r"sampling.sizes\[0\] is 11"),
        ({"sampling": FixedSizeSampling((1, 1))}, "sampling is .*; allowed: 3 entries"),
        (
            {"sampling": PoissonSampling((0.2,))},
            "sampling is .*; allowed: 3 entries",
        ),
        (
            {"estimator": "realised", "server_noise_multiplier": 1.0},
            "estimator is realised",
        ),
        ({"zone_weights": (11.0, 1.0, 1.0)}, r"zone_weights\[0\] is 11.0"),
        ({"zone_weights": (1e-300, 1.0, 1.0)}, r"zone_weights\[0\] is 1e-300"),
        ({"mixing": (1.0, 1e-200, 0.0)}, r"mixing\[1\] is 1e-200; allowed: 0, or"),
        ({"server_noise_multiplier": 1e308}, r"is 1e\+308; allowed: 0, or 1e-15..1e"),
        ({"client_noise_multiplier": 1e-160}, "client_noise_multiplier is 1e-160"),
        (
            {"zone_noise_multipliers": (1.0, 1.0, 1e200)},
            r"zone_noise_multipliers\[2\] is 1e\+200",
        ),
        ({"upper_levels": (Level((0, 0), (1.0,)),)}, r"upper_levels\[0\].parents"),
        (
            {
                "clipping": Clipping(kind="adaptive"),
                "zone_noise_multipliers": (1.0,) * 3,
            },
            "clipping.kind is adaptive; .* server alone",
        ),
        (
            {
                "clipping": Clipping(kind="adaptive"),
                "server_noise_multiplier": 1.0,
                "upper_levels": (Level((0, 0, 0), (0.0,)),),
            },
            "clipping.kind is adaptive; .* no levels between",
        ),
    ],
)
def test_bad_plans_are_refused_by_name_and_value(options, words):
    with pytest.raises(ArgumentError, match=words):
        plan(**options)


@pytest.mark.parametrize("z", [1e-15, 1e-9, 1e9])
@pytest.mark.parametrize("q", [1e-18, 1.0])
@pytest.mark.parametrize("mixing", [(1.0 - 2e-12, 1e-12, 1e-12), "weighted"])
def test_whatever_a_plan_may_hold_is_accounted(z, q, mixing):
    """At the bounds no square or quotient leaves what a float holds."""
    most = plan(
        sampling=PoissonSampling((q, 1.0, 1e-18)),
        client_noise_multiplier=1e-15,
        noising_clients=(5, 5, 5),
        zone_noise_multipliers=(z, min(1.0 / z, 1e9), 0.0),
        server_noise_multiplier=min(1.0 / z, 1e9),
        mixing=mixing,
        zone_weights=(1e-12, 20.0, 30.0),
        upper_levels=(Level((0, 0, 1), (z, min(1.0 / z, 1e9))),),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for row in account(most, 10, 1e-5, ("rdp", "pld")):
            for epsilon in (row.epsilon_rdp, row.epsilon_pld):
                assert epsilon is None or 0.0 <= epsilon < math.inf


def test_an_upper_level_of_too_much_noise_and_a_rate_next_to_0_are_refused():
    with pytest.raises(ArgumentError, match=r"noise_multipliers\[0\] is 1e\+308"):
        Level((0, 0, 0), (1e308,))
    with pytest.raises(ArgumentError, match=r"probabilities\[1\] is 1e-300"):
        PoissonSampling((0.5, 1e-300))


def test_a_clip_norm_whose_square_float32_loses_is_refused():
    with pytest.raises(ArgumentError, match=r"clip_norm is 1e-26; .* at least 1e-12"):
        Clipping(clip_norm=1e-26)
    with pytest.raises(ArgumentError, match=r"is 1e\+34; .* at most 1e\+12"):
        Clipping(clip_norm=1e34)


@pytest.mark.parametrize("q", [0.0, -0.1, 1.1, math.nan])
def test_bad_sampling_probability(q):
    with pytest.raises(ArgumentError, match=r"probabilities\[0\] is"):
        PoissonSampling((q,))


def test_denominators_and_sensitivities_of_fixed_and_bounded_estimators():
    fixed = plan(clipping=Clipping(clip_norm=3.0))
    assert fixed.denominators == pytest.approx((2.0, 4.0, 6.0))
    assert fixed.zone_sensitivities == pytest.approx((1.5, 0.75, 0.5))
    # Weighted mixing makes every client weigh the same in the release.
    assert fixed.released_sensitivities == pytest.approx((0.25,) * 3)
    bounded = plan(estimator="bounded", zone_weights=(5.0, 10.0, 15.0))
    assert bounded.zone_sensitivities == pytest.approx((2.0, 1.0, 2 / 3))


def test_configurations_put_the_noise_where_table_i_says():
    sizes = (10,) * 10
    make = configurations.CONFIGURATIONS
    common = {
        "zone_sizes": sizes,
        "sampling": FullParticipation(),
        "noise_multiplier": 2.0,
    }
    placed = {
        name: (
            [n for n in p.noising_clients if n],
            sum(z > 0 for z in p.zone_noise_multipliers),
            p.server_noise_multiplier,
        )
        for name, p in {
            "c1": make["c1"](**common),
            "c2": make["c2"](**common),
            "c3": make["c3"](**common, beta=0.4),
            "c4": make["c4"](**common),
            "c5": make["c5"](**common, alpha=0.25),
            "c6": make["c6"](**common, beta=0.7),
            "c7": make["c7"](**common, alpha=0.2, beta=0.3),
            "ldp_hdp": make["ldp_hdp"](**common, alpha=0.4),
        }.items()
    }
    assert placed["c1"] == ([10] * 10, 0, 0.0)
    assert placed["c2"] == ([], 10, 0.0)
    assert placed["c3"] == ([10] * 4, 6, 0.0)
    assert placed["c4"] == ([], 0, 2.0)
    assert placed["c5"][1:] == (0, 2.0)
    assert sum(placed["c5"][0]) == 25
    assert placed["c6"] == ([], 7, 2.0)
    assert placed["c7"] == ([10] * 3, 2, 2.0)
    assert placed["ldp_hdp"] == ([4] * 10, 10, 0.0)


@pytest.mark.parametrize(
    ("name", "shares", "words"),
    [
        ("c3", {"beta": 0.33}, "beta is 0.33"),
        ("c3", {"beta": math.nan}, "beta is nan"),
        ("c7", {"alpha": 0.6, "beta": 0.6}, "alpha is 0.6; allowed: at most 0.4"),
        ("c5", {"alpha": 1.5}, "alpha is 1.5"),
        ("ldp_hdp", {"alpha": -0.1}, "alpha is -0.1"),
        # Rounded, it is nobody: a plan of other noise than its name says.
        ("c5", {"alpha": 0.001}, "alpha is 0.001; allowed: 0, or a share of the"),
        ("ldp_hdp", {"alpha": 0.001}, "alpha is 0.001; allowed: 0, or a share of the"),
    ],
)
def test_shares_that_do_not_fit(name, shares, words):
    with pytest.raises(ArgumentError, match=words):
        configurations.CONFIGURATIONS[name](
            zone_sizes=(10,) * 10,
            sampling=FullParticipation(),
            noise_multiplier=1.0,
            **shares,
        )


@pytest.mark.parametrize("zone_sizes", [8, None, "88", (0,), (2.5,), ()])
@pytest.mark.parametrize("name", list(configurations.CONFIGURATIONS))
def test_zones_that_are_none_are_refused_by_every_configuration(name, zone_sizes):
    options = {"sampling": FullParticipation()}
    for share, users in USERS_OF_SHARES.items():
        options |= {share: 0.5} if name in users else {}
    options |= {"noise_multiplier": 1.0} if name != "none" else {}
    with pytest.raises(ArgumentError, match=r"^zone_sizes"):
        configurations.CONFIGURATIONS[name](zone_sizes=zone_sizes, **options)


@pytest.mark.parametrize("share", [None, "x", 2.0, math.nan])
@pytest.mark.parametrize("name", ["c3", "c5", "c6", "c7", "ldp_hdp"])
def test_a_share_that_is_none_is_refused_by_name(name, share):
    shares = {each: share for each, users in USERS_OF_SHARES.items() if name in users}
    with pytest.raises(ArgumentError, match=r"^(alpha|beta) is .*allowed: \[0, 1\]"):
        configurations.CONFIGURATIONS[name](
            zone_sizes=(5, 5),
            sampling=FullParticipation(),
            noise_multiplier=1.0,
            **shares,
        )


NO_NUMBERS = ("1", b"1", None, True, 1j, [1.0], np.ones(1), 10**400, 10**9999)


# What is made of a bad number, by the name that it must be refused under.
MADE_OF_NUMBERS = {
    "client_noise_multiplier": lambda v: plan(client_noise_multiplier=v),
    "zone_noise_multipliers[1]": lambda v: plan(zone_noise_multipliers=(1.0, v, 1.0)),
    "zone_sizes[0]": lambda v: plan(zone_sizes=(v, 20, 30)),
    "noising_clients[2]": lambda v: plan(noising_clients=(1, 1, v)),
    "zone_weights[0]": lambda v: plan(zone_weights=(v, 1.0, 1.0)),
    "mixing[0]": lambda v: plan(mixing=(v, 0.5, 0.5)),
    "min_zone_clients": lambda v: plan(min_zone_clients=v),
    "size": lambda v: plan(size=v),
    "probabilities[0]": lambda v: PoissonSampling((v,)),
    "sizes[0]": lambda v: FixedSizeSampling((v,)),
    "parents[1]": lambda v: Level((0, v), (1.0,)),
    "noise_multipliers[0]": lambda v: Level((0,), (v,)),
    "clip_norm": lambda v: Clipping(clip_norm=v),
    "target_quantile": lambda v: Clipping(kind="adaptive", target_quantile=v),
    "layer_norms[0]": lambda v: Clipping(kind="per_layer", layer_norms=(v,)),
    "dropout_rate": lambda v: ThreatModel(dropout_rate=v),
    "colluding_clients": lambda v: ThreatModel(colluding_clients=v),
    "delta": lambda v: account(plan(), 1, v, ("rdp",)),
    "rounds": lambda v: account(plan(), v, 1e-5, ("rdp",)),
}


@pytest.mark.parametrize("name", MADE_OF_NUMBERS)
def test_what_is_no_number_is_refused_by_name(name):
    """NaN, infinity, text, truth values, arrays, numbers that no float has."""
    make = MADE_OF_NUMBERS[name]
    for value in (math.nan, math.inf, -1, *NO_NUMBERS):
        with pytest.raises(ArgumentError, match=f"^{re.escape(name)} is "):
            make(value)


@pytest.mark.parametrize("value", ["False", "True", 0, 1, 0.5, None, math.nan])
def test_a_flag_is_true_or_false_and_nothing_like_it(value):
    """Text is true: 'False' would claim what was not done."""
    for name in ("secure_aggregation", "secure_server", "top_up"):
        with pytest.raises(ArgumentError, match=f"{name} is .*; allowed: True or"):
            plan(**{name: value})
    for name in (
        *("cohort_known", "peers_known", "participation_revealed"),
        *("elected_super_nodes", "secure_sums_hold"),
    ):
        with pytest.raises(ArgumentError, match=f"{name} is .*; allowed: True or"):
            ThreatModel(**{name: value})
    assert plan(secure_aggregation=np.bool_(True)).secure_aggregation is True


def test_a_plan_of_numpys_numbers_is_json():
    numpys = plan(
        client_noise_multiplier=np.float32(1.5),
        noising_clients=np.array([1, 2, 3]),
        zone_noise_multipliers=(np.float64(1.0), np.float32(0.5), np.int64(2)),
        zone_weights=np.array([5.0, 6.0, 7.0], np.float32),
        mixing=(np.float32(0.5), np.float32(0.25), np.float32(0.25)),
        min_zone_clients=np.int8(1),
        upper_levels=(Level(np.array([0, 0, 1]), np.array([1.0, 2.0])),),
        clipping=Clipping(clip_norm=np.float32(0.5), target_quantile=np.float64(0.5)),
        size=np.int32(100),
    )
    ledger, again = Ledger(), Ledger()
    threat = ThreatModel(colluding_clients=np.int64(1), dropout_rate=np.float32(0.25))
    ledger.record(numpys, np.int64(2), threat=threat)
    again.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert again == ledger


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"upper_levels": 1}, "upper_levels"),
        ({"upper_levels": (None,)}, r"upper_levels\[0\]"),
        ({"clipping": 1.0}, "clipping"),
        ({"sampling": 0.2}, "sampling"),
        ({"zone_sizes": 10}, "zone_sizes"),
        ({"zone_noise_multipliers": "abc"}, "zone_noise_multipliers"),
        (
            {"zone_noise_multipliers": {1.0: 0, 2.0: 0, 3.0: 0}},
            "zone_noise_multipliers",
        ),
        ({"zone_sizes": {10, 20, 30}}, "zone_sizes"),
        ({"encoding": "x", "secure_aggregation": True}, "encoding"),
        ({"estimator": np.array(["fixed", "bounded"])}, "estimator"),
    ],
)
def test_parts_of_another_type_are_refused_by_name(given, name):
    with pytest.raises(ArgumentError, match=f"^{name} is"):
        plan(**given)


def test_words_that_are_arrays_are_refused_by_name():
    words = np.array(["zero_out", "add_or_remove"])
    for name, make in (
        ("kind", lambda: Clipping(kind=words)),
        ("source", lambda: Clipping(source={})),
        ("neighbours", lambda: ThreatModel(neighbours=words)),
        ("observer", lambda: worst([], words)),
    ):
        with pytest.raises(ArgumentError, match=f"^{name} is"):
            make()


def test_lists_are_as_good_as_tuples():
    lists = plan(
        zone_sizes=[10, 20, 30],
        zone_noise_multipliers=[1.0, 1.0, 1.0],
        upper_levels=[Level([0, 0, 1], [1.0, 1.0])],
    )
    tuples = plan(
        zone_noise_multipliers=(1.0,) * 3,
        upper_levels=(Level((0, 0, 1), (1.0, 1.0)),),
    )
    assert account(lists, 1, 1e-5, ("rdp",)) == account(tuples, 1, 1e-5, ("rdp",))


def test_an_account_is_of_a_plan_under_a_threat_model():
    for given in (None, {}, "plan"):
        with pytest.raises(ArgumentError, match=r"plan is .*; allowed: a NoisePlan"):
            account(given, 1, 1e-5)
        with pytest.raises(
            ArgumentError, match=r"threat is .*; allowed: a ThreatModel"
        ):
            account(plan(), 1, 1e-5, threat=given)
