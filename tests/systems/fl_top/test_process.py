"""FL-TOP's rounds against Keras clients trained one by one, and its noise."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.core.impl.compiler import building_blocks
from tensorflow_federated.python.core.impl.compiler.transformation_utils import (
    transform_postorder,
)

from tests.systems.fl_top.rounds import (
    CLIENTS,
    COHORT,
    RATE,
    cohort_data,
    flat_weights,
    flatten,
    start,
)
from tests.thinning import thinned
from tff_hdp import runtime
from tff_hdp.aggregators import round_events
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.errors import NoiseError
from tff_hdp.privacy import Clipping
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top.client_work import train_compressed
from tff_hdp.systems.fl_top.compressed_sensing import CompressedSensing
from tff_hdp.systems.fl_top.compressors import (
    FixedSubset,
    Identity,
    RandomSubset,
    draw_subset,
)
from tff_hdp.systems.fl_top.process import build_fl_top

TOLERANCE = {"rtol": 1e-3, "atol": 2e-5}
pytestmark = pytest.mark.usefixtures("in_process")


def top_k_sgd(model, initial, examples, order, coordinates):
    """Algorithm 2: after every step all but the chosen weights are w_0's again."""
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = start = flatten(initial).astype(np.float64)
    chosen = np.zeros(len(start), bool)
    chosen[coordinates] = True
    for rows in order:
        rows = rows[rows >= 0]
        assign(model, weights)
        with tf.GradientTape() as tape:
            loss = loss_fn(examples[1][rows], model(examples[0][rows]))
        gradient = tape.gradient(loss, model.trainable_weights)
        moved = weights - RATE * flatten([g.numpy() for g in gradient])
        weights = np.where(chosen, moved, start)
    return weights


def assign(model, flat):
    position = 0
    for variable in model.trainable_weights:
        size = variable.shape.num_elements()
        variable.assign(np.reshape(flat[position : position + size], variable.shape))
        position += size


def quiet_plan():
    return fl_top_dp.plan_without_noise(clients=CLIENTS, per_round=COHORT)


@pytest.fixture(scope="module")
def compressors(initial):
    flat = flatten(initial)
    coordinates = np.sort(np.random.default_rng(3).permutation(len(flat))[:200])
    return {
        "std": Identity(len(flat)),
        "top": FixedSubset(flat, coordinates),
        "basic": RandomSubset(len(flat), 200, seed=9),
        "cs": CompressedSensing(len(flat), 400, seed=3),
    }


@pytest.mark.parametrize("scheme", thinned(["top", "basic", "std"], every=2))
def test_a_round_is_the_mean_of_clients_trained_one_by_one(
    task, initial, scheme, build, compressors
):
    compressor = compressors[scheme]
    process = build(quiet_plan(), compressor)
    data, orders = cohort_data(task)
    output = process.next(start(process, initial), data)

    coordinates = compressor.trainable(tf.constant(0))
    whole = np.arange(compressor.num_weights)
    coordinates = whole if coordinates is None else coordinates.numpy()
    model = task.build_model()
    trained = [
        top_k_sgd(model, initial, task.train.examples(c), orders[c], coordinates)
        for c in range(COHORT)
    ]
    found = flat_weights(process, output.state)
    np.testing.assert_allclose(found, np.mean(trained, axis=0), **TOLERANCE)
    others = np.setdiff1d(whole, coordinates)
    np.testing.assert_array_equal(found[others], flatten(initial)[others])


def test_random_weights_are_others_every_round(task, initial, build):
    """Of all parties: what clients train is what the server takes it for."""
    n = len(flatten(initial))
    process = build(quiet_plan(), RandomSubset(n, 50, seed=9))
    state, (data, orders) = start(process, initial), cohort_data(task, range(2))
    weights = [flatten(initial)]
    for _ in range(2):
        state = process.next(state, data).state
        weights.append(flat_weights(process, state))
    model = task.build_model()
    for number, (before, after) in enumerate(itertools.pairwise(weights)):
        chosen = draw_subset(n, 50, 9, tf.constant(number)).numpy()
        trained = [
            top_k_sgd(model, [before], task.train.examples(c), orders[c], chosen)
            for c in range(2)
        ]
        np.testing.assert_allclose(after, np.mean(trained, axis=0), **TOLERANCE)
        assert np.abs(after - before).max() > 10 * TOLERANCE["atol"]


def test_all_weights_chosen_is_fl_std(task, initial, build, compressors):
    flat = flatten(initial)
    results = []
    for compressor in (
        compressors["std"],
        FixedSubset(flat, np.arange(len(flat))),
        RandomSubset(len(flat), len(flat), seed=1),
    ):
        process = build(quiet_plan(), compressor)
        state = start(process, initial)
        for _ in range(2):
            state = process.next(state, cohort_data(task)[0]).state
        results.append(flat_weights(process, state))
    np.testing.assert_allclose(results[1], results[0], **TOLERANCE)
    np.testing.assert_allclose(results[2], results[0], **TOLERANCE)


@pytest.mark.parametrize("scheme", ["std", "top", "basic"])
def test_bytes_are_those_of_the_formula(task, initial, scheme, build, compressors):
    compressor = compressors[scheme]
    process = build(quiet_plan(), compressor)
    exchanged = process.next(start(process, initial), cohort_data(task)[0]).metrics[
        "exchanged"
    ]
    n = compressor.num_weights
    up, down = {"std": (n, n), "top": (200, 200), "basic": (200, n)}[scheme]
    assert exchanged["upstream_bytes"] == 4 * up * COHORT
    assert exchanged["downstream_bytes"] == 4 * down * COHORT


@pytest.mark.parametrize(("scheme", "whole"), [("std", True), ("top", False)])
def test_what_crosses_the_network_has_the_compressed_size(
    build, compressors, scheme, whole
):
    """By the types of what is broadcast and added up."""
    types = []

    def note(block):
        if isinstance(block, building_blocks.Intrinsic):
            types.append(str(block.type_signature))
        return block, False

    process = build(quiet_plan(), compressors[scheme])
    transform_postorder(process.next.to_building_block(), note)
    all_weights = f"float32[{compressors[scheme].num_weights}]"
    assert any(all_weights in each for each in types) == whole


def test_gradients_that_are_nan_leave_the_other_weights_alone(task, initial):
    broken = [w.copy() for w in initial]
    broken[0][:] = np.nan
    flat = flatten(broken)
    subset = FixedSubset(flat, np.array([len(flat) - 1]))
    model = task.build_model()
    (data, *_), _ = cohort_data(task)
    updates, _ = train_compressed(
        StackedModel(model),
        tf.constant(flat),
        data.get_single_element(),
        compressor=subset,
        round_number=tf.constant(0),
        learning_rate=RATE,
    )
    assert updates.shape[1] == 1
    whole = subset.decompress(updates[0], tf.constant(0)).numpy()
    assert np.isnan(whole[-1]) and not whole[:-1].any()


@pytest.mark.parametrize("scheme", thinned(["top", "basic", "std"], every=2))
def test_the_secure_sum_carries_s_sigma_on_what_is_exchanged(
    task, initial, scheme, build, compressors
):
    compressor, s, sigma = compressors[scheme], 0.5, 1.54
    plan = fl_top_dp.plan(
        clients=CLIENTS, per_round=COHORT, sigma=sigma, clipping=Clipping(clip_norm=s)
    )
    process = build(plan, compressor)
    begin, data = start(process, initial), cohort_data(task)[0]
    deviations = []
    for _ in range(30):
        output = process.next(begin, data)
        deviations.append(flat_weights(process, output.state))
    coordinates = compressor.trainable(tf.constant(0))
    chosen = slice(None) if coordinates is None else coordinates.numpy()
    spread = np.array(deviations)[:, chosen].std(axis=0, ddof=1)
    # 30 x K normal draws: the root mean square is known to about 1 %.
    assert math.sqrt(np.mean(spread**2)) == pytest.approx(s * sigma / COHORT, rel=0.06)
    others = np.delete(np.array(deviations), chosen, axis=1)
    assert not np.ptp(others, axis=0).any() if others.size else True


@pytest.mark.parametrize(
    ("scheme", "private"),
    thinned(["std", "top", "basic", "cs"], [False, True], every=4),
)
def test_a_client_that_is_rejected_leaves_no_trace(
    task, initial, scheme, private, build, compressors
):
    plan = quiet_plan()
    if private:
        # Noise far below the tolerance, and nobody clipped.
        plan = fl_top_dp.plan(
            clients=CLIENTS,
            per_round=COHORT,
            sigma=1e-9,
            clipping=Clipping(clip_norm=99.0),
        )
    process = build(plan, compressors[scheme], dtype=np.float32)
    moved = []
    for poisoned in (True, False):
        (chunk, *_), _ = cohort_data(task)
        chunk = chunk.get_single_element()
        chunk["features"] = chunk["features"].numpy().astype(np.float32)
        if poisoned:
            chunk["features"][1] = np.nan
        else:
            chunk["order"] = chunk["order"].numpy()
            chunk["order"][1] = -1  # the client has nothing to train on
        output = process.next(
            start(process, initial), [tf.data.Dataset.from_tensors(chunk)]
        )
        assert output.metrics["aggregator"]["rejected"] == int(poisoned)
        moved.append(flat_weights(process, output.state) - flatten(initial))
    assert np.abs(moved[1]).max() > 100 * TOLERANCE["atol"]
    # With noise k is the denominator whoever is rejected; else it is who is not.
    ratio = 1.0 if private else 4 / 3
    np.testing.assert_allclose(moved[0], ratio * moved[1], **TOLERANCE)


def test_noise_that_drop_outs_take_along_is_not_accounted_for(
    task, initial, build, compressors
):
    """Two of six stay away, and the sum has sigma sqrt(4/6): it is not recorded."""
    plan = fl_top_dp.plan(clients=CLIENTS, per_round=COHORT, sigma=1.0)
    process = build(plan, compressors["top"])

    def events_of(clients):
        data, _ = cohort_data(task, range(clients))
        metrics = process.next(start(process, initial), data).metrics
        return round_events(metrics["aggregator"])

    ledger = fl_top_dp.FlTopLedger()
    with pytest.raises(NoiseError, match="noise of 2 clients"):
        ledger.record(plan, events=events_of(4))
    assert ledger.rounds == 0
    ledger.record(plan, events=events_of(6))
    # Such a threat model has the number of shares at random.
    bears = dataclasses.replace(fl_top_dp.THREAT, dropout_rate=0.2)
    ledger.record(plan, threat=bears, events=events_of(4))
    assert ledger.rounds == 2


def test_clients_are_clipped_in_the_compressed_space(task, initial, build, compressors):
    compressor, s = compressors["top"], 1e-3
    plan = fl_top_dp.plan(
        clients=CLIENTS, per_round=COHORT, sigma=1e-4, clipping=Clipping(clip_norm=s)
    )
    process = build(plan, compressor)
    output = process.next(start(process, initial), cohort_data(task)[0])
    moved = flat_weights(process, output.state) - flatten(initial)
    assert output.metrics["aggregator"]["update_norm"] > 10 * s
    assert 0.1 * s < np.linalg.norm(moved) <= s * 1.01


def test_compressed_sensing_steps_by_what_it_recovers(
    task, initial, build, compressors
):
    flat = flatten(initial)
    sensing = CompressedSensing(len(flat), len(flat) // 2, seed=3)
    process = build(quiet_plan(), sensing)
    output = process.next(start(process, initial), cohort_data(task)[0])
    moved = flat - flat_weights(process, output.state)
    plain = build(quiet_plan(), compressors["std"])
    whole = plain.next(start(plain, initial), cohort_data(task)[0])
    mean = flat - flat_weights(plain, whole.state)
    number = tf.constant(0)
    measured = sensing.compress(tf.constant(mean[np.newaxis]), number)[0]
    np.testing.assert_allclose(
        moved, sensing.decompress(measured, number), rtol=1e-2, atol=1e-4
    )
    # An update is not sparse, so this is far from exact, but it is the update's.
    assert np.dot(moved, mean) > 0.5 * np.dot(mean, mean)
    assert output.metrics["exchanged"]["upstream_bytes"] == 4 * (len(flat) // 2) * 6


@pytest.mark.slow
def test_the_native_worker_runs_the_same_rounds(
    task, initial, native_context, build, compressors
):
    del native_context
    size = len(flatten(initial))
    schemes = (
        compressors["top"],
        CompressedSensing(size, 400, seed=3, iterations=5),
    )

    def one_round(compressor):
        process = build(quiet_plan(), compressor)
        output = process.next(start(process, initial), cohort_data(task)[0])
        return flat_weights(process, output.state), output.metrics["exchanged"]

    native = [one_round(compressor) for compressor in schemes]
    runtime.set_context("in_process")
    for compressor, (weights, exchanged) in zip(schemes, native, strict=True):
        here, exchanged_here = one_round(compressor)
        np.testing.assert_allclose(weights, here, **TOLERANCE)
        assert dict(exchanged) == dict(exchanged_here)


def test_another_model_is_refused(build):
    with pytest.raises(ValueError, match="num_weights is 5; allowed: "):
        build(quiet_plan(), Identity(5))


def test_other_kinds_of_arguments_are_refused(build):
    with pytest.raises(ValueError, match=r"^plan is None; allowed: a NoisePlan"):
        build(None, Identity(5))
    with pytest.raises(ValueError, match=r"^compressor is 5; allowed: a Compressor"):
        build(quiet_plan(), 5)
    with pytest.raises(ValueError, match=r"^data_type is None; allowed: "):
        build_fl_top(
            build_model=None,
            data_type=None,
            plan=quiet_plan(),
            compressor=Identity(5),
            client_learning_rate=0.1,
        )
