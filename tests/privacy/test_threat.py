"""Threat models: what they may assume, and that nothing else of a run moves."""

import math

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    Ledger,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
    calibrate,
    configurations,
    worst,
)
from tff_hdp.privacy.divergences import gaussian_epsilon
from tff_hdp.privacy.effective_noise import noise_before_super_node, noise_in_output
from tff_hdp.privacy.threat import (
    ALL_OBSERVERS,
    AccountedRound,
    Knowledge,
    knowledge,
)
from tff_hdp.privacy.views import view

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


def test_who_colludes_where_all_noise_is_a_noising_client_that_colludes():
    """Three of a zone, of whose ten clients one at most has no noise to tell of."""

    def plan(**noise):
        return NoisePlan(
            zone_sizes=(10, 10),
            sampling=FullParticipation(),
            secure_aggregation=True,
            **noise,
        )

    noised = plan(client_noise_multiplier=1.0, noising_clients=(10, 9))
    for few in (0, 1):
        threat = ThreatModel(colluding_clients=few, colluding_in_zone=3)
        with pytest.raises(
            ArgumentError, match=f"colluding_clients is {few}.*at least 2"
        ):
            AccountedRound(noised, threat)
    AccountedRound(noised, ThreatModel(colluding_clients=2, colluding_in_zone=3))
    AccountedRound(noised, ThreatModel(colluding_in_zone=1))
    none = ThreatModel(colluding_in_zone=3)
    AccountedRound(plan(client_noise_multiplier=1.0, noising_clients=(10, 7)), none)
    AccountedRound(plan(noising_clients=(10, 10)), none)


TEN = (10, 10)
EVERYBODY = {"zone_sizes": TEN, "sampling": FullParticipation()}


@pytest.mark.parametrize("q", [0.5, 1.0])
@pytest.mark.parametrize("seen", ["cohort_known", "participation_revealed"])
def test_whose_absence_is_seen_is_told_from_one_that_is_there(q, seen):
    """Also where everybody else comes in every round."""
    sampling = PoissonSampling((q, q)) if q < 1 else FullParticipation()
    plan = configurations.c2(zone_sizes=TEN, noise_multiplier=2.0, sampling=sampling)
    threat = {"neighbours": "add_or_remove", seen: True}
    rows = account(plan, 1, 1e-5, ("rdp",), threat=ThreatModel(**threat))
    (found,) = {r for r in rows if r.observer == "aggregator"}
    assert found.epsilon_rdp is None
    assert "the observer learns who takes part" in found.assumptions
    given = ThreatModel(**threat | {"neighbours": "zero_out"})
    (found,) = {
        r
        for r in account(plan, 1, 1e-5, ("rdp",), threat=given)
        if r.observer == "aggregator"
    }
    assert found.epsilon_rdp > 0.0


def test_whose_absence_is_seen_has_no_guarantee_where_its_data_is_not():
    """Of a zone without a weight in the model."""

    def plan(weight):
        return configurations.c4(
            zone_sizes=TEN,
            sampling=PoissonSampling((0.5, 0.5)),
            noise_multiplier=2.0,
            mixing=(weight, 1.0 - weight),
        )

    def found(ledger):
        rows = ledger.account(1e-5, ("rdp",))
        (row,) = (r for r in rows if r.observer == "released_model" and not r.zone)
        return row

    for seen, epsilon in ((False, 0.0), (True, None)):
        threat = ThreatModel(neighbours="add_or_remove", participation_revealed=seen)
        ledger = Ledger()
        ledger.record(plan(0.0), threat=threat)
        assert found(ledger).epsilon_rdp == epsilon
    assert "the observer learns who takes part" in found(ledger).assumptions
    # Which relation holds of all rounds is the weaker one's.
    ledger = Ledger()
    ledger.record(plan(0.0), threat=ThreatModel(participation_revealed=True))
    ledger.record(plan(0.5))
    assert found(ledger).neighbours == "zero_out"


@pytest.mark.parametrize("secure", [False, True])
def test_a_super_node_sees_who_is_there_before_it_tops_up(secure):
    plan = configurations.c1(
        noise_multiplier=2.0, top_up=True, secure_aggregation=secure, **EVERYBODY
    )
    threat = ThreatModel(neighbours="add_or_remove")
    rows = account(plan, 1, 1e-5, ("rdp",), threat=threat)
    own = {r.epsilon_rdp for r in rows if r.observer == "super_node"}
    above = {r.epsilon_rdp for r in rows if r.observer == "aggregator"}
    assert own == {None} and None not in above


def test_a_topped_up_clients_own_share_is_no_colluders():
    """Where all come there is nothing to top up."""
    found = []
    for top_up in (False, True):
        plan = NoisePlan(
            zone_sizes=(3, 3),
            sampling=FullParticipation(),
            client_noise_multiplier=1.5,
            noising_clients=(2, 2),
            top_up=top_up,
        )
        threat = ThreatModel(colluding_clients=2)
        rows = account(plan, 1, 1e-5, ("pld",), threat=threat)
        found.append(worst(rows, "aggregator", "ldp").epsilon_pld)
    assert found[1] == pytest.approx(found[0])


def test_a_cohort_of_a_fixed_size_has_one_relation_whatever_the_size():
    """In a zone all of whose clients come one of them is replaced, too: by 2S."""
    plan = configurations.c2(
        zone_sizes=(5, 5), noise_multiplier=2.0, sampling=FixedSizeSampling((5, 2))
    )
    rows = [r for r in account(plan, 1, 1e-5) if r.observer == "aggregator"]
    assert {r.neighbours for r in rows} == {"replace_one"}
    found = rows[0].epsilon_pld
    assert found == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-3)


def test_weights_that_are_taken_as_public_are_told_of():
    given = {"noise_multiplier": 2.0, **EVERYBODY}
    words = "what zones' clients weigh together is public"
    for weights, told in ((None, False), (TEN, False), ((2.5, 10.0), True)):
        plan = configurations.c2(zone_weights=weights, **given)
        rows = account(plan, 1, 1e-5, ("rdp",))
        seen = [r for r in rows if r.epsilon_rdp is not None]
        assert {words in r.assumptions for r in seen} == {told}


def test_a_majority_of_super_nodes_takes_the_masks_off_a_sum_over_zones():
    """Two of five know their own noise; three have the shares of the others' masks."""

    def seen(colluding, *, secure, observer="aggregator"):
        plan = configurations.c2(
            zone_sizes=(10,) * 5,
            sampling=PoissonSampling((0.3,) * 5),
            noise_multiplier=1.0,
            secure_server=secure,
        )
        threat = ThreatModel(colluding_super_nodes=colluding)
        return worst(account(plan, 5, 1e-5, ("rdp",), threat=threat), observer)

    assert seen(2, secure=True).epsilon_rdp < seen(2, secure=False).epsilon_rdp
    bare = seen(3, secure=True)
    assert bare.epsilon_rdp == seen(3, secure=False).epsilon_rdp
    words = "no sum over zones is secure"
    assert words in bare.assumptions
    # Whoever gets the model alone sees no more than it says.
    released = seen(3, secure=True, observer="released_model")
    assert words not in released.assumptions


def test_a_skipped_zone_is_none_of_a_secure_sums_parties():
    """Three of seven are no majority, but of the five that are left they are."""

    def seen(skipped, *, secure):
        plan = configurations.c2(
            zone_sizes=(10,) * 7,
            sampling=FullParticipation(),
            noise_multiplier=1.0,
            secure_server=secure,
        )
        threat = ThreatModel(colluding_super_nodes=3, skipped_zones=skipped)
        return worst(account(plan, 1, 1e-5, ("rdp",), threat=threat), "aggregator")

    for skipped in (0, 1):
        sums = seen(skipped, secure=True)
        assert sums.noise_multiplier == pytest.approx(math.sqrt(7 - 3 - skipped))
    bare = seen(2, secure=True)
    assert bare.noise_multiplier == pytest.approx(1.0)
    assert bare.epsilon_rdp == seen(2, secure=False).epsilon_rdp
    assert "no sum over zones is secure" in bare.assumptions


def test_an_observer_of_whom_nothing_is_known_has_no_view():
    """Who may learn the cohort is not taken for one who does not."""
    run = AccountedRound(PLAN, ThreatModel(cohort_known=True))
    for level in (2, 3):
        with pytest.raises(ArgumentError, match="newcomer"):
            view(run, "newcomer", level, 0, False)


def test_what_every_observer_knows_is_said_or_it_sees_nothing():
    """Where it were not, an observer that knows more would count as ignorant."""
    for name in ALL_OBSERVERS:
        assert isinstance(knowledge(name), Knowledge)
    run = AccountedRound(PLAN)
    for look in (
        lambda: noise_before_super_node(run, 0, True, "allied"),
        lambda: noise_in_output(run, 2, 0, True, "allied"),
        lambda: view(run, "allied", 2, 0, True),
    ):
        with pytest.raises(
            ArgumentError, match=r"observer is allied; allowed: super_node"
        ):
            look()
