"""What systems share: initial weights, cohorts, events and notes."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_hdp.aggregators import round_events
from tff_hdp.privacy import Ledger, PoissonSampling, configurations
from tff_hdp.simulation.classifier import build_evaluation
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.system import NO_NOISE, System
from tff_hdp.topology import one_zone


class Averaging(System):
    """A system that says only what it must."""

    def __init__(self, plan):
        self.task = tasks.load("digits", num_clients=8)
        self.plan = self.sampling = plan
        self.zoning = one_zone(self.task.train.client_ids)

    def round_data(self, number, cohort, rng_of):
        return number, cohort.tolist(), rng_of(0).integers(2**32)

    def accounted(self, metrics):
        return {"plan": self.plan, "events": round_events(metrics["aggregator"])}

    def new_ledger(self):
        return Ledger()

    def notes_on_noise(self):
        return ("noise",)

    def other_notes(self):
        return ("always",)


@pytest.fixture(scope="module")
def plan():
    return configurations.c4(
        zone_sizes=(8,), sampling=PoissonSampling((0.5,)), noise_multiplier=1.5
    )


def test_a_round_is_its_cohort_and_its_own_randomness(plan):
    system = Averaging(plan)
    sampler = CohortSampler(plan=plan, zoning=system.zoning, entropy=7)
    given = system.prepare(7, 3, {"kept": 1})
    number, cohort, drawn = given.data
    assert number == 3
    assert cohort == sampler.draw(3).tolist()
    assert drawn == sampler.batch_generators(3)(0).integers(2**32)
    assert given.carried == {"kept": 1}
    assert system.prepare(7, 3, {"kept": 1}).data == given.data


def test_a_seed_fixes_initial_weights_and_nothing_after(plan):
    class Process:
        def initialize(self):
            return None

        def set_model_weights(self, state, weights):
            return weights.trainable

    system = Averaging(plan)
    system.process = Process()
    first, noise = system.initial_state(5), tf.random.normal([4]).numpy()
    again, other = system.initial_state(5), tf.random.normal([4]).numpy()
    for a, b in zip(first, again, strict=True):
        assert isinstance(a, np.ndarray)
        np.testing.assert_array_equal(a, b)
    assert (noise != other).any()
    seeded_otherwise = system.initial_state(6)
    assert (first[0] != seeded_otherwise[0]).any()


def test_rounds_are_recorded_with_the_events_of_their_noise(plan):
    system, ledger = Averaging(plan), Ledger()
    enough = dp_accounting.GaussianDpEvent(1.5).to_named_tuple()
    measured = {"clients": [4]}
    system.record(ledger, {"aggregator": measured | {"events": {"server": enough}}})
    assert ledger.rounds == 1
    little = dp_accounting.GaussianDpEvent(1.0).to_named_tuple()
    with pytest.raises(ValueError, match="emitted a noise multiplier of 1,"):
        system.record(ledger, {"aggregator": measured | {"events": {"server": little}}})
    assert ledger.rounds == 1


def test_without_noise_nothing_is_recorded_and_the_notes_say_so(plan):
    assert Averaging(plan).notes == ("noise", "always")
    plain = configurations.none(zone_sizes=(8,), sampling=PoissonSampling((0.5,)))
    system, ledger = Averaging(plain), Ledger()
    assert system.notes == (NO_NOISE, "always")
    system.record(ledger, {"aggregator": {}})
    assert ledger.rounds == 0


def test_a_model_is_tested_on_every_example_whatever_the_batches():
    task = tasks.load("digits", num_clients=8)
    model = task.build_model()
    weights = tff.learning.models.ModelWeights.from_model(model)
    weights = tf.nest.map_structure(lambda v: v.numpy(), weights)
    logits = model(task.test_features).numpy().astype(np.float64)
    likely = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    labels = np.asarray(task.test_labels)
    for batch_size in (7, len(labels), 512):
        found = build_evaluation(task, batch_size)(weights)
        assert found["accuracy"] == np.mean(logits.argmax(1) == labels)
        loss = -np.mean(likely[np.arange(len(labels)), labels])
        assert found["loss"] == pytest.approx(loss, rel=1e-5)
