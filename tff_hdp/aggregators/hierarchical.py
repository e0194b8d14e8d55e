"""The zoned mean: clip and noise as a plan says, zone by zone, in one pass."""

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import levels
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

    def __init__(
        self, plan: NoisePlan, *, queries: levels.LevelQueries | None = None
    ) -> None:
        if queries and queries.zones and len(queries.zones) != plan.num_zones:
            raise ValueError(
                f"queries.zones has {len(queries.zones)} entries for "
                f"{plan.num_zones} zones"
            )
        self._plan = plan
        self._queries = queries

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """See base class. `weight_type` must be `WEIGHT_TYPE`."""
        _check_floats(value_type)
        WEIGHT_TYPE.check_assignable_from(weight_type)
        plan = self._plan
        record = tff.types.type_to_tf_tensor_specs(value_type)
        queries = self._queries or levels.queries_from_plan(plan, record)
        num_tensors = len(tf.nest.flatten(record))

        @tff.tensorflow.computation
        def initial_state() -> Any:
            return _initial_state(queries)

        state_type = initial_state.type_signature.result

        @tff.tensorflow.computation(state_type)
        def broadcast_state(state: Any) -> Any:
            return _client_state(queries, state)

        @tff.tensorflow.computation(
            broadcast_state.type_signature.result, value_type, WEIGHT_TYPE
        )
        def client_record(state: Any, value: Any, weight: Any) -> Any:
            return _client_record(queries, state, value, weight)

        record_type = client_record.type_signature.result

        @tff.tensorflow.computation
        def zero() -> Any:
            return _zeros(
                tff.types.type_to_tf_tensor_specs(record_type["record"]),
                plan.num_zones,
                num_tensors,
            )

        total_type = zero.type_signature.result

        @tff.tensorflow.computation(total_type, record_type)
        def accumulate(total: Any, record: Any) -> Any:
            return _accumulate(total, record)

        @tff.tensorflow.computation(total_type, total_type)
        def merge(a: Any, b: Any) -> Any:
            return tf.nest.map_structure(tf.add, a, b)

        @tff.tensorflow.computation(total_type)
        def report(total: Any) -> Any:
            return total

        @tff.tensorflow.computation(state_type, total_type)
        def release(state: Any, total: Any) -> Any:
            return _release(plan, queries, state, total)

        @tff.federated_computation
        def init_fn() -> Any:
            return tff.federated_eval(initial_state, tff.SERVER)

        @tff.federated_computation(
            init_fn.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(WEIGHT_TYPE, tff.CLIENTS),
        )
        def next_fn(state: Any, value: Any, weight: Any) -> Any:
            params = tff.federated_broadcast(tff.federated_map(broadcast_state, state))
            records = tff.federated_map(client_record, (params, value, weight))
            total = tff.federated_aggregate(records, zero(), accumulate, merge, report)
            result, new_state, measurements = tff.federated_map(release, (state, total))
            return tff.templates.MeasuredProcessOutput(new_state, result, measurements)

        return tff.templates.AggregationProcess(init_fn, next_fn)


def _check_floats(value_type: tff.Type) -> None:
    for spec in tf.nest.flatten(tff.types.type_to_tf_tensor_specs(value_type)):
        if not spec.dtype.is_floating:
            raise TypeError(
                f"value_type holds {spec.dtype.name}; a mean needs floating tensors"
            )


def _initial_state(queries: levels.LevelQueries) -> Any:
    state = collections.OrderedDict()
    if queries.client is not None:
        state["client"] = queries.client.initial_global_state()
    if queries.zones:
        state["zones"] = [q.initial_global_state() for q in queries.zones]
    if queries.upper:
        state["upper"] = [
            [q.initial_global_state() for q in nodes] for nodes in queries.upper
        ]
    if queries.server is not None:
        state["server"] = queries.server.initial_global_state()
    # TFF has no computation that returns nothing, so count the rounds.
    state["round"] = tf.constant(0)
    return state


def _client_state(queries: levels.LevelQueries, state: Any) -> Any:
    """What clients need to preprocess and noise their records."""
    sent = collections.OrderedDict(round=state["round"])
    if queries.client is not None:
        sent["client"] = state["client"]
    if queries.zones:
        params = [
            q.derive_sample_params(s)
            for q, s in zip(queries.zones, state["zones"], strict=True)
        ]
        sent["zones"] = tf.nest.map_structure(lambda *t: tf.stack(t), *params)
    if queries.server is not None:
        sent["server"] = queries.server.derive_sample_params(state["server"])
    return sent


def _client_record(
    queries: levels.LevelQueries, state: Any, value: Any, weight: Any
) -> Any:
    """Screens, clips, weights and noises one update; runs on the client."""
    record, rejected = levels.screen(value)
    tensor_norms = tf.stack([tf.norm(t) for t in tf.nest.flatten(record)])
    # Also refuses NaN. A weight beyond 1 would exceed the accounted sensitivity.
    in_range = tf.logical_and(weight["weight"] > 0.0, weight["weight"] <= 1.0)
    rejected = tf.logical_or(rejected, tf.logical_not(in_range))
    w = tf.where(rejected, 0.0, weight["weight"])
    if queries.server is not None:
        record = queries.server.preprocess_record(state["server"], record)
    if queries.zones:
        params = tf.nest.map_structure(lambda t: t[weight["zone"]], state["zones"])
        record = queries.zones[0].preprocess_record(params, record)
    if queries.client is not None:
        own = queries.client.derive_sample_params(state["client"])
        record = queries.client.preprocess_record(own, record)
    record = levels.scale(record, w)
    if queries.client is not None:
        record = levels.noise_own_record(
            queries.client, state["client"], record, weight["carries_noise"]
        )
    return collections.OrderedDict(
        record=record,
        zone=weight["zone"],
        weight=w,
        rejected=tf.cast(rejected, tf.int32),
        tensor_norms=tf.cast(tensor_norms, tf.float32),
    )


def _zeros(record: Any, num_zones: int, num_tensors: int) -> Any:
    return collections.OrderedDict(
        record=tf.nest.map_structure(
            lambda t: tf.zeros([num_zones, *t.shape], t.dtype), record
        ),
        weight=tf.zeros([num_zones]),
        clients=tf.zeros([num_zones], tf.int32),
        rejected=tf.zeros([], tf.int32),
        tensor_norms=tf.zeros([num_tensors]),
        norm=tf.zeros([]),
    )


def _accumulate(total: Any, record: Any) -> Any:
    zone = record["zone"]

    def add(t: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
        return tf.tensor_scatter_nd_add(t, [[zone]], [update])

    return collections.OrderedDict(
        record=tf.nest.map_structure(add, total["record"], record["record"]),
        weight=add(total["weight"], record["weight"]),
        clients=add(total["clients"], tf.constant(1)),
        rejected=total["rejected"] + record["rejected"],
        tensor_norms=total["tensor_norms"] + record["tensor_norms"],
        norm=total["norm"] + tf.norm(record["tensor_norms"]),
    )


def _release(
    plan: NoisePlan, queries: levels.LevelQueries, state: Any, total: Any
) -> tuple[Any, Any, Any]:
    """Zone outputs, noise at every level from the zones up, and the mean."""
    s = plan.num_zones
    new_state = collections.OrderedDict(state)
    new_state["round"] = state["round"] + 1
    events = collections.OrderedDict()
    if queries.client is not None:
        blank = tf.nest.map_structure(lambda t: tf.zeros(t.shape[1:]), total["record"])
        event = queries.client.get_noised_result(blank, state["client"])[2]
        events["client"] = event.to_named_tuple()

    factors, released_units = _zone_factors(plan, total["weight"])
    outputs = []  # p_i X_i for every zone
    zone_states, zone_events = [], []
    for i in range(s):
        # In units in which one client's contribution is bounded by S.
        value = tf.nest.map_structure(lambda t, i=i: t[i], total["record"])
        value = levels.scale(value, factors[i])
        if queries.zones:
            value, zone_state, event = queries.zones[i].get_noised_result(
                value, state["zones"][i]
            )
            zone_states.append(zone_state)
            zone_events.append(event.to_named_tuple())
        outputs.append(levels.scale(value, released_units[i]))
    if queries.zones:
        new_state["zones"] = zone_states
        events["zones"] = zone_events

    units = plan.released_sensitivities if plan.estimator != "realised" else (1.0,) * s
    units = [u / plan.clipping.norm for u in units]
    outputs, units, upper_states, upper_events = _noise_upper_levels(
        plan, queries, state, outputs, units
    )
    if queries.upper:
        new_state["upper"] = upper_states
        events["upper"] = upper_events

    result = _sum(outputs)
    if queries.server is not None:
        result, new_state["server"], event = levels.noise_sum(
            queries.server, state["server"], result, max(units)
        )
        events["server"] = event.to_named_tuple()

    count = tf.cast(tf.reduce_sum(total["clients"]), tf.float32)
    measurements = collections.OrderedDict(
        clients=total["clients"],
        rejected=total["rejected"],
        update_norm=tf.math.divide_no_nan(total["norm"], count),
        tensor_norms=tf.math.divide_no_nan(total["tensor_norms"], count),
        clip_norm=_clip_norm(plan, queries, state),
    )
    if events:
        measurements["events"] = events
    return result, new_state, measurements


def _zone_factors(
    plan: NoisePlan, weight: tf.Tensor
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Per zone: sum -> value of sensitivity S, and that value -> p_i X_i."""
    s = plan.num_zones
    if plan.estimator == "realised":
        if plan.mixing == "weighted":
            whole = tf.math.divide_no_nan(1.0, tf.reduce_sum(weight))
            return [1.0] * s, [whole] * s
        inverse = tf.math.divide_no_nan(tf.ones([s]), weight)
        return [inverse[i] for i in range(s)], plan.mixing_weights
    released = [u / plan.clipping.norm for u in plan.released_sensitivities]
    if plan.estimator == "fixed":
        return [1.0] * s, released
    floors = tf.constant(plan.denominators, tf.float32)
    ratio = 0.5 * floors / tf.maximum(floors, weight)
    return [ratio[i] for i in range(s)], released


def _noise_upper_levels(
    plan: NoisePlan,
    queries: levels.LevelQueries,
    state: Any,
    outputs: list[Any],
    units: list[float],
) -> tuple[list[Any], list[float], list[Any], list[Any]]:
    """Sums the nodes of each further level and adds each node's noise."""
    states, events = [], []
    for depth, nodes in enumerate(queries.upper):
        parents = plan.upper_levels[depth].parents
        children = [
            [i for i, parent in enumerate(parents) if parent == node]
            for node in range(len(nodes))
        ]
        units = [max(units[i] for i in group) for group in children]
        noised = [
            levels.noise_sum(query, st, _sum([outputs[i] for i in group]), unit)
            for query, st, group, unit in zip(
                nodes, state["upper"][depth], children, units, strict=True
            )
        ]
        outputs = [value for value, _, _ in noised]
        states.append([st for _, st, _ in noised])
        events.append([event.to_named_tuple() for _, _, event in noised])
    return outputs, units, states, events


def _clip_norm(plan: NoisePlan, queries: levels.LevelQueries, state: Any) -> tf.Tensor:
    """S of this round: moving where clipping adapts, infinite without a clip."""
    if queries == levels.LevelQueries():
        return tf.constant(float("inf"))
    if queries.server is not None:
        metrics = queries.server.derive_metrics(state["server"])
        if "clip" in metrics:
            return metrics["clip"]
    return tf.constant(plan.clipping.norm, tf.float32)


def _sum(values: list[Any]) -> Any:
    return tf.nest.map_structure(lambda *t: tf.add_n(t), *values)
