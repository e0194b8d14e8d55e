"""The zoned mean: clip and noise as a plan says, zone by zone, in one pass."""

import collections
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import zoned_model
from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.levels import void_unless
from tff_hdp.aggregators.secure_mean import build_mean
from tff_hdp.aggregators.sums import inner_zone_sums, zone_sums
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.aggregators.zoned_model import WEIGHT_TYPE
from tff_hdp.errors import ArgumentError, check_bool, check_positive, require
from tff_hdp.privacy.plan import NoisePlan

Inner = tff.aggregators.UnweightedAggregationFactory
_FACTORIES = (Inner, tff.aggregators.WeightedAggregationFactory)
_MEANS = (
    tff.aggregators.MeanFactory,
    tff.aggregators.UnweightedMeanFactory,
    tff.aggregators.DifferentiallyPrivateFactory,
)


class HierarchicalMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """Means within zones, mixed into one, with noise at any level.

    The process screens each update (a NaN, an infinity or a weight out of (0, 1]:
    zeroed and counted), preprocesses it with the levels' queries, weights it, sums
    within zones, and releases sum_i p_i X_i with each level's noise (see
    `NoisePlan`). A plan with an encoding is summed in fixed point, by secure sums
    where the plan says so; the result is then the same within
    `FixedPoint.max_error` of every sum.

    Without noise and with the `realised` estimator this is the weighted mean of
    all clients, whatever the zones. An empty cohort still gets its noise.

    A client's zone comes in one of two ways, told apart by the weight's type:

    *   A `WEIGHT_TYPE` is weight w, zone, and whether the client noises its update.
    *   A floating scalar is TFF's own, of `build_weighted_fed_avg`: the value must
        then be the update of a `zoned_model`, and w is the client's weight times
        TFF's, in units of `example_cap`.

    The process's state holds the queries' states, clips and noise among them, and the
    process of another plan refuses it when run. Its measurements are un-noised and so
    meant for the operator of a simulation, not for release, except `events`:

    *   `events`: the queries' `DpEvent`s as named tuples (see `round_events`). Where
        more came without noise than the plan has that do not noise, the clients' event
        has multiplier 0; a sampled cohort of no more than those is not told apart.
    *   `clients`, `counted`, `noising`: int32 [s], how many came, how many of them had
        a weight and a zone, and how many noised their update.
    *   `rejected`: how many updates were; among them `strangers`, of a zone that the
        plan has not (under `clients` in the first), and `overweight`, of a weight
        beyond 1.
    *   `update_norm`, `tensor_norms`, `clip_norm`, and `plan`, its `plan_digest`.
    *   With an encoding `saturated`, and `left_out`, how many zones had fewer than
        `plan.min_zone_clients`.
    *   For a `zoned_model` `lost`, the clients without examples or whose training
        diverged, which TFF sends as zeros without a zone, and `strays`, those of them
        whose update is not zero.

    An inner factory sums the records, with a leading axis of zones in which all but
    a client's own are zero. An account adds up what several records carry: their
    noise, and their distance from zero for noise that comes later. So a step that
    changes a record after its clip, be it after its own noise too, voids the
    account, and under a plan with noise only an exact sum may stand here.

    Args:
      plan: Who adds which noise, denominators and mixing weights.
      example_cap: TFF's weight is divided by this and capped at 1; None uses it
        unchanged. Must be None with a `WEIGHT_TYPE`, which already carries w. Requires
        `plan.zone_weights` unless the estimator is `realised`.
      queries: Replaces the queries that the plan implies, for instance to put a
        tensorflow-privacy query of your own at a level. The plan stays what is
        accounted: a ledger refuses rounds whose events say less noise than it, or
        another clip. None beside an encoding.
      inner: Sums the records of a zone; None adds them up.
      inner_is_exact: That `inner` returns the sum and nothing else, up to rounding;
        nobody can check it for you.

    Raises:
      ArgumentError: If `inner` may not stand here; from `create`, if plan, queries
        and value do not fit each other, or if `plan.min_zone_clients` > 1 and the value
        is a `zoned_model`'s update (a client whose training diverges loses its zone, so
        its data would decide whether the zone is left out).
      TypeError: From `create`, if the value holds a tensor that is not of floats.
    """

    def __init__(
        self,
        plan: NoisePlan,
        *,
        example_cap: float | None = None,
        queries: LevelQueries | None = None,
        inner: Inner | None = None,
        inner_is_exact: bool = False,
    ) -> None:
        require(isinstance(plan, NoisePlan), "plan", plan, "a NoisePlan")
        if example_cap is not None:
            example_cap = check_positive("example_cap", example_cap)
        _check_inner(plan, inner, inner_is_exact)
        self._plan = plan
        self._example_cap = example_cap
        self._queries = queries
        self._inner = inner

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """See base class, and the class for types."""
        if isinstance(weight_type, tff.TensorType):
            if not np.issubdtype(weight_type.dtype.type, np.floating):
                raise TypeError(f"weight_type is {weight_type}; a mean needs a float")
            return self._of_zoned_model(value_type, weight_type)
        WEIGHT_TYPE.check_assignable_from(weight_type)
        allowed = "None with weights that come with a zone, which are w itself"
        require(self._example_cap is None, "example_cap", self._example_cap, allowed)
        allowed = "that of a model without a profile, which comes beside the update"
        plain = not zoned_model.is_zoned(value_type)
        require(plain, "value_type", value_type, allowed)
        return self._process_of(value_type)

    def _process_of(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        _check_containers(value_type)
        record = tff.types.type_to_tf_tensor_specs(value_type)
        mean = build_mean(self._plan, record, queries=self._queries)
        return _process(mean, value_type, self._inner)

    def _of_zoned_model(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """The process for a `zoned_model`'s updates, from which it takes profiles."""
        allowed = "that of a zoned_model, which ends in a profile: put it around "
        allowed += "model_fn"
        require(zoned_model.is_zoned(value_type), "value_type", value_type, allowed)
        plan, example_cap = self._plan, self._example_cap
        if example_cap is not None and plan.estimator != "realised":
            # W_i = n_i would take every client for one with as many examples.
            allowed = "each zone's sum of w with example_cap, as estimator="
            allowed += f"{plan.estimator} divides by it"
            given = plan.zone_weights
            require(given is not None, "plan.zone_weights", given, allowed)
        least = plan.min_zone_clients
        allowed = "1 with updates of a zoned_model: a client whose training diverges "
        allowed += "loses its zone, so its data could decide whether the zone is left "
        allowed += "out"
        require(least == 1, "plan.min_zone_clients", least, allowed)

        @tff.tensorflow.computation(value_type, weight_type)
        def take_off(value: Any, weight: Any) -> Any:
            update, profile, lost = zoned_model.taken_off(value, weight, example_cap)
            moved = [tf.reduce_any(tf.not_equal(t, 0)) for t in tf.nest.flatten(update)]
            stray = tf.logical_and(lost, tf.reduce_any(moved))
            told = collections.OrderedDict(
                lost=tf.cast(lost, tf.int32), strays=tf.cast(stray, tf.int32)
            )
            return update, profile, told

        update_type = take_off.type_signature.result[0]
        process = self._process_of(update_type)
        put_back = tff.tensorflow.computation(zoned_model.put_back, update_type)

        @tff.federated_computation(
            process.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Any, value: Any, weight: Any) -> Any:
            update, profile, told = tff.federated_map(take_off, (value, weight))
            output = process.next(state, update, profile)
            result = tff.federated_map(put_back, output.result)
            measured = _with(output.measurements, tff.federated_sum(told))
            measured = tff.federated_map(_void_if_lost, measured)
            return tff.templates.MeasuredProcessOutput(output.state, result, measured)

        return tff.templates.AggregationProcess(process.initialize, next_fn)


class UnweightedHierarchicalMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    """`HierarchicalMeanFactory` for `build_unweighted_fed_avg`.

    The value must be the update of a `zoned_model`, and w is the client's weight.

    Args:
      plan: See `HierarchicalMeanFactory`.
      queries: Likewise.
      inner: Likewise.
      inner_is_exact: Likewise.

    Raises:
      ArgumentError: As there.
      TypeError: As there.
    """

    def __init__(
        self,
        plan: NoisePlan,
        *,
        queries: LevelQueries | None = None,
        inner: Inner | None = None,
        inner_is_exact: bool = False,
    ) -> None:
        self._weighted = HierarchicalMeanFactory(
            plan, queries=queries, inner=inner, inner_is_exact=inner_is_exact
        )

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """See base class."""
        process = self._weighted.create(value_type, tff.TensorType(np.float32))

        @tff.federated_computation(
            process.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
        )
        def next_fn(state: Any, value: Any) -> Any:
            one = tff.federated_value(np.float32(1), tff.CLIENTS)
            return process.next(state, value, one)

        return tff.templates.AggregationProcess(process.initialize, next_fn)


def _process(
    mean: ZonedMean, value_type: tff.Type, inner_factory: Inner | None
) -> tff.templates.AggregationProcess:
    """The process for values and, as weights, profiles."""
    initial_state = tff.tensorflow.computation(mean.initial_state)
    client_state = tff.tensorflow.computation(
        mean.client_state, initial_state.type_signature.result
    )
    inner = None
    if inner_factory is not None:
        inner = inner_factory.create(_of_all_zones(value_type, mean.plan.num_zones))

    @tff.tensorflow.computation(
        client_state.type_signature.result, value_type, WEIGHT_TYPE
    )
    def contribution(sent: Any, value: Any, profile: Any) -> Any:
        zone, profile = profile["zone"], mean.seated(profile)
        own = mean.contribution(sent, value, profile)
        told = collections.OrderedDict(
            strangers=tf.cast(tf.not_equal(zone, profile["zone"]), tf.int32),
            overweight=tf.cast(profile["weight"] > 1.0, tf.int32),
        )
        return mean.sent_by_one(own, profile["zone"]), told

    release = tff.tensorflow.computation(mean.release)

    @tff.federated_computation
    def init_fn() -> Any:
        own = tff.federated_eval(initial_state, tff.SERVER)
        if inner is None:
            return own
        both = collections.OrderedDict(mean=own, inner=inner.initialize())
        return tff.federated_zip(both)

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(WEIGHT_TYPE, tff.CLIENTS),
    )
    def next_fn(state: Any, value: Any, profile: Any) -> Any:
        own = state if inner is None else state.mean
        sent = tff.federated_broadcast(tff.federated_map(client_state, own))
        given = tff.federated_map(contribution, (sent, value, profile))
        contributions, told = given[0], tff.federated_sum(given[1])
        if inner is None:
            total = zone_sums(mean, contributions)
        else:
            total, summed = inner_zone_sums(mean, inner, state.inner, contributions)
        result, new, measured = tff.federated_map(release, (own, total))
        measured = _with(measured, told)
        if inner is not None:
            more = tff.federated_zip(collections.OrderedDict(inner=summed.measurements))
            measured = _with(measured, more)
            both = collections.OrderedDict(mean=new, inner=summed.state)
            new = tff.federated_zip(both)
        return tff.templates.MeasuredProcessOutput(new, result, measured)

    return tff.templates.AggregationProcess(init_fn, next_fn)


@tff.tensorflow.computation
def _void_if_lost(measured: Any) -> Any:
    """Nobody knows whether a lost client's noise was counted on."""
    measured = collections.OrderedDict(measured)
    if "client" in measured.get("events", ()):
        events = collections.OrderedDict(measured["events"])
        events["client"] = void_unless(tf.equal(measured["lost"], 0), events["client"])
        measured["events"] = events
    return measured


@tff.tensorflow.computation
def _joined(measured: Any, more: Any) -> Any:
    return collections.OrderedDict([*measured.items(), *more.items()])


def _with(measured: Any, more: Any) -> Any:
    """Measurements with those of another structure too, at SERVER."""
    return tff.federated_map(_joined, (measured, more))


def _of_all_zones(value_type: tff.Type, zones: int) -> tff.Type:
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    return tff.types.tensorflow_to_type(
        tf.nest.map_structure(
            lambda spec: tf.TensorSpec([zones, *spec.shape], spec.dtype), specs
        )
    )


def _check_inner(plan: NoisePlan, inner: Any, exact: Any) -> None:
    check_bool("inner_is_exact", exact)
    if inner is None:
        return
    allowed = "None, or a tff.aggregators.UnweightedAggregationFactory"
    require(isinstance(inner, Inner), "inner", inner, allowed)
    for part in _parts(inner):
        is_sum = not isinstance(part, _MEANS)
        require(is_sum, "inner", type(part).__name__, "one of sums, all through")
    if plan.encoding is not None:
        raise ArgumentError(
            "inner", type(inner).__name__, "None where plan.encoding is given"
        )
    if plan.is_noisy and not exact:
        raise ArgumentError(
            "inner_is_exact",
            exact,
            f"True under a plan with noise; what {type(inner).__name__} changes of a "
            "clipped record, the account does not know",
        )


def _parts(factory: Any) -> Iterator[Any]:
    """A factory, and those that it holds."""
    yield factory
    held = list(vars(factory).values())
    # TFF's wrappers hold theirs in the functions of a class made for it.
    for method in filter(inspect.isfunction, vars(type(factory)).values()):
        held += inspect.getclosurevars(method).nonlocals.values()
    for part in tf.nest.flatten(held):
        if isinstance(part, _FACTORIES):
            yield from _parts(part)


def _check_containers(value_type: tff.Type) -> None:
    """Refuses structures that TFF hands over in none of Python's containers."""
    bare = tff.types.contains(value_type, lambda t: type(t) is tff.StructType)
    allowed = "tensors, in lists, tuples or dicts as `tff.to_type` takes them"
    require(not bare, "value_type", value_type, allowed)
