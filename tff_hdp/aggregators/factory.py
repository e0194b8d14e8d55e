"""The zoned mean: clip and noise as a plan says, zone by zone, in one pass."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.levels import LevelQueries
from tff_hdp.aggregators.sums import federated_total
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.privacy.plan import NoisePlan

WEIGHT_TYPE = tff.to_type(
    collections.OrderedDict(weight=np.float32, zone=np.int32, carries_noise=np.bool_)
)


class HierarchicalMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """Means within zones, mixed into one, with noise at any level.

    The process this creates takes a client's update as value, and as weight the
    structure `WEIGHT_TYPE`: its example weight w in (0, 1], its zone, and whether
    it noises its own update. It screens each update (a NaN, an infinity or a
    weight out of range: zeroed and counted), preprocesses it with the levels'
    queries, weights it, sums within zones, and releases sum_i p_i X_i with each
    level's noise (see `NoisePlan`).

    Without noise and with the `realised` estimator this is the weighted mean of
    all clients, whatever the zones. An empty cohort still gets its noise.

    The process's state holds the queries' states. Its measurements are un-noised
    and so meant for the operator of a simulation, not for release, except
    `events`, the queries' `DpEvent`s as named tuples.

    Args:
      plan: Who adds which noise, denominators and mixing weights.
      queries: Replaces the queries that the plan implies, for instance to put a
        tensorflow-privacy query of your own at a level. What is then accounted
        is what the events say, not the plan.

    Raises:
      TypeError: From `create`, if the value is not a structure of floats.
    """

    def __init__(self, plan: NoisePlan, *, queries: LevelQueries | None = None) -> None:
        self._plan = plan
        self._queries = queries

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """See base class. `weight_type` must be `WEIGHT_TYPE`."""
        _check_floats(value_type)
        WEIGHT_TYPE.check_assignable_from(weight_type)
        mean = self._mean(tff.types.type_to_tf_tensor_specs(value_type))
        initial_state = tff.tensorflow.computation(mean.initial_state)
        state_type = initial_state.type_signature.result
        client_state = tff.tensorflow.computation(mean.client_state, state_type)

        @tff.tensorflow.computation(
            client_state.type_signature.result, value_type, WEIGHT_TYPE
        )
        def contribution(sent: Any, value: Any, weight: Any) -> Any:
            return self._sent(mean.contribution(sent, value, weight), weight["zone"])

        release = tff.tensorflow.computation(mean.release)

        @tff.federated_computation
        def init_fn() -> Any:
            return tff.federated_eval(initial_state, tff.SERVER)

        @tff.federated_computation(
            init_fn.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(WEIGHT_TYPE, tff.CLIENTS),
        )
        def next_fn(state: Any, value: Any, weight: Any) -> Any:
            sent = tff.federated_broadcast(tff.federated_map(client_state, state))
            contributions = tff.federated_map(contribution, (sent, value, weight))
            total = self._total(mean, contributions)
            result, new_state, measurements = tff.federated_map(release, (state, total))
            return tff.templates.MeasuredProcessOutput(new_state, result, measurements)

        return tff.templates.AggregationProcess(init_fn, next_fn)

    def _mean(self, record: Any) -> ZonedMean:
        return ZonedMean(self._plan, record, queries=self._queries)

    def _sent(self, contribution: Any, zone: tf.Tensor) -> Any:
        """What a client sends."""
        return contribution, zone

    def _total(self, mean: ZonedMean, sent: Any) -> Any:
        """What `mean.release` takes, at SERVER, of what clients sent."""
        return zone_sums(mean, sent)


def zone_sums(mean: ZonedMean, contributions: Any) -> Any:
    """Sums clients' contributions; for use inside a `tff.federated_computation`.

    Args:
      mean: Whose contributions they are.
      contributions: Pairs of contribution and zone (int32 []), at CLIENTS.

    Returns:
      What `mean.release` takes as total, at SERVER.
    """
    sent_type = contributions.type_signature.member

    @tff.tensorflow.computation
    def zero() -> Any:
        return mean.zero(tff.types.type_to_tf_tensor_specs(sent_type[0]))

    @tff.tensorflow.computation(zero.type_signature.result, sent_type)
    def add(total: Any, sent: Any) -> Any:
        return mean.add(total, *sent)

    return federated_total(zero, add, contributions)


def _check_floats(value_type: tff.Type) -> None:
    for spec in tf.nest.flatten(tff.types.type_to_tf_tensor_specs(value_type)):
        if not spec.dtype.is_floating:
            raise TypeError(
                f"value_type holds {spec.dtype.name}; a mean needs floating tensors"
            )
