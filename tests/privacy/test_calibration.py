import pytest

from tests.thinning import thinned
from tff_hdp.errors import ArgumentError, TooLittleNoiseError
from tff_hdp.privacy import (
    FullParticipation,
    NoisePlan,
    PoissonSampling,
    account,
    calibrate,
    configurations,
    worst,
)
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.secure import with_encoding

FEDERATION = {"zone_sizes": (50,) * 10, "sampling": PoissonSampling((0.2,) * 10)}
BUDGET = {"rounds": 200, "delta": 1e-5}


def maker(name, **shares):
    return lambda z: configurations.CONFIGURATIONS[name](
        noise_multiplier=z, **FEDERATION, **shares
    )


@pytest.mark.parametrize(
    ("case", "method"),
    thinned(
        [("cdp", "released_model"), ("hdp", "aggregator"), ("ldp", "released_model")],
        ["rdp", "pld"],
        every=2,
    ),
)
def test_meets_the_target_and_no_more(case, method):
    name, observer = case
    make = maker(name)
    z = calibrate(make, target_epsilon=3.0, observer=observer, method=method, **BUDGET)

    def epsilon(multiplier):
        rows = account(make(multiplier), 200, 1e-5, (method,))
        return getattr(worst(rows, observer, method=method), f"epsilon_{method}")

    assert epsilon(z) <= 3.0
    assert epsilon(z * (1 - 2e-4)) > 3.0
    assert epsilon(z) == pytest.approx(3.0, rel=5e-4)


def test_the_worst_kind_of_client_decides():
    z = calibrate(
        maker("c3", beta=0.5), target_epsilon=3.0, observer="aggregator", **BUDGET
    )
    alone = calibrate(maker("hdp"), target_epsilon=3.0, observer="aggregator", **BUDGET)
    assert z == pytest.approx(alone, rel=1e-4)


def test_exact_gaussian():
    def make(z):
        return NoisePlan(
            zone_sizes=(8,), sampling=FullParticipation(), server_noise_multiplier=z
        )

    z = calibrate(
        make,
        target_epsilon=1.5,
        observer="released_model",
        rounds=1,
        delta=1e-5,
        method="pld",
    )
    assert gaussian_epsilon(z, 1e-5) == pytest.approx(1.5, rel=3e-4)


def test_a_kind_of_client_can_be_singled_out():
    make = maker("c3", beta=0.5)
    z = {
        kind: calibrate(
            make,
            target_epsilon=3.0,
            observer="released_model",
            client_kind=kind,
            **BUDGET,
        )
        for kind in ("ldp", "hdp", None)
    }
    assert z["hdp"] < z["ldp"] == z[None]


@pytest.mark.parametrize(
    ("bits", "target", "is_met_by_the_least"),
    [(12, 10.0, True), (11, 10.0, True), (11, 1.0, False)],
)
def test_what_few_bits_carry_is_found(bits, target, is_met_by_the_least):
    """Also where z = 1, at which the search begins, is less."""

    def make(z):
        plan = configurations.c1(
            zone_sizes=(50,) * 4,
            sampling=FullParticipation(),
            noise_multiplier=z,
            secure_aggregation=True,
        )
        return with_encoding(plan, size=100, bits=bits)

    budget = {"rounds": 10, "delta": 1e-5}
    z = calibrate(make, target_epsilon=target, observer="aggregator", **budget)
    met = worst(account(make(z), methods=("rdp",), **budget), "aggregator").epsilon_rdp
    if not is_met_by_the_least:
        assert met == pytest.approx(target, rel=5e-4)
        return
    assert met < 0.9 * target
    with pytest.raises(ArgumentError, match="use more bits"):
        make(z * (1 - 2e-4))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"target_epsilon": 0.0, "observer": "released_model"},
            "target_epsilon is 0.0",
        ),
        ({"target_epsilon": 1.0, "observer": "aggregator"}, "no noise is added before"),
        ({"target_epsilon": 1e9, "observer": "released_model"}, "met even at z"),
        ({"target_epsilon": 1.0, "observer": "nobody"}, "observer is nobody"),
        (
            {"target_epsilon": 1.0, "observer": "released_model", "method": "zcdp"},
            "method is zcdp",
        ),
    ],
)
def test_targets_that_cannot_be_met(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        calibrate(maker("cdp"), **arguments, **BUDGET)


def test_where_no_noise_helps_the_observer_is_refused():
    with pytest.raises(ArgumentError, match=r"observer is super_node.*own update"):
        calibrate(maker("hdp"), target_epsilon=1.0, observer="super_node", **BUDGET)


def test_what_is_found_is_within_what_a_config_takes():
    """The targets are what multipliers on either side of the bound come to."""
    federation = {
        **{"privacy": "cdp", "clients": 10, "zones": 2, "clients_per_round": 10.0},
        **{"sampling": "full", "rounds": 10**5},
    }

    def calibrated(z):
        plan = AccountConfig(**federation).noise_plan(z)
        target = worst(account(plan, 10**5, 1e-5, ("rdp",)), "released_model")
        config = AccountConfig(**federation, calibrate=target.epsilon_rdp)
        return config.calibrated().noise_multiplier

    for z in (4e5, 9.9e5):
        assert calibrated(z) == pytest.approx(z, rel=2e-4)
    with pytest.raises(ArgumentError, match=r"^calibrate is 0\.0007.* up to 1e\+06 "):
        calibrated(1.02e6)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("hdp", r"target_epsilon is 1e-12; .* against the aggregator \(hdp clients: "),
        ("trusting", "observer is aggregator; .* protects trusting clients from"),
        (None, "observer is aggregator; .* protects trusting clients from"),
    ],
)
def test_the_reason_is_that_of_the_clients_asked_for(kind, words):
    """Super-nodes of half of the zones add noise; the rest rely on the server."""
    asked = {"target_epsilon": 1e-12, "observer": "aggregator", "client_kind": kind}
    with pytest.raises(ArgumentError, match=words):
        calibrate(maker("c6", beta=0.5), **asked, rounds=1, delta=1e-5)


def test_the_reason_is_that_of_the_rounds_and_delta_asked_for():
    """Of one round the delta would pay for there being no noise; of 200 not."""

    def make(z):
        return NoisePlan(
            zone_sizes=(80,),
            sampling=PoissonSampling((0.2,)),
            client_noise_multiplier=z,
            noising_clients=(55,),
        )

    asked = {"observer": "released_model", "client_kind": "trusting"}
    words = r"no guarantee: with a probability of up to 0\.0009"
    with pytest.raises(ArgumentError, match=words):
        calibrate(make, target_epsilon=1.0, **asked, **BUDGET)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"make_plan": maker("hdp")(1.0)}, "make_plan is NoisePlan"),
    ],
)
def test_other_arguments_that_do_not_do_are_named(changes, words):
    asked = {"make_plan": maker("hdp"), **BUDGET} | changes
    make_plan = asked.pop("make_plan")
    with pytest.raises(ArgumentError, match=words):
        calibrate(make_plan, target_epsilon=1.0, observer="released_model", **asked)


@pytest.mark.parametrize("error", [ArgumentError, TooLittleNoiseError])
def test_too_little_noise_alone_is_searched_past(error):
    """What else is wrong with a plan's noise no larger multiplier mends."""
    asked = []

    def make(z):
        asked.append(z)
        if z < 4.0:
            raise error("noise_multiplier", z, "4 or more")
        return maker("hdp")(z)

    given = {"target_epsilon": 50.0, "observer": "released_model", **BUDGET}
    if error is TooLittleNoiseError:
        assert calibrate(make, **given) == pytest.approx(4.0, rel=1e-3)
        return
    with pytest.raises(ArgumentError, match="4 or more"):
        calibrate(make, **given)
    assert len([z for z in asked if z < 4.0]) == 1
