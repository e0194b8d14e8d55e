"""The noise of the zoned mean against its plan, and users' own queries."""

import math

import numpy as np
import pytest
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tests.thinning import thinned
from tff_hdp.aggregators import (
    LevelQueries,
    round_events,
)
from tff_hdp.privacy import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Ledger,
    Level,
    NoisePlan,
    PoissonSampling,
    configurations,
)

SIZES = (5, 3, 4)
SAMPLING = PoissonSampling((0.5,) * 3)
pytestmark = pytest.mark.usefixtures("in_process_default")


# Noise -----------------------------------------------------------------------

# 2,050 coordinates a round over three rounds: the standard error of a measured
# standard deviation is 1 / sqrt(2 * 6150) = 0.9 %; 5 % is over five of those.
NOISE_TOLERANCE = 0.05


@pytest.fixture
def measured_noise(aggregate, zeros, flat):
    """The standard deviation of the noise in three rounds' means of zeros."""

    def measure(plan, clients):
        outputs = aggregate(plan, zeros(len(clients)), clients, rounds=3)
        noise = np.stack([flat(o.result) for o in outputs])
        assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(noise.size)
        correlation = np.corrcoef(noise)[np.triu_indices(3, 1)]
        assert np.abs(correlation).max() < 5 / math.sqrt(noise.shape[1])
        return noise.std()

    return measure


SHARES = {
    "c1": {},
    "c2": {},
    "c3": {"beta": 1 / 3},
    "c4": {},
    "c5": {"alpha": 0.5},
    "c6": {"beta": 2 / 3},
    "c7": {"alpha": 1 / 3, "beta": 1 / 3},
    "ldp_hdp": {"alpha": 0.5},
}


@pytest.mark.parametrize(
    ("config", "estimator", "kind"),
    thinned(list(SHARES), ["fixed", "bounded"], ["flat", "per_layer"], every=5),
)
def test_noise_of_every_configuration(
    profiles, measured_noise, config, estimator, kind
):
    """Unequal zones and a zone without clients: variances add as the plan says."""
    z, norm = 1.7, 0.6
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=z,
        clipping=Clipping(clip_norm=norm, kind=kind),
        estimator=estimator,
        **SHARES[config],
    )
    zones = [0, 0, 0, 2, 2]
    place = [0, 1, 2, 0, 1]
    counts = [plan.noising_clients[zone] for zone in zones]
    carries = [p < count for p, count in zip(place, counts, strict=True)]
    unit = plan.released_sensitivities
    # A client's noise is divided by what its zone's sum is divided by.
    online = np.bincount(zones, minlength=3)
    floors = np.array(plan.denominators)
    per_client = norm * np.array(plan.mixing_weights) / floors
    if estimator == "bounded":
        per_client = norm * np.array(plan.mixing_weights) / np.maximum(floors, online)
    variance = sum(
        per_client[z_] ** 2 for z_, c in zip(zones, carries, strict=True) if c
    )
    variance = variance * plan.client_noise_multiplier**2
    variance += sum(
        (h * u) ** 2 for h, u in zip(plan.zone_noise_multipliers, unit, strict=True)
    )
    variance += (plan.server_noise_multiplier * max(unit)) ** 2
    measured = measured_noise(plan, profiles(zones, carries=carries))
    assert measured == pytest.approx(math.sqrt(variance), rel=NOISE_TOLERANCE)


def test_noise_of_unequal_mixing_and_upper_levels(profiles, measured_noise):
    plan = NoisePlan(
        zone_sizes=(4, 4, 8),
        sampling=FixedSizeSampling((2, 2, 2)),
        mixing=(0.2, 0.3, 0.5),
        clipping=Clipping(clip_norm=2.0),
        upper_levels=(Level(parents=(0, 0, 1), noise_multipliers=(1.5, 0.5)),),
    )
    unit = np.array(plan.released_sensitivities)
    np.testing.assert_allclose(unit, [0.2, 0.3, 0.5])
    variance = (1.5 * max(unit[:2])) ** 2 + (0.5 * unit[2]) ** 2
    measured = measured_noise(plan, profiles([0, 1, 2], carries=False))
    assert measured == pytest.approx(math.sqrt(variance), rel=NOISE_TOLERANCE)


def test_many_zones_that_noise_alike_share_a_query(zeros, profiles, aggregate, flat):
    """One draw serves them, as many independent ones as there are zones."""
    plan = configurations.CONFIGURATIONS["hdp"](
        zone_sizes=(2,) * 40, sampling=FullParticipation(), noise_multiplier=1.5
    )
    clients = profiles([0, 39], carries=False)
    (output,) = aggregate(plan, zeros(2), clients)
    assert len(output.state["zones"]) == 1
    events = round_events(output.measurements)
    assert [e.noise_multiplier for e in events["zone"]] == [1.5] * 40
    Ledger().record(plan, events=events)
    expected = 1.5 * np.linalg.norm(plan.released_sensitivities)
    # 2,050 coordinates: 8 % is five standard errors.
    assert flat(output.result).std() == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize(
    ("config", "runtime"), [("c2", "native_context"), ("c4", "in_process_default")]
)
def test_empty_cohort_still_gets_its_noise(measured_noise, config, runtime, request):
    request.getfixturevalue(runtime)
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=SIZES, sampling=SAMPLING, noise_multiplier=1.0
    )
    zones = math.sqrt(3) if config == "c2" else 1.0
    expected = zones / (0.5 * sum(SIZES))
    assert measured_noise(plan, []) == pytest.approx(expected, rel=NOISE_TOLERANCE)


def test_clients_noise_is_independent_between_clients(profiles, measured_noise):
    """If two clients drew the same noise, the sum's deviation would double."""
    plan = configurations.c1(
        zone_sizes=(2,), sampling=FullParticipation(), noise_multiplier=1.0
    )
    measured = measured_noise(plan, profiles([0, 0]))
    assert measured == pytest.approx(math.sqrt(2) / 2, rel=NOISE_TOLERANCE)


# Queries ---------------------------------------------------------------------


def test_events_report_the_plan(updates, profiles, aggregate):
    plan = configurations.c7(
        zone_sizes=SIZES,
        sampling=SAMPLING,
        noise_multiplier=1.25,
        alpha=1 / 3,
        beta=1 / 3,
        clipping=Clipping(clip_norm=3.0),
    )
    (output,) = aggregate(plan, updates(2), profiles([0, 1]))
    events = output.measurements["events"]
    assert events["client"].noise_multiplier == pytest.approx(1.25)
    assert events["server"].noise_multiplier == pytest.approx(1.25)
    zones = [e.noise_multiplier for e in events["zones"]]
    assert zones == pytest.approx([0.0, 1.25, 0.0])


@pytest.mark.parametrize("kind", thinned(["per_layer", "flat"], every=2))
def test_events_of_clients_tell_whether_all_noised(zeros, profiles, aggregate, kind):
    """Two of three noise; a rejected update without noise protects nobody."""
    plan = NoisePlan(
        zone_sizes=(3, 1),
        sampling=FullParticipation(),
        client_noise_multiplier=1.5,
        noising_clients=(2, 0),
        clipping=Clipping(kind=kind),
    )

    def recorded(carries, w=(1.0, 1.0, 1.0, 1.0)):
        clients = profiles([0, 0, 0, 1], w, carries=carries)
        (output,) = aggregate(plan, zeros(4), clients)
        assert output.measurements["noising"].sum() == sum(carries)
        Ledger().record(plan, events=round_events(output.measurements))

    recorded([True, False, True, False])
    recorded([True, True, True, True])
    recorded([True, False, True, False], w=(1.0, 2.0, 1.0, 1.0))
    # Nor does it make up for one of the two.
    with pytest.raises(ValueError, match="noise of 1 clients that were drawn"):
        recorded([True, False, False, False], w=(1.0, 2.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="emitted a noise multiplier of 0, but"):
        recorded([True, False, False, True])


def test_adaptive_clipping_moves_the_clip_norm(zeros, profiles, aggregate):
    """All updates of norm 1, start at 10: the norm falls by exp(-0.2 * share)."""
    value = zeros(1)[0]
    value["bias"][0] = 1.0
    plan = configurations.c4(
        zone_sizes=(50,),
        sampling=FullParticipation(),
        noise_multiplier=0.5,
        clipping=Clipping(clip_norm=10.0, kind="adaptive"),
    )
    outputs = aggregate(plan, [value] * 50, profiles([0] * 50), rounds=20)
    norms = [float(o.measurements["clip_norm"]) for o in outputs]
    assert norms[0] == 10.0
    # The quantile estimate gains 0.5 a round against a target of 0.5.
    assert norms[-1] == pytest.approx(10 * math.exp(-0.2 * 0.5 * 19), rel=0.2)


@pytest.mark.parametrize(("estimator", "weight"), [("fixed", 0.5), ("bounded", 1.0)])
def test_any_quantile_is_aimed_at_however_updates_count(
    zeros, profiles, aggregate, estimator, weight
):
    """All updates of norm 1 are unclipped from 10 on, a tenth more than aimed at."""
    value = zeros(1)[0]
    value["bias"][0] = 1.0
    plan = configurations.c4(
        zone_sizes=(50,),
        sampling=FullParticipation(),
        noise_multiplier=0.5,
        clipping=Clipping(clip_norm=10.0, kind="adaptive", target_quantile=0.9),
        zone_weights=(50 * weight,),
        estimator=estimator,
    )
    clients = profiles([0] * 50, [weight] * 50)
    outputs = aggregate(plan, [value] * 50, clients, rounds=20)
    fall = math.log(float(outputs[-1].measurements["clip_norm"]) / 10.0)
    # The count's noise moves a round's step by .02: five standard deviations.
    assert fall == pytest.approx(-0.2 * 0.1 * 19, abs=5 * 0.02 * 19**0.5)


def test_a_users_tree_query_at_the_server(zeros, profiles, value_type, aggregate, flat):
    """DP-FTRL's tree noise telescopes: two rounds' sum carries one node's noise."""
    plan = NoisePlan(zone_sizes=(2, 2), sampling=FullParticipation(), estimator="fixed")
    record = tff.types.type_to_tf_tensor_specs(value_type)
    tree = tfp.TreeResidualSumQuery.build_l2_gaussian_query(
        1.0, 0.8, record, use_efficient=False
    )
    outputs = aggregate(
        plan,
        zeros(2),
        profiles([0, 1]),
        rounds=2,
        queries=LevelQueries(server=tree),
    )
    total = sum(flat(o.result) for o in outputs)
    assert total.std() == pytest.approx(0.8 / 4, rel=0.1)
