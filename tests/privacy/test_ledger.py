import dataclasses
import json
import math
import re

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

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
    configurations,
)
from tff_hdp.privacy.ledger import plan_from_dict, plan_to_dict
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
        ({"cloud": Gaussian(1.0)}, "events is cloud; allowed: client, zone"),
        (
            {"server": dp_accounting.SingleEpochTreeAggregationDpEvent(1.0, 8)},
            "'server' used tree aggregation",
        ),
        ({"server": dp_accounting.UnsupportedDpEvent()}, "UnsupportedDpEvent"),
        ({"server": Gaussian(1.0), "zone": [Gaussian(1.0)]}, "1 entries for 4 nodes"),
        (
            {"server": Gaussian(1.0), "zone": 3},
            r"events\['zone'\] is 3; allowed: a seq",
        ),
        ({"server": Gaussian(1.0), "zone": "four"}, r"events\['zone'\] is four"),
        ({"server": Gaussian("x")}, "noise_multiplier is x; .* of level 'server'"),
        ({"server": Gaussian(2.0), "clients": 4}, r"events\['clients'\] is 4"),
        ({"server": Gaussian(2.0), "clients": "44"}, r"events\['clients'\] is 44"),
        (
            {"server": Gaussian(2.0), "clients": [None, 1, 1, 1]},
            r"events\['clients'\]\[0\] is None; allowed: a whole number",
        ),
        ({"server": Gaussian(math.nan)}, "'server' emitted a noise multiplier of nan"),
        (
            {"server": dp_accounting.ComposedDpEvent([Gaussian(-1.0)])},
            "'server' emitted a noise multiplier of -1",
        ),
        (
            {"server": dp_accounting.ComposedDpEvent([Gaussian(math.nan)] * 2)},
            "'server' emitted a noise multiplier of nan",
        ),
        (
            {"server": dp_accounting.SelfComposedDpEvent(Gaussian(1.0), 0)},
            "'server' emitted an event 0 times over",
        ),
        (
            {"server": Gaussian(1.0), "clip_norms": {"server": math.nan}},
            "'server' clips to nan",
        ),
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


EVERYWHERE = NoisePlan(
    zone_sizes=(5, 5, 5),
    sampling=FullParticipation(),
    client_noise_multiplier=2.0,
    noising_clients=(5, 0, 0),
    zone_noise_multipliers=(0.0, 3.0, 3.5),
    upper_levels=(Level((0, 0, 1), (4.0, 4.5)),),
    server_noise_multiplier=6.0,
)


def emitted(place="", event=None):
    """What EVERYWHERE's levels emit, but for one place."""
    events = {
        "client": Gaussian(2.0),
        "zone": [None, Gaussian(3.0), Gaussian(3.5)],
        "upper": [[Gaussian(4.0), Gaussian(4.5)]],
        "server": Gaussian(6.0),
    }
    level, *nodes = place.replace("]", "").split("[")
    if nodes:
        *outer, last = map(int, nodes)
        (events[level][outer[0]] if outer else events[level])[last] = event
    elif place:
        events[level] = event
    return events


@pytest.mark.parametrize(
    ("place", "z"),
    [
        *(("client", 2.0), ("zone[1]", 3.0), ("zone[2]", 3.5)),
        *(("upper[0][0]", 4.0), ("upper[0][1]", 4.5), ("server", 6.0)),
    ],
)
def test_every_place_is_held_to_its_own_noise(place, z):
    composed, times = dp_accounting.ComposedDpEvent, dp_accounting.SelfComposedDpEvent
    ledger = Ledger()
    for event in (
        Gaussian(z),
        # 3^2 + 4^2 = 5^2, of inverse multipliers.
        composed([Gaussian(z * 5 / 3), Gaussian(z * 5 / 4)]),
        times(Gaussian(2 * z), 4),
    ):
        ledger.record(EVERYWHERE, events=emitted(place, event))
    assert ledger.rounds == 3
    for event in (
        None,
        Gaussian(z * (1 - 1e-5)),
        composed([Gaussian(z * 1.66), Gaussian(z * 5 / 4)]),
        composed([Gaussian(2 * z), Gaussian(0.0)]),
        composed([Gaussian(2 * z), dp_accounting.NonPrivateDpEvent()]),
        times(Gaussian(2 * z), 5),
        dp_accounting.NonPrivateDpEvent(),
    ):
        with pytest.raises(NoiseError, match=re.escape(place)):
            ledger.record(EVERYWHERE, events=emitted(place, event))


@pytest.mark.parametrize("level", ["client", "zone", "upper", "server"])
def test_every_level_is_held_to_the_clip(level):
    """But nodes above zones, which clip nothing: their noise alone counts."""
    for norm in (1.1, 0.9, math.nan):
        norms = {"zone": [norm] * 3, "upper": [[norm] * 2]}.get(level, norm)
        events = emitted() | {"clip_norms": {level: norms}}
        if (level, norm) == ("upper", 1.1):
            Ledger().record(EVERYWHERE, events=events)
        else:
            with pytest.raises(NoiseError, match=level):
                Ledger().record(EVERYWHERE, events=events)


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
        colluding_clients=2,
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


def test_a_silent_event_is_no_noise():
    ledger = Ledger()
    plan = configurations.c4(
        zone_sizes=(50,), sampling=PoissonSampling((0.2,)), noise_multiplier=1.0
    )
    with pytest.raises(ValueError, match="server"):
        ledger.record(plan, events={"server": dp_accounting.NoOpDpEvent()})


def test_a_query_that_clips_to_another_norm_is_held_to_the_plans():
    """Events tell noise in units of the query's clip, whatever the plan's is."""
    plan = make("cdp", z=2.0)  # clips to 1
    ledger = Ledger()
    event = {"server": Gaussian(2.0)}
    ledger.record(plan, events={**event, "clip_norms": {"server": 1.0}})
    with pytest.raises(ValueError, match="'server' clips to 3, but the plan to 1"):
        ledger.record(plan, events={**event, "clip_norms": {"server": 3.0}})
    # Half the clip with the same multiplier is half the noise that the plan has.
    with pytest.raises(ValueError, match="noise multiplier of 1, but the plan has 2"):
        ledger.record(plan, events={**event, "clip_norms": {"server": 0.5}})
    enough = {"server": Gaussian(4.0), "clip_norms": {"server": 0.5}}
    ledger.record(plan, events=enough)
    assert ledger.rounds == 2


@pytest.mark.parametrize(
    "norms",
    [
        *({key: [2.0, 2.0]} for key in ("zones", "Zone")),
        *({"zone": value} for value in ([2.0], 2.0, "ab", ["a"] * 4)),
        *(3, [2.0, 2.0]),
    ],
)
def test_clip_norms_that_would_be_compared_with_nothing_are_refused(norms):
    plan = make("hdp", z=1.0)
    noise = [Gaussian(1.0)] * plan.num_zones
    ledger = Ledger()
    with pytest.raises(ArgumentError, match="clip_norms"):
        ledger.record(plan, events={"zone": noise, "clip_norms": norms})
    assert ledger.rounds == 0


@pytest.mark.parametrize(
    ("sampling", "most"),
    [
        (PoissonSampling((0.1, 0.2)), (10, 20)),
        (FullParticipation(), (10, 20)),
        (FixedSizeSampling((2, 3)), (2, 3)),
    ],
)
def test_no_more_clients_may_take_part_than_the_plan_draws(sampling, most):
    """A larger cohort hides nobody as well, nor may one client come many times."""
    plan = configurations.c2(
        zone_sizes=(10, 20), sampling=sampling, noise_multiplier=1.0
    )
    events = {"zone": [Gaussian(1.0)] * 2}
    ledger = Ledger()
    for clients in (most, (0, 1), np.array(most)):
        ledger.record(plan, events={**events, "clients": clients})
    assert ledger.rounds == 3
    for clients in ((most[0] + 1, 0), (0, most[1] + 1), (1,)):
        with pytest.raises(NoiseError, match=r"took part, but the plan|for 2 zones"):
            ledger.record(plan, events={**events, "clients": clients})
    with pytest.raises(ArgumentError, match=r"events\['clients'\]\[0\] is -1"):
        ledger.record(plan, events={**events, "clients": (-1, 0)})
    assert ledger.rounds == 3
