"""Zone sums of stacked updates: by norms, one by one, and in plain numpy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp

from tff_hdp.aggregators import LevelQueries
from tff_hdp.aggregators.zoned_mean import PER_ZONE, ZonedMean
from tff_hdp.clients.contributions import (
    norms_decide,
    sum_by_norms,
    sum_one_by_one,
    zones_of,
)
from tff_hdp.noise import grid_step
from tff_hdp.privacy import Clipping, FullParticipation, configurations

CLIENTS, ROWS, WIDTH, HIDDEN = 5, 6, 30, 4
S = 3.0
OPTIONS = {"zone_sizes": (5, 5), "sampling": FullParticipation()}
FLAT = Clipping(clip_norm=S)
PER_LAYER = Clipping(clip_norm=S, kind="per_layer", layer_norms=(2.0, 5.0**0.5))


def plan_of(config, clipping=FLAT, **options):
    if config == "none":
        return configurations.none(**OPTIONS)
    return configurations.CONFIGURATIONS[config](
        noise_multiplier=1.0, clipping=clipping, **OPTIONS, **options
    )


def updates(scale=1.0):
    """A kernel's and a bias's updates, and the same as arrays."""
    rng = np.random.default_rng(0)
    examples = rng.random([CLIENTS, ROWS, WIDTH]).astype(np.float32)
    # From far within the clip norm to far beyond it.
    sizes = scale * np.float32([0.01, 0.1, 1.0, 0.3, 2.0])[:, None, None]
    coordinates = sizes * rng.normal(size=[CLIENTS, ROWS, HIDDEN]).astype(np.float32)
    bias = coordinates.sum(1)
    kernel = np.einsum("cnd,cnh->cdh", examples, coordinates)
    return [tf.constant(kernel), tf.constant(bias)], [
        kernel,
        bias,
    ]


def profiles_of(weights=(1.0, 0.5, 0.25, 1.0, 0.75)):
    return collections.OrderedDict(
        weight=tf.constant(weights, tf.float32),
        zone=tf.fill([CLIENTS], 1),
        carries_noise=tf.constant([False] * CLIENTS),
    )


def summed(add_up, plan, given, profiles):
    like = [tf.zeros([WIDTH, HIDDEN]), tf.zeros([HIDDEN])]
    mean = ZonedMean(plan, [tf.TensorSpec.from_tensor(t) for t in like])
    sent = mean.client_state(mean.initial_state())
    found = add_up(mean, sent, given, like, profiles, zones_of(profiles))
    # Of the one zone that there is.
    return {
        name: tf.nest.map_structure(lambda t: t[0], part) if name in PER_ZONE else part
        for name, part in found.items()
    }


def factors_of(plan, arrays):
    """min(1, S / norm) per client, for both tensors or for each."""
    norms = np.stack([np.linalg.norm(a.reshape(CLIENTS, -1), axis=1) for a in arrays])
    if not plan.is_noisy:
        return np.ones_like(norms)
    if plan.clipping.kind == "flat":
        return np.minimum(1.0, S / np.linalg.norm(norms, axis=0))[None].repeat(2, 0)
    bounds = np.array(PER_LAYER.layer_norms)[:, None]
    return np.minimum(1.0, bounds / norms)


@pytest.mark.parametrize(
    ("config", "clipping"),
    [
        ("none", FLAT),
        ("c2", FLAT),
        ("c4", FLAT),
        ("c2", PER_LAYER),
        ("c4", PER_LAYER),
    ],
)
def test_both_sums_are_the_clipped_and_weighted_sum(config, clipping):
    plan, profiles = plan_of(config, clipping), profiles_of()
    given, arrays = updates()
    factors = factors_of(plan, arrays)
    if plan.is_noisy:
        assert factors.min() < 0.5 and factors.max() == 1.0
    expected = [
        np.tensordot(f * profiles["weight"].numpy(), a, 1)
        for f, a in zip(factors, arrays, strict=True)
    ]
    assert norms_decide(plan, None)
    results = [summed(f, plan, given, profiles) for f in (sum_by_norms, sum_one_by_one)]
    for result in results:
        for found, wanted in zip(result["record"], expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    for name in ("weight", "clients", "rejected", "tensor_norms", "norm"):
        a, b = (r[name] for r in results)
        np.testing.assert_allclose(a, b, rtol=1e-3)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e25])
@pytest.mark.parametrize("config", ["none", "c2"])
def test_what_is_rejected_leaves_no_trace(config, poison):
    plan, profiles = plan_of(config), profiles_of([1.0, 1.0, 1.5, 1.0, -1.0])
    _, arrays = updates()
    arrays[1][3, 2] = poison
    given = [tf.constant(a) for a in arrays]
    one, two = (
        summed(f, plan, given, profiles) for f in (sum_by_norms, sum_one_by_one)
    )
    assert int(one["rejected"]) == int(two["rejected"]) == 3
    np.testing.assert_allclose(one["weight"], two["weight"])
    for found, wanted in zip(one["record"], two["record"], strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_updates_of_zero_stay_zero():
    given, _ = updates(scale=0.0)
    result = summed(sum_by_norms, plan_of("c2"), given, profiles_of())
    assert int(result["rejected"]) == 0
    assert not any(t.numpy().any() for t in result["record"])


def test_norms_do_not_decide_where_a_record_is_bent():
    adaptive = Clipping(clip_norm=S, kind="adaptive")
    assert not norms_decide(plan_of("c4", adaptive), None)
    own = LevelQueries(server=tfp.GaussianSumQuery(1.0, 1.0))
    assert not norms_decide(plan_of("c4"), own)


@pytest.mark.parametrize("poisoned", [False, True])
@pytest.mark.parametrize("add_up", [sum_by_norms, sum_one_by_one])
def test_clients_of_several_zones_are_summed_each_in_its_own(add_up, poisoned):
    plan, zone = plan_of("c2"), np.array([1, 0, 1, 1, 0])
    _, arrays = updates()
    factors = factors_of(plan, arrays)
    if poisoned:
        arrays[0][2, 0, 0], factors[:, 2] = np.nan, 0.0
    expected = [
        f[:, None] * np.nan_to_num(a).reshape(CLIENTS, -1)
        for f, a in zip(factors, arrays, strict=True)
    ]
    like = [tf.zeros([WIDTH, HIDDEN]), tf.zeros([HIDDEN])]
    mean = ZonedMean(plan, [tf.TensorSpec.from_tensor(t) for t in like])
    sent = mean.client_state(mean.initial_state())
    profiles = dict(profiles_of([1.0] * CLIENTS), zone=tf.constant(zone, tf.int32))
    zones = zones_of(profiles)
    assert sorted(zones.numpy()) == [0, 1]
    found = add_up(mean, sent, list(map(tf.constant, arrays)), like, profiles, zones)
    assert int(found["rejected"]) == poisoned
    for row, own in enumerate(zones.numpy()):
        assert int(found["clients"][row]) == np.sum(zone == own)
        for tensor, wanted in zip(found["record"], expected, strict=True):
            np.testing.assert_allclose(
                np.ravel(tensor[row]), wanted[zone == own].sum(0), rtol=1e-3, atol=1e-5
            )


@pytest.mark.parametrize("add_up", [sum_by_norms, sum_one_by_one])
def test_clients_noise_adds_up_however_it_is_drawn(add_up):
    """One draw for all has the variance and the grid of one each that noises."""
    plan = plan_of("c1")
    profiles = dict(
        profiles_of(), carries_noise=tf.constant([True, False, True, True, True])
    )
    given, _ = updates(scale=0.0)
    draw = tf.function(lambda: summed(add_up, plan, given, profiles), autograph=False)
    draws = [draw() for _ in range(30)]
    assert all(int(draw["noising"]) == 4 for draw in draws)
    noise = np.concatenate([np.ravel(t) for d in draws for t in d["record"]])
    stddev = 2 * plan.client_noise_multiplier * S
    assert abs(noise.std() / stddev - 1) < 5 / (2 * noise.size) ** 0.5
    assert abs(noise.mean()) < 5 * stddev / noise.size**0.5
    # Coarser, it would tell how many there are.
    steps = noise / grid_step(plan.client_noise.stddev)
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert abs(np.mean(steps % 2) - 0.5) < 5 / (2 * noise.size**0.5)


@pytest.mark.parametrize("add_up", [sum_by_norms, sum_one_by_one])
def test_clients_noise_is_in_their_own_zones_sum_alone(add_up):
    plan, like = plan_of("c1"), [tf.zeros([WIDTH, HIDDEN]), tf.zeros([HIDDEN])]
    mean = ZonedMean(plan, [tf.TensorSpec.from_tensor(t) for t in like])
    sent = mean.client_state(mean.initial_state())
    given = [tf.zeros([CLIENTS, *t.shape]) for t in like]
    profiles = dict(
        profiles_of([1.0] * CLIENTS),
        zone=tf.constant([1, 0, 1, 0, 1]),
        carries_noise=tf.constant([True, False, True, False, True]),
    )
    zones = zones_of(profiles)
    draw = tf.function(
        lambda: add_up(mean, sent, given, like, profiles, zones), autograph=False
    )
    draws = [draw() for _ in range(30)]
    place = zones.numpy().tolist().index
    for draw in draws:
        assert draw["noising"].numpy()[[place(0), place(1)]].tolist() == [0, 3]
        assert not any(t.numpy()[place(0)].any() for t in draw["record"])
    noise = np.concatenate(
        [np.ravel(t[place(1)]) for draw in draws for t in draw["record"]]
    )
    stddev = 3**0.5 * plan.client_noise_multiplier * S
    assert abs(noise.std() / stddev - 1) < 5 / (2 * noise.size) ** 0.5


@pytest.mark.parametrize("name", ["weight", "zone", "carries_noise"])
def test_profiles_with_too_few_of_anything_is_refused(name):
    profiles = dict(profiles_of())
    profiles[name] = profiles[name][:1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="not of its clients"):
        summed(sum_by_norms, plan_of("c2"), updates()[0], profiles)


@pytest.mark.parametrize("clipping", [FLAT, PER_LAYER], ids=["flat", "per layer"])
@pytest.mark.parametrize("config", ["c1", "c2", "c4", "c7", "none"])
def test_numbers_are_clipped_together_as_one_by_one(config, clipping):
    """Whether zones are alike or not, and what is no number too."""
    mixed = {"alpha": 0.5, "beta": 0.5} if config == "c7" else {}
    mean = ZonedMean(plan_of(config, clipping, **mixed), [tf.TensorSpec([])] * 2)
    sent = mean.client_state(mean.initial_state())
    numbers = np.float32([0.1, 2.0, 30.0, np.nan, np.inf, 1e30, 1e-30, 0.0])
    stack = [tf.constant(numbers), tf.constant(numbers[::-1].copy())]
    zone = tf.range(len(numbers)) % 2
    together = mean.clipped(sent, stack, zone, stacked=True)
    alone = [
        mean.clipped(sent, [t[i] for t in stack], zone[i]) for i in range(len(numbers))
    ]
    stacked = tf.nest.map_structure(lambda *t: tf.stack(t), *alone)
    assert stacked["rejected"].numpy().tolist() == [i in range(2, 6) for i in range(8)]
    tf.nest.map_structure(np.testing.assert_array_equal, together, stacked)
