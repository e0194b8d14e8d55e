"""Every node's mean and noise against the plan's formula, written down in NumPy."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.privacy import (
    Clipping,
    Level,
    NoisePlan,
    PoissonSampling,
)

S = 0.8
SHAPES = {"kernel": (120, 100), "bias": (3, 1000), "scale": ()}
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())
RATES, WEIGHTS = np.array([0.5, 0.4, 0.8]), np.array([4.0, 2.5, 3.0])
PARENTS = (0, 1, 0)
Client = collections.namedtuple("Client", "zone weight noises update")

# The third has no finite norm, the fourth no weight that counts; zone 1 is empty but
# for the last, whose zone there is none of.
PLACES = [(0, 0.3), (0, 1.0), (0, 0.9), (0, 1.7), (2, 1.0), (2, 0.2), (2, 1.0), (3, 1)]


def plan_of(estimator, mixing, kind, z=1.0):
    if estimator == "realised":
        z = 0.0
    return NoisePlan(
        zone_sizes=(5, 3, 4),
        sampling=PoissonSampling(tuple(RATES)),
        client_noise_multiplier=0.7 * z,
        noising_clients=(2, 0, 3),
        zone_noise_multipliers=(1.5 * z, 0.4 * z, 0.0),
        server_noise_multiplier=6.0 * z,
        upper_levels=(Level(PARENTS, (3.0 * z, 4.0 * z)),) if z else (),
        clipping=Clipping(clip_norm=S, kind=kind),
        estimator=estimator,
        mixing=mixing,
        zone_weights=tuple(WEIGHTS),
    )


def clients_of(scale):
    rng = np.random.default_rng(0)
    made = []
    for i, (zone, weight) in enumerate(PLACES):
        update = {
            name: np.asarray(scale * 3.0 ** (i - 4) * rng.normal(size=shape) / 100)
            for name, shape in SHAPES.items()
        }
        if i == 2:
            update["bias"][2, 7] = np.nan
        made.append(Client(zone, weight, i % 2 == 0, update))
    return made


def clipped(update, plan):
    parts = [np.ravel(part) for part in update.values()]
    if plan.clipping.kind == "flat":
        parts = [np.concatenate(parts)]
    bound = S / np.sqrt(len(parts)) if plan.is_noisy else np.inf
    return np.concatenate([p / max(1.0, np.linalg.norm(p) / bound) for p in parts])


def expected(plan, clients):
    """Per level, for every node, the mean of its output and its noise's deviation."""
    sums, denominators, variances = np.zeros([3, SIZE]), np.zeros(3), np.zeros(3)
    for zone, weight, noises, update in clients:
        # Whose zone is none sends no update, but what noise it drew is in a sum.
        place = zone if zone < 3 else 0
        variances[place] += noises * (plan.client_noise_multiplier * S) ** 2
        if zone >= 3 or not 0 < weight <= 1:
            continue
        finite = all(np.isfinite(part).all() for part in update.values())
        if finite:
            sums[zone] += weight * clipped(update, plan)
        if finite or plan.estimator != "realised":
            denominators[zone] += weight
    floors = RATES * WEIGHTS
    p = floors / floors.sum() if plan.mixing == "weighted" else np.array(plan.mixing)
    moves = p * S / floors
    if plan.estimator == "fixed":
        denominators = floors
    elif plan.estimator == "bounded":
        denominators, moves = np.maximum(denominators, floors), 2.0 * moves
    elif plan.mixing == "weighted":
        p = denominators / denominators.sum()
    shares = np.divide(p, denominators, out=np.zeros(3), where=denominators > 0)
    means = shares[:, np.newaxis] * sums
    variances = shares**2 * variances + (plan.zone_noise_multipliers * moves) ** 2
    levels = [(means, variances)]
    if plan.upper_levels:
        groups = [np.flatnonzero(np.array(PARENTS) == node) for node in range(2)]
        z = plan.upper_levels[0].noise_multipliers
        moves = np.array([moves[group].max() for group in groups])
        means = np.stack([means[group].sum(0) for group in groups])
        variances = [variances[group].sum() for group in groups] + (z * moves) ** 2
        levels.append((means, variances))
    noise = (plan.server_noise_multiplier * moves.max()) ** 2
    levels.append((means.sum(0)[np.newaxis], [np.sum(variances) + noise]))
    return levels


def found(plan, clients):
    specs = {name: tf.TensorSpec(shape) for name, shape in SHAPES.items()}
    mean = ZonedMean(plan, specs)
    state = mean.initial_state()
    sent, total = mean.client_state(state), None
    for zone, weight, noises, update in clients:
        profile = mean.seated(
            collections.OrderedDict(
                weight=tf.constant(weight, tf.float32),
                zone=tf.constant(zone),
                carries_noise=tf.constant(noises),
            )
        )
        update = {k: tf.constant(part, tf.float32) for k, part in update.items()}
        contribution = mean.contribution(sent, update, profile)
        sent_on = mean.sent_by_one(contribution, profile["zone"])
        total = mean.zero(sent_on[0]) if total is None else total
        total = mean.add(total, *sent_on)
    by_level, _, measured = mean.outputs(state, total)
    return [
        [np.concatenate([np.ravel(node[name]) for name in SHAPES]) for node in level]
        for level in by_level
    ], measured


PLANS = [
    (estimator, mixing, kind)
    for estimator in ("fixed", "bounded", "realised")
    for mixing in ("weighted", (0.2, 0.5, 0.3))
    for kind in ("flat", "per_layer")
    if (estimator, kind) != ("realised", "per_layer")
]


@pytest.mark.parametrize(("estimator", "mixing", "kind"), PLANS)
def test_every_node_puts_out_the_mean_of_its_plan(estimator, mixing, kind):
    """With next to no noise, from updates below the clip norm to far beyond it."""
    plan, clients = plan_of(estimator, mixing, kind, z=1e-8), clients_of(1.0)
    levels, measured = found(plan, clients)
    wanted = expected(plan, clients)
    assert len(levels) == len(wanted)
    for nodes, (means, _) in zip(levels, wanted, strict=True):
        np.testing.assert_allclose(nodes, means, rtol=1e-3, atol=1e-6)
    assert measured["clients"].numpy().tolist() == [5, 0, 3]
    assert measured["counted"].numpy().tolist() == [4, 0, 3]
    assert measured["rejected"] == 3


ALONE = {
    "clients": {"client_noise_multiplier": 1e-8},
    "one zone": {"zone_noise_multipliers": (0.0, 1e-8, 0.0)},
    "one node above": {"upper_levels": (Level(PARENTS, (0.0, 1e-8)),)},
    "server": {"server_noise_multiplier": 1e-8},
}


@pytest.mark.parametrize("kind", ["flat", "per_layer"])
@pytest.mark.parametrize("alone", ALONE.values(), ids=ALONE)
def test_every_client_is_clipped_whoever_noises_alone(alone, kind):
    plan = plan_of("fixed", (0.2, 0.5, 0.3), kind).without_noise()
    plan, clients = dataclasses.replace(plan, **alone), clients_of(1.0)
    levels, _ = found(plan, clients)
    for nodes, (means, _) in zip(levels, expected(plan, clients), strict=True):
        np.testing.assert_allclose(nodes, means, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "mixing", "kind"), [p for p in PLANS if p[0] != "realised"]
)
def test_every_node_adds_the_noise_of_its_plan(estimator, mixing, kind):
    plan, clients = plan_of(estimator, mixing, kind), clients_of(0.0)
    levels, measured = found(plan, clients)
    assert measured["noising"].numpy().tolist() == [2, 0, 2]
    for nodes, (_, variances) in zip(levels, expected(plan, clients), strict=True):
        # Five standard errors, and what hides grids.
        tolerance = 5 / np.sqrt(2 * SIZE) + 1 / 256
        np.testing.assert_allclose(np.std(nodes, 1), np.sqrt(variances), rtol=tolerance)
