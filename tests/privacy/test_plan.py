import math

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    NoisePlan,
    PoissonSampling,
    configurations,
)

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
        (
            {"estimator": "realised", "server_noise_multiplier": 1.0},
            "estimator is realised",
        ),
        ({"zone_weights": (11.0, 1.0, 1.0)}, r"zone_weights\[0\] is 11.0"),
        ({"upper_levels": (Level((0, 0), (1.0,)),)}, r"upper_levels\[0\].parents"),
        (
            {
                "clipping": Clipping(kind="adaptive"),
                "zone_noise_multipliers": (1.0,) * 3,
            },
            "clipping.kind is adaptive",
        ),
    ],
)
def test_bad_plans_are_refused_by_name_and_value(options, words):
    with pytest.raises(ArgumentError, match=words):
        plan(**options)


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
