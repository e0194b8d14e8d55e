"""What levels emitted, held against the plan before a ledger records a round."""

import math
import re

import dp_accounting
import numpy as np
import pytest

from tff_hdp.errors import ArgumentError, NoiseError
from tff_hdp.privacy import (
    FixedSizeSampling,
    FullParticipation,
    Ledger,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    configurations,
)

FEDERATION = {"zone_sizes": (50,) * 4, "sampling": PoissonSampling((0.2,) * 4)}
Gaussian = dp_accounting.GaussianDpEvent


def make(name, z=1.0, **options):
    return configurations.CONFIGURATIONS[name](
        noise_multiplier=z, **FEDERATION, **options
    )


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
        ({"server": Gaussian(2.0), "clients": "44"}, r"events\['clients'\] is '44'"),
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
        # All ten come once in 10^10 rounds, 19 of the 20 once in 1.2 10^12.
        (PoissonSampling((0.1, 0.2)), (10, 18)),
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


@pytest.mark.parametrize(
    ("sampling", "carriers", "least"),
    [
        (FullParticipation(), (5, 5), (5, 5)),
        (FullParticipation(), (3, 0), (3, 0)),
        (PoissonSampling((1.0, 0.5)), (5, 5), (5, 0)),
        (FixedSizeSampling((4, 2)), (5, 5), (4, 2)),
        # Of four of five clients two at least are among the three that add noise.
        (FixedSizeSampling((4, 2)), (3, 3), (2, 0)),
    ],
)
def test_noise_of_clients_that_were_drawn_may_not_be_missing(sampling, carriers, least):
    plan = NoisePlan(
        zone_sizes=(5, 5),
        sampling=sampling,
        client_noise_multiplier=1.0,
        noising_clients=carriers,
    )

    def record(counts, **assumed):
        ledger = Ledger()
        events = {"client": Gaussian(1.0), "noising": counts}
        ledger.record(plan, threat=ThreatModel(**assumed), events=events)
        return ledger.rounds

    assert record(least) == record(np.array(carriers)) == 1
    for zone in np.flatnonzero(least):
        fewer = [n - (j == zone) for j, n in enumerate(least)]
        with pytest.raises(NoiseError, match="noise of 1 clients that were drawn"):
            record(fewer)
        for assumed in (
            {"dropout_rate": 0.1},
            {"skipped_zones": 1},
            {"colluding_clients": 1},
        ):
            assert record(fewer, **assumed) == 1
    if all(least):
        with pytest.raises(NoiseError, match="noise of 2 clients that were drawn"):
            record([n - 1 for n in least], colluding_clients=1)
        with pytest.raises(NoiseError, match="noise of 1 clients that were drawn"):
            record([n - 1 for n in least], skipped_zones=1)
    for bad in (3, "33", [1], [None, 1], [-1, 5], [1.5, 5]):
        with pytest.raises(ValueError, match=r"events\['noising'\]"):
            record(bad)


def cohort(sampling, sizes, dropout_rate, rng):
    """How many of each zone come, by a draw of every client."""
    found = []
    for zone, n in enumerate(sizes):
        drawn = np.ones(n, bool)
        if isinstance(sampling, PoissonSampling):
            drawn = rng.random(n) < sampling.probabilities[zone]
        if isinstance(sampling, FixedSizeSampling):
            drawn = rng.permutation(n) < sampling.sizes[zone]
        found.append(drawn & (rng.random(n) >= dropout_rate))
    return found


@pytest.mark.parametrize("dropout_rate", [0.0, 0.3])
@pytest.mark.parametrize(
    "sampling",
    [PoissonSampling((0.3, 1.0)), FixedSizeSampling((9, 2)), FullParticipation()],
)
def test_cohorts_that_the_plan_draws_are_taken(sampling, dropout_rate):
    """Of 2,000 rounds none is so rare."""
    rng, sizes, carriers = np.random.default_rng(0), (12, 30), (12, 20)
    plan = NoisePlan(
        zone_sizes=sizes,
        sampling=sampling,
        client_noise_multiplier=1.0,
        noising_clients=carriers,
    )
    ledger, threat = Ledger(), ThreatModel(dropout_rate=dropout_rate)
    for _ in range(2000):
        came = cohort(sampling, sizes, dropout_rate, rng)
        noising = [int(c[:a].sum()) for c, a in zip(came, carriers, strict=True)]
        events = {"client": Gaussian(1.0), "noising": noising}
        events["clients"] = [int(c.sum()) for c in came]
        ledger.record(plan, threat=threat, events=events)


@pytest.mark.parametrize(
    ("clients", "sampling", "assumed"),
    [
        (None, PoissonSampling((0.5,)), {}),
        (None, FullParticipation(), {"dropout_rate": 0.5}),
        (80, FixedSizeSampling((40,)), {"dropout_rate": 0.5}),
    ],
)
def test_a_cohort_without_noise_is_as_likely_as_it_is(clients, sampling, assumed):
    """No noise of n that come by halves: 2^-39 is above one in 10^12, 2^-40 below."""
    threat, events = ThreatModel(**assumed), {"client": Gaussian(1.0), "noising": [0]}
    for drawn, refused in ((39, False), (40, True)):
        if clients:
            sampling = FixedSizeSampling((drawn,))
        plan = configurations.c1(
            zone_sizes=(clients or drawn,), sampling=sampling, noise_multiplier=1.0
        )
        if not refused:
            Ledger().record(plan, threat=threat, events=events)
            continue
        with pytest.raises(NoiseError, match="noise of 1 clients that were drawn is"):
            Ledger().record(plan, threat=threat, events=events)


def test_a_small_drop_out_rate_does_not_explain_that_hardly_anybody_came():
    plan = configurations.c1(
        zone_sizes=(100, 100), sampling=FullParticipation(), noise_multiplier=4.0
    )
    events = {"client": Gaussian(4.0), "clients": [1, 1], "noising": [1, 1]}
    words = "a dropout_rate of 0.001 does not explain it"
    with pytest.raises(NoiseError, match=words):
        Ledger().record(plan, threat=ThreatModel(dropout_rate=0.001), events=events)


def test_of_a_zone_that_is_left_out_no_noise_is_there():
    """Of 40 that come by halves fewer than three do once in 10^9 rounds."""

    def record(clients, **assumed):
        plan = configurations.c1(
            zone_sizes=(clients,),
            sampling=PoissonSampling((0.5,)),
            noise_multiplier=1.0,
            min_zone_clients=3,
        )
        events = {"client": Gaussian(1.0), "noising": [0]}
        Ledger().record(plan, threat=ThreatModel(**assumed), events=events)

    record(40)
    with pytest.raises(NoiseError, match="clients that were drawn"):
        record(60)
    # Colluders may stay away to have it left out.
    record(60, colluding_clients=20)
