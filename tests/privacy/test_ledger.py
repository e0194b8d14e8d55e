import dataclasses
import functools
import json

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import stats

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
    worst,
)
from tff_hdp.privacy.accountant import account_history
from tff_hdp.privacy.divergences import gaussian_delta
from tff_hdp.privacy.plan import plan_from_dict, plan_to_dict
from tff_hdp.privacy.threat import ALL_OBSERVERS, AccountedRound
from tff_hdp.protocols.secagg import FixedPoint

DELTA = 1e-5
FEDERATION = {"zone_sizes": (50,) * 4, "sampling": PoissonSampling((0.2,) * 4)}
Gaussian = dp_accounting.GaussianDpEvent


def make(name, z=1.0, **options):
    return configurations.CONFIGURATIONS[name](
        noise_multiplier=z, **FEDERATION, **options
    )


def epsilon(rows, observer="released_model", method="rdp"):
    return next(getattr(r, f"epsilon_{method}") for r in rows if r.observer == observer)


def test_rounds_one_by_one_are_the_account_of_them_all():
    ledger = Ledger()
    for _ in range(30):
        ledger.record(make("hdp"))
    assert ledger.rounds == 30
    assert ledger.account(DELTA) == account(make("hdp"), 30, DELTA)


def test_resumed_ledger_goes_on_exactly():
    ledger = Ledger()
    ledger.record(make("hdp", z=0.1 + 0.2), 17)
    resumed = Ledger()
    resumed.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert resumed == ledger
    for each in (ledger, resumed):
        each.record(make("hdp", z=0.1 + 0.2), 3)
        each.record(make("cdp"), 5)
    assert resumed == ledger
    assert len(ledger.history) == 2
    assert resumed.account(DELTA) == ledger.account(DELTA)


def test_rounds_under_different_plans_compose_as_dp_accounting_does():
    ledger = Ledger()
    ledger.record(make("hdp", z=2.0), 40)
    ledger.record(make("cdp", z=3.0), 60)
    # The release carried 2 sqrt(4), then 3.
    event = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(0.2, Gaussian(z)), count
            )
            for z, count in ((4.0, 40), (3.0, 60))
        ]
    )
    rows = [r for r in ledger.account(DELTA) if r.observer == "released_model"]
    rdp = RdpAccountant().compose(event).get_epsilon(DELTA)
    pld = PLDAccountant().compose(event).get_epsilon(DELTA)
    assert rows[0].epsilon_rdp == pytest.approx(rdp, rel=1e-3)
    assert rows[0].epsilon_rdp <= rdp * (1 + 1e-5)
    assert rows[0].epsilon_pld == pytest.approx(pld, rel=1e-4)
    # 40 rounds were private against the aggregator, 60 were not.
    aggregator = [r for r in ledger.account(DELTA) if r.observer == "aggregator"]
    assert aggregator[0].epsilon_rdp is None


@pytest.mark.parametrize(
    ("carried", "fellows"),
    [("hdp", {"fellow_super_node"}), ("ldp", {"fellow_super_node", "fellow_client"})],
)
def test_who_knew_noise_of_its_own_looks_whatever_plan_is_last(carried, fellows):
    """Fellows are observers of the first plan only; turned, of the last one only."""
    runs = [(make(carried, z=2.0), 20), (make("cdp"), 1)]
    found = []
    for history in (runs, runs[::-1]):
        ledger = Ledger()
        for plan, count in history:
            ledger.record(plan, count)
        rows = ledger.account(DELTA, ("rdp",))
        found.append([(r.observer, r.level, r.epsilon_rdp) for r in rows])
    order = [observer for observer in ALL_OBSERVERS if observer in fellows]
    seen = ["super_node", "aggregator", "released_model", *order]
    for each, turned in zip(*found, strict=True):
        assert each[:2] == turned[:2]
        assert each[2] == pytest.approx(turned[2], rel=1e-12)
    assert [observer for observer, *_ in found[0]] == seen
    epsilons = {observer: epsilon for observer, _, epsilon in found[0]}
    for fellow in fellows:
        assert epsilons[fellow] > epsilons["released_model"]


def test_each_round_is_accounted_under_its_own_threat_model():
    """Two rounds in which a zone was skipped, of five."""
    plan, skipped = make("ldp", z=2.0), ThreatModel(skipped_zones=1)
    ledger = Ledger()
    ledger.record(plan, 3)
    ledger.record(plan, 2, threat=skipped)
    assert [count for _, count in ledger.history] == [3, 2]
    whole, fewer = (
        epsilon(account(plan, 5, DELTA, ("rdp",), threat=threat))
        for threat in (ThreatModel(), skipped)
    )
    assert whole < epsilon(ledger.account(DELTA, ("rdp",))) < fewer
    (released,) = [
        r for r in ledger.account(DELTA, ()) if r.observer == "released_model"
    ]
    assert "1 other zones were skipped" in released.assumptions


def test_assumptions_that_do_not_fit_are_not_recorded():
    ledger = Ledger()
    with pytest.raises(ArgumentError, match=r"skipped_zones is 5; allowed: 0\.\.4"):
        ledger.record(make("ldp"), threat=ThreatModel(skipped_zones=5))
    assert ledger.rounds == 0


def test_client_that_changes_kind_keeps_its_history():
    before = NoisePlan(
        **FEDERATION, client_noise_multiplier=2.0, noising_clients=(20,) * 4
    )
    after = dataclasses.replace(before, noising_clients=(30,) * 4)
    ledger = Ledger()
    ledger.record(before, 5)
    ledger.record(after, 5)
    rows = ledger.account(DELTA, ("rdp",))
    # Ten clients a zone sent bare updates at first, so ldp is as weak as they are.
    own = [r for r in rows if r.observer == "super_node" and r.client_kind == "ldp"]
    assert [r.epsilon_rdp for r in own] == [None]


def test_other_zones_and_other_relations_do_not_compose():
    ledger = Ledger()
    ledger.record(make("cdp"))
    other = NoisePlan(
        zone_sizes=(100, 100), sampling=FullParticipation(), server_noise_multiplier=1.0
    )
    with pytest.raises(ValueError, match=r"plan\.zone_sizes is"):
        ledger.record(other)
    fixed = dataclasses.replace(make("cdp"), sampling=FixedSizeSampling((10,) * 4))
    ledger.record(fixed)
    released = [r for r in ledger.account(DELTA) if r.observer == "released_model"]
    assert released[0].epsilon_rdp is None
    assert "do not compose" in released[0].assumptions


def test_other_levels_do_not_compose():
    """Level 3 is the server of one plan, and who gets the model of the other."""
    flat = make("cdp")
    tall = dataclasses.replace(flat, upper_levels=(Level((0, 0, 1, 1), (0.0, 0.0)),))
    for first, second, count in ((flat, tall, 0), (tall, flat, 1)):
        ledger = Ledger()
        ledger.record(first)
        words = rf"^plan\.upper_levels is .*{count} levels, as in earlier rounds"
        with pytest.raises(ArgumentError, match=words):
            ledger.record(second)
        assert ledger.rounds == 1


def test_empty_ledger_and_foreign_state():
    with pytest.raises(ValueError, match="0 rounds"):
        Ledger().account(DELTA)
    again = Ledger()
    again.load_state_dict(json.loads(json.dumps(Ledger().state_dict())))
    assert again.rounds == 0
    ledger = Ledger()
    ledger.record(make("cdp"), 2)
    for other in (1, 99):
        words = rf"^state\['format'\] is {other}; allowed: 3; rounds that another .*$"
        with pytest.raises(ArgumentError, match=words):
            ledger.load_state_dict({"format": other, "history": []})
    assert ledger.rounds == 2
    for other in (None, 3, [1]):
        with pytest.raises(
            ArgumentError, match=r"^state is .* what state_dict returned"
        ):
            ledger.load_state_dict(other)
    with pytest.raises(ValueError, match="count is -1"):
        ledger.record(make("cdp"), -1)


@pytest.mark.parametrize(
    "sampling",
    [PoissonSampling((0.1, 1 / 3)), FixedSizeSampling((2, 3)), FullParticipation()],
)
def test_plans_survive_json(sampling):
    plan = NoisePlan(
        zone_sizes=(10, 30),
        sampling=sampling,
        client_noise_multiplier=0.1,
        noising_clients=(3, 0),
        zone_noise_multipliers=(0.0, 1 / 3),
        server_noise_multiplier=2.0,
        upper_levels=(Level((0, 0), (0.7,)),),
        clipping=Clipping(clip_norm=5.0, kind="per_layer", layer_norms=(3.0, 4.0)),
        zone_weights=(9.5, 20.25),
        mixing=(0.3, 0.7),
        secure_aggregation=True,
        encoding=FixedPoint(5.0, 1e-6, 30, 30),
        top_up=True,
    )
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan


def test_threat_models_survive_json():
    threat = ThreatModel(
        neighbours="zero_out",
        cohort_known=True,
        peers_known=True,
        participation_revealed=True,
        dropout_rate=1 / 3,
        colluding_super_nodes=1,
        colluding_clients=3,
        colluding_in_zone=3,
        elected_super_nodes=True,
        skipped_zones=3,
        secure_sums_hold=False,
    )
    changed = (
        dataclasses.asdict(threat).items() - dataclasses.asdict(ThreatModel()).items()
    )
    assert len(changed) == len(dataclasses.fields(ThreatModel))
    ledger, again = Ledger(), Ledger()
    ledger.record(make("ldp"), 2, threat=threat)
    again.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert again == ledger
    assert again.history[0][0].threat == threat


def test_a_journal_from_before_peers_were_known_takes_them_to_be():
    """Where sums are secure; an epsilon too small would be the other guess."""
    for secure in (False, True):
        ledger, again = Ledger(), Ledger()
        ledger.record(dataclasses.replace(make("cdp"), secure_aggregation=secure))
        state = json.loads(json.dumps(ledger.state_dict()))
        del state["history"][0]["threat"]["peers_known"]
        again.load_state_dict(state)
        assert again.history[0][0].threat.peers_known == secure


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), 3),
        ((), [3]),
        ((0, "rounds"), "x"),
        ((0, "plan"), None),
        ((0, "plan", "sampling"), 3),
        ((0, "plan", "clipping"), None),
        ((0, "plan", "upper_levels"), [3]),
        ((0, "plan", "zone_sizes"), 3),
        ((0, "plan", "encoding"), 3),
        ((0, "threat"), None),
        ((0, "plan", "mixing"), functools.reduce(lambda x, _: [x], range(990), [])),
        ((0, "rounds"), 0),
        ((), {}),
        ((), ""),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(path, value):
    ledger = Ledger()
    ledger.record(make("cdp"), 2)
    state = json.loads(json.dumps(ledger.state_dict()))
    *within, last = ("history", *path)
    place = state
    for key in within:
        place = place[key]
    place[last] = value
    with pytest.raises(ArgumentError):
        ledger.load_state_dict(state)
    assert ledger.rounds == 2


def test_a_state_whose_plans_have_other_zones_is_refused_and_changes_nothing():
    ledger, other = Ledger(), Ledger()
    ledger.record(make("cdp"), 2)
    zones = {"zone_sizes": (30,), "sampling": PoissonSampling((0.2,))}
    other.record(configurations.c4(noise_multiplier=1.0, **zones))
    state = ledger.state_dict()
    state["history"] += other.state_dict()["history"]
    with pytest.raises(ArgumentError, match="as in earlier rounds"):
        ledger.load_state_dict(state)
    assert ledger.rounds == 2


def test_unknown_and_missing_fields_are_refused():
    fields = plan_to_dict(make("cdp"))
    with pytest.raises(ArgumentError, match="plan is extra; allowed: the fields"):
        plan_from_dict({**fields, "extra": 1})
    with pytest.raises(ArgumentError, match="plan is mixing; allowed: the fields"):
        plan_from_dict({k: v for k, v in fields.items() if k != "mixing"})
    with pytest.raises(ArgumentError, match=r"sampling.kind is none"):
        plan_from_dict({**fields, "sampling": {"kind": "none"}})


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (("plan", "clipping"), "Clipping"),
        (("plan", "sampling"), "PoissonSampling"),
        (("threat",), "ThreatModel"),
        ((), "history"),
    ],
)
def test_a_ledger_refuses_unknown_fields_anywhere(part, name):
    ledger = Ledger()
    ledger.record(make("cdp"))
    state = json.loads(json.dumps(ledger.state_dict()))
    place = state["history"][0]
    for key in part:
        place = place[key]
    place["extra"] = 1
    with pytest.raises(ArgumentError, match=rf"{name}.* is extra; allowed"):
        Ledger().load_state_dict(state)


def test_bounded_rounds_under_different_relations_do_not_compose():
    """Their denominators move under one relation and not under the other."""
    bounded = configurations.c2(
        zone_sizes=(50, 50),
        sampling=PoissonSampling((0.2, 0.2)),
        noise_multiplier=1.0,
        estimator="bounded",
    )
    ledger = Ledger()
    ledger.record(bounded, 100)
    ledger.record(bounded, 100, threat=ThreatModel(neighbours="zero_out"))
    for row in ledger.account(1e-5, methods=("rdp",)):
        assert row.epsilon_rdp is None
        if row.observer != "super_node":
            assert "do not compose" in row.assumptions


def test_a_zone_left_out_among_rounds_of_another_relation():
    """Zeroing a client that tips the balance is not like taking it away.

    A round of all clients, then one of every other of 6, which needs two. The others
    send as much as they may.
    """

    def plan(q, z, least=1):
        return NoisePlan(
            zone_sizes=(6,),
            sampling=PoissonSampling((q,)),
            server_noise_multiplier=z,
            min_zone_clients=least,
        )

    ledger, delta = Ledger(), 0.55
    ledger.record(plan(1.0, 1.0))
    ledger.record(plan(0.5, 0.1, least=2))
    # Hides all, but shows who takes part.
    ledger.record(plan(0.5, 1e6), threat=ThreatModel(participation_revealed=True))
    row = worst(ledger.account(delta, methods=("pld",)), "released_model")
    assert row.neighbours == "zero_out"
    x = np.arange(-1.0, 3.0, 5e-4)
    true = stats.binom.pmf(0, 5, 0.5) * gaussian_delta(row.epsilon_pld, 1.0)
    for others in range(1, 6):
        # With one other the client brings in what that one sent.
        moved = (2.0, 1.0) if others == 1 else (1.0, 0.0)
        sent, zeroed = (stats.norm.pdf(x, [[0.0], [m]], 0.1).mean(0) for m in moved)
        seen = sent > 1e-200
        loss = np.log(sent[seen]) - np.log(zeroed[seen])
        rest = gaussian_delta(row.epsilon_pld - loss, 1.0)
        true += stats.binom.pmf(others, 5, 0.5) * (sent[seen] @ rest) * 5e-4
    assert true <= delta


@pytest.mark.parametrize("count", [np.nan, -3, 0.5, "3"])
def test_a_history_of_no_whole_numbers_of_rounds_is_refused(count):
    with pytest.raises(ArgumentError, match=f"rounds is {count!r}; allowed"):
        account_history([(AccountedRound(make("cdp")), count)], DELTA, ("rdp", "pld"))
