"""Weights beyond 1, of a client's own or of TFF: rejected, counted, and said."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory, round_events
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FullParticipation, configurations

pytestmark = pytest.mark.usefixtures("in_process_default")
PLAN = configurations.none(zone_sizes=(2, 2), sampling=FullParticipation())
OF_WEIGHTS = [(np.float32, [3])]
# As of a `zoned_model`: a profile rides at its end.
ZONED = tff.to_type([*OF_WEIGHTS, (np.float32, [1, 1, 1, 1, 1, 4])])


def warned(given, measurements):
    with pytest.warns(UserWarning) as said:
        round_events(measurements)
    words = [str(one.message) for one in said]
    count = sum(weight > 1.0 for weight in given)
    assert measurements["overweight"] == measurements["rejected"] == count
    assert f"{count} of 4 updates of a round were rejected: their weights" in words[-1]
    # That all were is said too.
    assert [each for each in words if each.startswith("all 4")] == words[:-1]
    assert len(words) == 1 + (count == 4)


@pytest.mark.parametrize("weights", [(1.0, 20.0, 1.0, 0.5), (20.0, 20.0, 2.0, 1.5)])
def test_of_ones_own(weights):
    process = HierarchicalMeanFactory(PLAN).create(tff.to_type(OF_WEIGHTS), WEIGHT_TYPE)
    profiles = [
        collections.OrderedDict(weight=w, zone=i // 2, carries_noise=False)
        for i, w in enumerate(weights)
    ]
    update = [np.ones([3], np.float32)]
    output = process.next(process.initialize(), [update] * 4, profiles)
    warned(weights, output.measurements)


@pytest.mark.parametrize("weights", [(1.0, 20.0, 20.0, 20.0), (20.0, 20.0, 2.0, 1.5)])
def test_of_tff(weights):
    """A single client of one example must not hide that the others are left out."""
    process = HierarchicalMeanFactory(PLAN).create(ZONED, tff.to_type(np.float32))
    updates = [
        [np.ones([3], np.float32), np.float32([[[[[[1.0, 1.0, i // 2, 0.0]]]]]])]
        for i in range(4)
    ]
    output = process.next(process.initialize(), updates, list(weights))
    warned(weights, output.measurements)


def test_a_cap_of_weights_that_tff_does_not_give_is_refused():
    factory = HierarchicalMeanFactory(PLAN, example_cap=20)
    with pytest.raises(
        ArgumentError, match=r"example_cap is 20\.0; allowed: None with"
    ):
        factory.create(tff.to_type(OF_WEIGHTS), WEIGHT_TYPE)


@pytest.mark.parametrize("estimator", ["fixed", "bounded"])
def test_a_cap_needs_the_weights_that_it_makes(estimator):
    """Divided by the number of clients, the model moved by a part of the mean."""
    options = {"zone_sizes": (2, 2), "sampling": FullParticipation()}
    options["estimator"] = estimator
    plan = configurations.c2(noise_multiplier=1.0, **options)
    factory = HierarchicalMeanFactory(plan, example_cap=20)
    with pytest.raises(ArgumentError, match=r"^plan\.zone_weights is None; allowed: e"):
        factory.create(ZONED, tff.to_type(np.float32))
    plan = dataclasses.replace(plan, zone_weights=(0.5, 1.0))
    factory = HierarchicalMeanFactory(plan, example_cap=20)
    factory.create(ZONED, tff.to_type(np.float32))


def test_a_profile_does_not_ride_twice():
    with pytest.raises(ArgumentError, match=r"^value_type is .* without a profile"):
        HierarchicalMeanFactory(PLAN).create(ZONED, WEIGHT_TYPE)
