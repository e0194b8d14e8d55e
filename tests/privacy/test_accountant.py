"""Epsilon of noise plans: reference values, sampling, neighbours, and extremes."""

import dataclasses
import math
import subprocess
import sys
import time

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    AccountRow,
    FixedSizeSampling,
    FullParticipation,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    accountant,
    configurations,
)
from tff_hdp.privacy.accountant import SOUND, account_history, client_row
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.threat import AccountedRound

T, DELTA = 200, 1e-5
CIFAR = {"zone_sizes": (50,) * 10, "sampling": PoissonSampling((0.2,) * 10)}
EMNIST_SIZES = (339,) * 3 + (338,) * 7
EMNIST = {
    "zone_sizes": EMNIST_SIZES,
    "sampling": PoissonSampling((100 / 3383,) * 10),
}
RDP = ("rdp",)


def make(name, *, z=1.0, **options):
    return configurations.CONFIGURATIONS[name](noise_multiplier=z, **CIFAR | options)


# Reference values ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("federation", "z", "rounds", "paper", "rdp", "pld"),
    [
        (CIFAR, 1.0, 200, 24.807369, 23.421075, 21.540954),
        (CIFAR, math.sqrt(10), 200, 5.00882, 4.436601, 4.080298),
        (CIFAR, 10.0, 200, 1.41985, 1.175773, 1.074669),
        (EMNIST, 1.0, 101, 3.063724, 2.523051, 2.095522),
        (EMNIST, 1.0, 200, 3.809791, 3.192013, 2.762865),
    ],
)
def test_central_noise_reference(row, federation, z, rounds, paper, rdp, pld):
    rows = account(make("cdp", z=z, **federation), rounds, DELTA)
    released = row(rows, "released_model")
    assert released.noise_multiplier == pytest.approx(z)
    assert released.epsilon_paper == pytest.approx(paper, rel=1e-5)
    assert released.epsilon_rdp == pytest.approx(rdp, rel=1e-4)
    assert released.epsilon_pld == pytest.approx(pld, rel=1e-4)
    assert released.neighbours == "add_or_remove"


def test_one_in_sixty_reference(row):
    plan = NoisePlan(
        zone_sizes=(6000,),
        sampling=PoissonSampling((1 / 60,)),
        server_noise_multiplier=1.54,
    )
    released = row(account(plan, T, DELTA), "released_model")
    assert released.epsilon_paper == pytest.approx(1.000551, rel=1e-5)
    assert released.epsilon_rdp == pytest.approx(0.773370, rel=1e-4)
    assert released.epsilon_pld == pytest.approx(0.680574, rel=1e-4)


def test_participant_carried_noise_reference(row):
    rows = account(make("ldp"), T, DELTA, RDP)
    assert row(rows, "super_node").epsilon_rdp == pytest.approx(55.83, rel=5e-4)
    assert row(rows, "aggregator").epsilon_rdp == pytest.approx(11.659, rel=5e-4)
    assert row(rows, "released_model").epsilon_rdp == pytest.approx(2.9643, rel=5e-4)
    emnist = account(make("ldp", **EMNIST), T, DELTA, RDP)
    found = row(emnist, "released_model").epsilon_rdp
    assert found == pytest.approx(1.2315, rel=5e-4)
    c3 = account(make("c3", beta=0.5), T, DELTA, RDP)
    found = row(c3, "released_model", "ldp").epsilon_rdp
    assert found == pytest.approx(4.1674, rel=5e-4)
    assert {r.neighbours for r in rows} == {"zero_out"}


@pytest.mark.parametrize(
    ("name", "shares", "multiplier"),
    [
        ("c1", {}, 10),
        ("c2", {}, 3.162278),
        ("c3", {"beta": 0.5}, 7.416198),
        ("c4", {}, 1),
        ("c5", {"alpha": 0.5}, 7.141428),
        ("c6", {"beta": 0.5}, 2.449490),
        ("c7", {"alpha": 0.3, "beta": 0.3}, 5.830952),
        # The root of 0.5 * 100 + 10.
        ("ldp_hdp", {"alpha": 0.5}, 7.745967),
    ],
)
def test_table_i_multipliers(name, shares, multiplier):
    rows = account(make(name, **shares), T, DELTA, methods=())
    released = [r for r in rows if r.observer == "released_model"]
    assert released
    for r in released:
        assert r.noise_multiplier == pytest.approx(multiplier, abs=5e-7)


def test_paper_formula_of_table_iii(row):
    hdp = account(make("hdp"), T, DELTA, ("paper",))
    ldp = account(make("ldp"), T, DELTA, ("paper",))
    assert row(hdp, "released_model").epsilon_paper == pytest.approx(7.84478, rel=1e-5)
    assert row(ldp, "released_model").epsilon_paper == pytest.approx(2.48074, rel=1e-5)


# Sampling and neighbours --------------------------------------------------------


def test_full_participation_is_the_exact_gaussian(row):
    plan = NoisePlan(
        zone_sizes=(8,), sampling=FullParticipation(), server_noise_multiplier=3.0
    )
    r = row(account(plan, 40, DELTA), "released_model")
    exact = gaussian_epsilon(3.0 / math.sqrt(40), DELTA)
    assert r.epsilon_pld == pytest.approx(exact, rel=2e-5)
    assert exact <= r.epsilon_rdp < 1.1 * exact


def test_replacing_is_twice_as_far_as_zeroing(row):
    options = {
        "zone_sizes": (8,),
        "sampling": FullParticipation(),
        "server_noise_multiplier": 3.0,
    }
    threat = ThreatModel(neighbours="replace_one")
    r = row(account(NoisePlan(**options), 40, DELTA, threat=threat), "released_model")
    assert r.epsilon_pld == pytest.approx(
        gaussian_epsilon(1.5 / math.sqrt(40), DELTA), rel=2e-5
    )


def test_fixed_size_is_accounted_without_replacement(row):
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    plan = make("cdp", z=4.0, sampling=FixedSizeSampling((10,) * 10))
    r = row(account(plan, T, DELTA), "released_model")
    assert r.neighbours == "replace_one"
    assert r.epsilon_pld < r.epsilon_rdp
    assert "10 of 50 clients" in r.sampling
    # A client of a zone competes with its zone only.
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        50, 10, dp_accounting.GaussianDpEvent(2.0)
    )
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    theirs = RdpAccountant(neighboring_relation=relation).compose(event, T)
    assert r.epsilon_rdp == pytest.approx(theirs.get_epsilon(DELTA), rel=0.01)
    assert r.epsilon_rdp <= theirs.get_epsilon(DELTA) * (1 + 1e-6)


def test_fixed_cohorts_of_noising_clients_carry_a_fixed_noise(row):
    sampling = FixedSizeSampling((10,) * 10)
    rows = account(make("ldp", sampling=sampling), T, DELTA, RDP)
    r = row(rows, "released_model")
    assert r.noise_multiplier == pytest.approx(math.sqrt(100) / 2)
    assert "hidden" in r.sampling
    plan, threat = make("ldp", sampling=sampling), ThreatModel(dropout_rate=0.1)
    r = row(account(plan, T, DELTA, RDP, threat=threat), "released_model")
    assert "revealed" in r.sampling


@pytest.mark.parametrize(
    ("options", "neighbours", "words"),
    [
        ({}, "add_or_remove", "neighbours is add_or_remove; .* participants carry"),
        (
            {"estimator": "bounded"},
            "replace_one",
            "neighbours is replace_one; .* estimator bounded",
        ),
        ({"top_up": True, "estimator": "bounded"}, None, "top_up is True"),
    ],
)
def test_what_cannot_be_sound_is_refused(options, neighbours, words):
    with pytest.raises(ArgumentError, match=words):
        threat = ThreatModel(neighbours=neighbours)
        account(make("ldp", **options), T, DELTA, threat=threat)


def test_add_or_remove_of_fixed_cohorts_is_refused():
    sampling = FixedSizeSampling((10,) * 10)
    plan = make("cdp", sampling=sampling)
    with pytest.raises(ArgumentError, match="cohorts of a fixed size"):
        account(plan, T, DELTA, threat=ThreatModel(neighbours="add_or_remove"))


def test_presence_shows_where_participation_does(row):
    threat = ThreatModel(cohort_known=True, neighbours="add_or_remove")
    seen = row(account(make("hdp"), T, DELTA, threat=threat), "aggregator")
    assert seen.epsilon_rdp is None
    assert "learns who takes part" in seen.assumptions


def test_dropouts_only_ever_cost(row):
    whole = row(account(make("ldp"), T, DELTA, RDP), "released_model")
    for rate in (0.1, 0.5):
        threat = ThreatModel(dropout_rate=rate)
        rows = account(make("ldp"), T, DELTA, RDP, threat=threat)
        r = row(rows, "released_model")
        assert r.noise_multiplier == pytest.approx(10 * math.sqrt(1 - rate))
        assert r.epsilon_rdp > whole.epsilon_rdp


# Clients of one kind with other histories ---------------------------------------


def two_plans(first, last, rounds=1):
    """Rounds of one zone's plan and one round of another's, from (z, noising, server).

    Of 20 clients the first 10 may carry noise in both.
    """

    def run(z, noising, server):
        plan = NoisePlan(
            zone_sizes=(20,),
            sampling=PoissonSampling((0.3,)),
            client_noise_multiplier=z,
            noising_clients=(noising,),
            server_noise_multiplier=server,
            size=1000,
        )
        return AccountedRound(plan)

    return [(run(*first), rounds), (run(*last), 1)]


def released(history, methods=SOUND):
    """Rows against who gets the model: the account's, and those of both clients."""
    rows = account_history(history, DELTA, methods)
    of = {"observer": "released_model", "level": 3, "zone": 0}
    each = [
        client_row(history, index=index, delta=DELTA, methods=methods, **of)
        for index in (0, 10)
    ]
    return [r for r in rows if r.observer == "released_model"], each


@pytest.mark.parametrize(
    ("history", "several"),
    [
        # More by RDP is who noises later, by PLD who always does.
        (two_plans((1.5, 10, 0.793), (1.5, 20, 1000.0), rounds=50), True),
        # Who always noises has more by both.
        (two_plans((1.5, 10, 1.0), (1.5, 20, 1000.0), rounds=50), False),
        # Who never noised has more, but only that account is of added clients.
        (two_plans((4.0, 10, 1.0), (0.0, 0, 5.0)), True),
        # Who did not noise at first was promised nothing then.
        (two_plans((1.5, 10, 0.0), (1.5, 20, 1.0)), False),
    ],
)
def test_no_row_states_less_of_a_client_than_its_own_account(history, several):
    rows, each = released(history)
    assert each[0].client_kind == each[1].client_kind
    assert len(rows) == 1 + several
    assert set(rows) <= set(each)
    for client in each:
        assert any(
            (row.neighbours == client.neighbours or row.epsilon_rdp is None)
            and row.epsilon("rdp") >= client.epsilon("rdp")
            and row.epsilon("pld") >= client.epsilon("pld")
            for row in rows
        )


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ((3.0, None), (4.0, 2.0), [0, 1]),
        ((4.0, 2.0), (3.0, None), [0, 1]),
        ((4.0, None), (3.0, 2.0), [0]),
        ((3.0, 2.0), (4.0, 2.0), [1]),
        ((None, 2.0), (None, None), [1]),
    ],
)
def test_no_guarantee_by_a_method_counts_as_the_largest_epsilon(
    monkeypatch, first, second, kept
):
    history = two_plans((1.5, 10, 1.0), (1.5, 20, 1.0))
    _, (row, _) = released(history, methods=())
    each = [
        dataclasses.replace(row, epsilon_rdp=rdp, epsilon_pld=pld)
        for rdp, pld in (first, second)
    ]
    monkeypatch.setattr(accountant, "client_row", lambda _, **by: each[by["index"] > 0])
    found = account_history(history, DELTA)
    assert set(found) == {each[index] for index in kept}


# Numbers ------------------------------------------------------------------------


def test_no_rounds_cost_nothing(row):
    assert row(account(make("cdp"), 0, DELTA), "released_model").epsilon_rdp == 0.0


def test_tiny_epsilon_does_not_bottom_out(row):
    # On orders up to 1024 Renyi DP cannot go below about 0.0035 at this delta.
    plan = make("cdp", z=2000.0)
    r = row(account(plan, 10, DELTA), "released_model")
    assert 0 < r.epsilon_pld <= r.epsilon_rdp < 1e-3


def test_huge_epsilon_stays_finite_and_ordered(row):
    plan = make("cdp", z=0.05)
    r = row(account(plan, 10, DELTA), "released_model")
    assert 500 < r.epsilon_pld <= r.epsilon_rdp < 5000
    useless = row(account(make("cdp", z=1e-6), 10, DELTA), "released_model")
    assert useless.epsilon_pld is None
    assert "noise too small for PLD" in useless.assumptions


@pytest.mark.filterwarnings("error")
def test_losses_beyond_what_floats_hold():
    """e^epsilon / q overflows where a client hardly ever comes and noise is tiny."""
    plan = NoisePlan(
        zone_sizes=(3,),
        sampling=PoissonSampling((1e-5,)),
        noising_clients=(2,),
        client_noise_multiplier=0.8,
        zone_noise_multipliers=(0.0175,),
    )
    # It comes with probability delta, and nothing is promised if it does.
    for delta, low, high in ((DELTA, 0.0, 1e-3), (1e-6, 100.0, math.inf)):
        (trusting,) = (
            r.epsilon_pld
            for r in account(plan, 1, delta, ("pld",))
            if (r.observer, r.client_kind) == ("released_model", "hdp")
        )
        assert low < trusting < high


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.5, DELTA), "rounds is 1.5"),
        ((-1, DELTA), "rounds is -1"),
        ((10, 0.0), "delta is 0.0"),
        ((10, 1.0), "delta is 1.0"),
        ((10, math.nan), "delta is nan"),
        ((10, DELTA, ("moments",)), "methods is moments"),
        ((10, DELTA, "rdp"), "methods is 'rdp'"),
        ((10, DELTA, None), "methods is None; allowed: a sequence"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        account(make("cdp"), *arguments)


def test_rows_are_json():
    import json

    rows = account(make("c7", alpha=0.3, beta=0.3), T, DELTA)
    text = json.dumps([r.to_dict() for r in rows], allow_nan=False)
    assert AccountRow(**json.loads(text)[0]) == rows[0]


@pytest.mark.parametrize(("method", "seconds"), [("rdp", 12.0), ("pld", 60.0)])
def test_large_table_is_fast(method, seconds):
    federation = {"zone_sizes": (30,) * 50, "sampling": PoissonSampling((0.2,) * 50)}
    start = time.process_time()
    for name, shares in {
        "c1": {},
        "c2": {},
        "c3": {"beta": 0.5},
        "c4": {},
        "c5": {"alpha": 0.5},
        "c6": {"beta": 0.5},
        "c7": {"alpha": 0.3, "beta": 0.3},
    }.items():
        plan = make(name, z=1.1, **federation, **shares)
        assert account(plan, 1000, DELTA, (method,))
    assert time.process_time() - start < seconds


def test_imports_leave_out_what_takes_long():
    """Config and threat show a command line's help; the accountant waits for a PLD."""
    code = (
        "import sys; import tff_hdp.privacy.config, tff_hdp.privacy.threat; "
        "assert not {'scipy', 'dp_accounting'} & set(sys.modules); "
        "import tff_hdp.privacy.accountant, tff_hdp.privacy.ledger; "
        "import tff_hdp.privacy.planner; "
        "found = {'scipy.stats', 'scipy.optimize', 'dp_accounting', 'pandas', "
        "'tensorflow', 'matplotlib'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
