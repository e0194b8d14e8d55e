import dataclasses
import json

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Ledger,
    Level,
    NoisePlan,
    PoissonSampling,
    account,
    configurations,
)
from tff_hdp.privacy.serialisation import plan_from_dict, plan_to_dict

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
    assert rows[0].epsilon_rdp <= rdp * (1 + 1e-9)
    assert rows[0].epsilon_pld == pytest.approx(pld, rel=1e-4)
    # 40 rounds were private against the aggregator, 60 were not.
    aggregator = [r for r in ledger.account(DELTA) if r.observer == "aggregator"]
    assert aggregator[0].epsilon_rdp is None


def test_events_are_wrapped_with_the_zones_own_sampling():
    plan = NoisePlan(
        zone_sizes=(10, 40),
        sampling=PoissonSampling((0.5, 0.1)),
        zone_noise_multipliers=(1.5, 2.5),
    )
    ledger = Ledger()
    ledger.record(plan, 7)
    event = ledger.events("aggregator", "hdp", 1)
    assert event == dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(0.1, Gaussian(2.5)), 7
            )
        ]
    )
    theirs = RdpAccountant().compose(event).get_epsilon(DELTA)
    rows = ledger.account(DELTA, ("rdp",))
    ours = next(r for r in rows if r.observer == "aggregator" and r.zone == 1)
    assert ours.epsilon_rdp == pytest.approx(theirs, rel=1e-3)


def test_events_exist_only_where_dp_accounting_has_them():
    ledger = Ledger()
    ledger.record(make("ldp"), 3)
    assert ledger.events("released_model", "ldp", 0) is None
    with pytest.raises(ValueError, match="kind is 'hdp'"):
        ledger.events("released_model", "hdp", 0)
    bare = Ledger()
    bare.record(make("cdp"), 3)
    event = bare.events("aggregator", "trusting", 0)
    assert event.events[0].event == dp_accounting.NonPrivateDpEvent()


def test_emitted_events_that_agree_are_taken():
    plan = make("c7", alpha=0.25, beta=0.25)
    ledger = Ledger()
    ledger.record(
        plan,
        events={
            "client": Gaussian(1.0),
            "zone": [Gaussian(z) for z in plan.zone_noise_multipliers],
            # Adaptive clipping splits z; together the two are worth it again.
            "server": dp_accounting.ComposedDpEvent(
                [Gaussian(2**0.5), Gaussian(2**0.5)]
            ),
        },
    )
    assert ledger.rounds == 1


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ({"server": Gaussian(0.5)}, "'server' emitted a noise multiplier of 0.5"),
        ({"server": dp_accounting.NonPrivateDpEvent()}, "'server' emitted .* of 0"),
        ({"zone": [Gaussian(1.0)] * 4}, "'server' emitted a noise multiplier of 0,"),
        ({"cloud": Gaussian(1.0)}, "level 'cloud'"),
        (
            {"server": dp_accounting.SingleEpochTreeAggregationDpEvent(1.0, 8)},
            "'server' used tree aggregation",
        ),
        ({"server": dp_accounting.UnsupportedDpEvent()}, "UnsupportedDpEvent"),
        ({"server": Gaussian(1.0), "zone": [Gaussian(1.0)]}, "1 entries for 4 nodes"),
    ],
)
def test_events_that_disagree_are_refused(events, words):
    ledger = Ledger()
    with pytest.raises(ValueError, match=words):
        ledger.record(make("cdp"), events=events)
    assert ledger.rounds == 0


def test_topping_up_cannot_be_read_off_events():
    plan = make("ldp", top_up=True)
    with pytest.raises(ValueError, match=r"plan\.top_up is True"):
        Ledger().record(plan, events={"client": Gaussian(1.0)})


def test_zone_event_with_less_noise_names_the_zone():
    events = {"zone": [Gaussian(1.0), Gaussian(0.9), Gaussian(1.0), Gaussian(1.0)]}
    with pytest.raises(ValueError, match=r"'zone\[1\]' emitted .* 0.9, .* has 1"):
        Ledger().record(make("hdp"), events=events)


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


def test_empty_ledger_and_foreign_state():
    with pytest.raises(ValueError, match="0 rounds"):
        Ledger().account(DELTA)
    ledger = Ledger()
    ledger.record(make("cdp"), 2)
    with pytest.raises(ValueError, match="'format'"):
        ledger.load_state_dict({"format": 99, "history": []})
    assert ledger.rounds == 2
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
        colluding_super_nodes=1,
        dropout_rate=0.05,
        neighbours="zero_out",
        top_up=True,
    )
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan


def test_unknown_plan_fields_are_refused():
    fields = plan_to_dict(make("cdp"))
    with pytest.raises(ValueError, match="'extra'"):
        plan_from_dict({**fields, "extra": 1})
    with pytest.raises(ValueError, match=r"sampling.kind is 'none'"):
        plan_from_dict({**fields, "sampling": {"kind": "none"}})


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
    ledger.record(dataclasses.replace(bounded, neighbours="zero_out"), 100)
    for row in ledger.account(1e-5, methods=("rdp",)):
        assert row.epsilon_rdp is None
        if row.observer != "super_node":
            assert "do not compose" in row.assumptions


def test_a_silent_event_is_no_noise():
    ledger = Ledger()
    plan = configurations.c4(
        zone_sizes=(50,), sampling=PoissonSampling((0.2,)), noise_multiplier=1.0
    )
    with pytest.raises(ValueError, match="server"):
        ledger.record(plan, events={"server": dp_accounting.NoOpDpEvent()})
