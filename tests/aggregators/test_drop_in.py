"""The hierarchical mean in TFF's federated averaging, against our own process."""

import collections
import dataclasses
import functools
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp import privacy
from tff_hdp.aggregators import (
    WEIGHT_TYPE,
    HierarchicalMeanFactory,
    UnweightedHierarchicalMeanFactory,
    client,
    round_events,
    zoned_model,
)
from tff_hdp.clients.client_work import client_profile, model_fn_from_keras
from tff_hdp.errors import ArgumentError, NoiseError
from tff_hdp.privacy import Clipping, FullParticipation, Ledger, configurations
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.systems.hdp.clients import single_clients
from tff_hdp.systems.hdp.process import build_hdp

pytestmark = pytest.mark.usefixtures("in_process_default")
DOC = pathlib.Path(__file__).parents[2] / "docs" / "drop_in.md"
SGD = tff.learning.optimizers.build_sgdm
SIZES, ZONES = (4, 9, 3, 6), (0, 1, 1, 0)
# W_i as if w were 1 for all; `example_cap` asks for it.
OPTIONS = {"zone_sizes": (2, 2), "sampling": FullParticipation()}
OPTIONS["zone_weights"] = (2.0, 2.0)


def build_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([6]),
            tf.keras.layers.Dense(5, activation="relu"),
            tf.keras.layers.Dense(4),
        ]
    )


MODEL_FN = model_fn_from_keras(
    build_model, (tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None], tf.int32))
)


def batches(size, spoilt=False):
    rng = np.random.default_rng(size)
    features = rng.normal(size=[size, 6]).astype(np.float32)
    if spoilt:
        features[0, 0] = np.nan
    labels = rng.integers(0, 4, size=size).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(4)


@functools.cache
def drop_in(plan, **options):
    """TFF's own process: weighted by examples if `example_cap` is given."""
    arguments = (zoned_model(MODEL_FN), SGD(0.1))
    if "example_cap" in options:
        return tff.learning.algorithms.build_weighted_fed_avg(
            *arguments, model_aggregator=HierarchicalMeanFactory(plan, **options)
        )
    return tff.learning.algorithms.build_unweighted_fed_avg(
        *arguments, model_aggregator=UnweightedHierarchicalMeanFactory(plan, **options)
    )


def data_of(carries=False, w=None, spoilt=()):
    w = [1.0] * 4 if w is None else w
    return [
        client(batches(n, i in spoilt), zone=z, weight=a, carries_noise=carries)
        for i, (n, z, a) in enumerate(zip(SIZES, ZONES, w, strict=True))
    ]


@functools.cache
def our_own(plan):
    return build_hdp(
        clients=single_clients(model_fn=MODEL_FN, client_optimizer=SGD(0.1)),
        plan=plan,
        server_optimizer=SGD(1.0),
    )


def our_data(carries=False, w=None):
    w = [1.0] * 4 if w is None else w
    return [
        collections.OrderedDict(
            examples=batches(n),
            profile=client_profile(weight=a, zone=z, carries_noise=carries),
        )
        for n, z, a in zip(SIZES, ZONES, w, strict=True)
    ]


@pytest.fixture(scope="module")
def initial():
    tf.keras.utils.set_random_seed(3)
    return [v.numpy() for v in build_model().trainable_variables]


def run(process, weights, data, rounds=2):
    state = process.initialize()
    # A zoned model has one weight more.
    more = process.get_model_weights(state).trainable[len(weights) :]
    weights = tff.learning.models.ModelWeights([*weights, *more], [])
    state = process.set_model_weights(state, weights)
    for _ in range(rounds):
        output = process.next(state, data)
        state = output.state
    return process.get_model_weights(state).trainable, output.metrics


def compare(plan, initial, ours, theirs, **options):
    expected, _ = run(our_own(plan), initial, ours)
    found, metrics = run(drop_in(plan, **options), initial, theirs)
    assert not np.any(found[-1])
    for a, b in zip(found[:-1], expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert metrics["aggregator"]["clients"].tolist() == [2, 2]
    assert metrics["aggregator"]["lost"] == 0


def test_the_documented_code_runs():
    code, before = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 18
    names: dict[str, object] = {}
    exec(before + code, names)
    assert names["ledger"].rounds == 3
    assert names["metrics"]["aggregator"]["rejected"] == 0


PLANS = {
    "none": configurations.none(**OPTIONS),
    "clipped": configurations.c2(
        noise_multiplier=1e-7,
        clipping=Clipping(clip_norm=0.05),
        mixing="equal",
        **OPTIONS | {"zone_weights": (1.0, 2.0)},
    ),
    "whole": configurations.c2(
        noise_multiplier=1e-9,
        clipping=Clipping(clip_norm=9.0),
        **OPTIONS | {"zone_weights": (10 / 9, 12 / 9)},
    ),
    "noisy": privacy.NoisePlan(
        client_noise_multiplier=0.7,
        noising_clients=(2, 2),
        zone_noise_multipliers=(1.5, 0.0),
        server_noise_multiplier=1.1,
        clipping=Clipping(clip_norm=40.0),
        **OPTIONS,
    ),
}


@pytest.mark.parametrize("plan", thinned(["clipped", "none"], every=2))
def test_unweighted_equals_our_own_process(initial, plan):
    """With clipping that bites and next to no noise, too."""
    w = [1.0, 0.5, 0.25, 1.0]
    compare(PLANS[plan], initial, our_data(w=w), data_of(w=w))


def test_weighted_equals_our_own_process(initial):
    # Beyond the cap of six examples a client counts as one of six.
    w = [n / 6 if n < 6 else 1.0 for n in SIZES]
    compare(PLANS["clipped"], initial, our_data(w=w), data_of(), example_cap=6)


def test_weighted_equals_tffs_mean(initial, own_context, native_context):
    """On TFF's worker; in process where a plan divides by what its zones weigh, too."""
    del native_context
    theirs = tff.learning.algorithms.build_weighted_fed_avg(MODEL_FN, SGD(0.1))
    expected, _ = run(theirs, initial, [batches(n) for n in SIZES])
    for plan in ("none", "whole"):
        found, _ = run(drop_in(PLANS[plan], example_cap=9), initial, data_of())
        for a, b in zip(found[:-1], expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        tff.framework.set_default_context(own_context)


@pytest.mark.parametrize("options", thinned([{"example_cap": 1}, {}], every=2))
def test_noise_events_and_ledger_are_those_of_our_own_process(initial, options):
    """Clients, one super-node and the server add noise."""
    plan = PLANS["noisy"]
    found = run(drop_in(plan, **options), initial, data_of(carries=True), rounds=1)
    ours = run(our_own(plan), initial, our_data(carries=True), rounds=1)
    events = [round_events(metrics["aggregator"]) for _, metrics in (found, ours)]
    assert events[0] == events[1]
    ledgers = [Ledger(), Ledger()]
    for ledger, measured in zip(ledgers, events, strict=True):
        ledger.record(plan, events=measured)
    assert ledgers[0] == ledgers[1]
    pairs = zip(found[0][:-1], initial, strict=True)
    moved = np.concatenate([np.ravel(a - b) for a, b in pairs])
    assert not np.any(found[0][-1])
    # 59 coordinates: standard error 9 %; training moves them by less than 1.
    expected = 40.0 / 4 * np.sqrt(4 * 0.7**2 + 1.5**2 + 1.1**2)
    assert moved.std() == pytest.approx(expected, rel=0.45)


def test_a_lost_client_is_counted_and_its_noise_not_claimed(initial):
    plan = PLANS["noisy"]
    data = data_of(carries=True, spoilt=(2,))
    found, metrics = run(drop_in(plan, example_cap=1), initial, data, rounds=1)
    assert all(np.isfinite(w).all() for w in found)
    assert metrics["aggregator"]["lost"] == metrics["aggregator"]["rejected"] == 1
    with pytest.raises(ValueError, match="level 'client' emitted a noise multiplier"):
        Ledger().record(plan, events=round_events(metrics["aggregator"]))


@pytest.mark.parametrize("factory", ["weighted", "unweighted"])
def test_no_clients_data_may_leave_a_zone_out(factory):
    """Whose training diverges has no zone, and a zone of as many as it takes goes."""
    plan = dataclasses.replace(PLAN, secure_aggregation=True, min_zone_clients=2)
    plan = with_encoding(plan, size=59, bits=30)
    with pytest.raises(ArgumentError, match=r"min_zone_clients is 2; allowed: 1 with"):
        if factory == "weighted":
            HierarchicalMeanFactory(plan).create(ZONED, tff.to_type(np.float32))
        else:
            UnweightedHierarchicalMeanFactory(plan).create(ZONED)
    # Profiles of their own say which zone, whatever becomes of the update.
    HierarchicalMeanFactory(plan).create(tff.to_type(UPDATE), WEIGHT_TYPE)


def test_rounds_of_a_builder_that_carries_no_zone_are_refused():
    """Clients of FedSGD send gradients, which a profile has none of."""
    plan = configurations.c2(noise_multiplier=1.0, **OPTIONS)
    process = tff.learning.algorithms.build_fed_sgd(
        zoned_model(MODEL_FN),
        model_aggregator=HierarchicalMeanFactory(plan, example_cap=9),
    )
    measured = process.next(process.initialize(), data_of()).metrics["aggregator"]
    assert measured["lost"] == measured["rejected"] == 4
    with pytest.raises(ArgumentError, match=r"^lost is 4; .* all 4 clients; they sent"):
        round_events(measured)


@pytest.mark.parametrize("present", [[], [2]])
def test_rounds_in_which_nobodys_training_ends_well_are_recorded(initial, present):
    """TFF sends zeros for whom it diverged; noise is added as ever."""
    plan = configurations.c2(noise_multiplier=1.0, **OPTIONS)
    data = data_of(spoilt=present)
    _, metrics = run(drop_in(plan), initial, [data[i] for i in present], rounds=1)
    assert metrics["aggregator"]["lost"] == len(present)
    ledger = Ledger()
    ledger.record(plan, events=round_events(metrics["aggregator"]))
    assert ledger.rounds == 1


@pytest.mark.parametrize("kind", thinned(["weighted", "unweighted"], every=2))
def test_builders_that_no_zoned_model_suits(kind):
    """They compute with a gradient of every weight."""
    plan = configurations.c2(noise_multiplier=1.0, **OPTIONS)
    algorithms, mean = tff.learning.algorithms, HierarchicalMeanFactory(plan)
    if kind == "unweighted":
        mean = UnweightedHierarchicalMeanFactory(plan)
    options = {"base_optimizer": SGD(0.1), "model_aggregator": mean}
    with pytest.raises(AttributeError, match="NoneType"):
        getattr(algorithms, f"build_{kind}_mime_lite")(zoned_model(MODEL_FN), **options)
    options = {"client_optimizer_fn": SGD(0.1), "model_aggregator": mean}
    with pytest.raises(ValueError, match="None"):
        getattr(algorithms, f"build_{kind}_fed_prox")(
            zoned_model(MODEL_FN), proximal_strength=0.1, **options
        )


# Types -----------------------------------------------------------------------

UPDATE = [(np.float32, [6, 5]), (np.float32, [5])]
ZONED = tff.to_type([*UPDATE, (np.float32, [1, 1, 1, 1, 1, 4])])
PLAN = PLANS["none"]


@pytest.mark.parametrize("weight", [None, np.float32, np.float64])
def test_type_signatures(weight):
    if weight is None:
        process = UnweightedHierarchicalMeanFactory(PLAN).create(ZONED)
    else:
        process = HierarchicalMeanFactory(PLAN).create(ZONED, tff.to_type(weight))
    assert process.is_weighted == (weight is not None)
    state = [("round", np.int32), ("plan", np.int64)]
    state_type = tff.FederatedType(state, tff.SERVER)
    sent = [("value", tff.FederatedType(ZONED, tff.CLIENTS))]
    if weight is not None:
        sent.append(("weight", tff.FederatedType(weight, tff.CLIENTS)))
    measured = collections.OrderedDict(
        clients=(np.int32, [2]),
        counted=(np.int32, [2]),
        noising=(np.int32, [2]),
        rejected=np.int32,
        update_norm=np.float32,
        tensor_norms=(np.float32, [2]),
        plan=np.int64,
        clip_norm=np.float32,
        strangers=np.int32,
        overweight=np.int32,
        lost=np.int32,
        strays=np.int32,
    )
    expected = tff.FunctionType(
        [("state", state_type), *sent],
        tff.templates.MeasuredProcessOutput(
            state_type,
            tff.FederatedType(ZONED, tff.SERVER),
            tff.FederatedType(measured, tff.SERVER),
        ),
    )
    assert process.next.type_signature.is_equivalent_to(expected)
    assert process.initialize.type_signature.result.is_equivalent_to(state_type)


@pytest.mark.parametrize(
    "value_type",
    [
        tff.to_type(UPDATE),
        # Whose last weight is a layer's four biases.
        tff.to_type([*UPDATE, (np.float32, [4])]),
        tff.TensorType(np.float32, [1, 1, 1, 1, 1, 4]),
        tff.to_type([(np.float32, [1, 1, 1, 1, 1, 4])]),
    ],
)
def test_updates_without_profile_are_refused(value_type):
    with pytest.raises(ArgumentError, match=r"value_type is .*zoned_model"):
        UnweightedHierarchicalMeanFactory(PLAN).create(value_type)


def test_integer_weights_are_refused():
    with pytest.raises(TypeError, match="weight_type is int32"):
        HierarchicalMeanFactory(PLAN).create(ZONED, tff.to_type(np.int32))


def test_functional_models_are_refused():
    functional = tff.learning.models.functional_model_from_keras(
        build_model(), tf.keras.losses.MeanSquaredError(), MODEL_FN().input_spec
    )
    with pytest.raises(ArgumentError, match="model_fn is FunctionalModel"):
        zoned_model(functional)


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan"), float("inf"), True, "5"])
def test_caps_out_of_range_are_refused(cap):
    with pytest.raises(ArgumentError, match=f"example_cap is {cap!r}"):
        HierarchicalMeanFactory(PLAN, example_cap=cap)


def test_a_cohort_that_the_plan_never_draws_is_not_recorded(initial):
    """Three clients of a zone of two, or one of them twice."""
    plan = configurations.c2(noise_multiplier=1.0, **OPTIONS)
    _, metrics = run(drop_in(plan), initial, [data_of()[0]] * 3, rounds=1)
    events = round_events(metrics["aggregator"])
    with pytest.raises(NoiseError, match="3 clients of zone 0 took part, but the plan"):
        Ledger().record(plan, events=events)
    # A plan that would draw them is another.
    with pytest.raises(NoiseError, match="of a round of another plan"):
        Ledger().record(dataclasses.replace(plan, zone_sizes=(3, 2)), events=events)


def test_that_tffs_weights_are_all_beyond_one_is_said(initial):
    """It weighs by examples unless told otherwise."""
    plan = configurations.c2(noise_multiplier=1.0, **OPTIONS)
    process = drop_in(plan, example_cap=None)
    _, metrics = run(process, initial, data_of(), rounds=1)
    with pytest.warns(UserWarning, match=r"all 4 updates .* \(example_cap\), or"):
        round_events(metrics["aggregator"])


def test_that_zones_are_counted_from_one_is_said(initial):
    """Half of the clients would else be left out without a word."""
    plan = configurations.c2(noise_multiplier=1.0, **OPTIONS)
    data = [client(batches(n), zone=z + 1) for n, z in zip(SIZES, ZONES, strict=True)]
    _, metrics = run(drop_in(plan), initial, data, rounds=1)
    with pytest.warns(UserWarning, match=r"2 of 4 .* zones are none of .* 0\.\.1$"):
        events = round_events(metrics["aggregator"])
    assert events["clients"] == [0, 2]


@pytest.mark.parametrize("weight", [1e-60, 1e-40])
def test_a_weight_that_float32_has_not_is_refused(weight):
    with pytest.raises(ArgumentError, match=r"weight is 1e-.0; allowed: at least"):
        client(batches(4), zone=0, weight=weight)


def test_what_makes_no_variable_model_is_refused():
    """A Keras model can be called, and so can a function to one."""
    with pytest.raises(ArgumentError, match="model_fn is Sequential; allowed: a func"):
        zoned_model(build_model())
    with pytest.raises(
        ArgumentError, match=r"is a function to a Sequential; .*from_keras_model"
    ):
        zoned_model(build_model)()
