"""The arithmetic of the zoned mean, from one update to the release.

`HierarchicalMeanFactory` runs it with a TFF client per client; batched client
work runs the same functions with a TFF client per chunk of clients.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators import levels, mixing
from tff_hdp.aggregators.clipping import global_norm, screen
from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.queries import preprocess
from tff_hdp.aggregators.totals import add_rows
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.plan import NoisePlan, plan_digest

# What is summed within zones; the rest of a contribution is summed over all.
PER_ZONE = ("record", "vector", "weight", "clients", "counted", "noising", "bare")


class ZonedMean:
    """Plan, queries and the shape of an update, and what follows from them.

    A *contribution* is what reaches zones' sums from one client, or from several
    added up: the noised `record`, the example `weight`, and un-noised for the
    operator how many `clients` it is of, how many of them are `counted` as the zone's
    (those of a weight, since whose zone is not known has none), how many were `noising`
    their records, how many were `rejected`, how many came `bare`, neither noised nor
    rejected, and their norms. What is sent is a pair, a contribution whose `PER_ZONE`
    have a leading axis of Z zones, and which zones these are (int32 [Z]).

    Args:
      plan: Who adds which noise, denominators and mixing weights.
      record: An update, as a structure of float `tf.TensorSpec`.
      queries: Replaces the queries that the plan implies.

    Attributes:
      plan: As given.
      given_queries: `queries` as given.
      size: Coordinates of an update.
      in_fixed_point: Whether contributions are integers.

    Raises:
      ArgumentError: If `queries` do not fit the plan (`LevelQueries.check_fits`), or
        the plan wants noise topped up, which no super-node does here, or sums in fixed
        point or small zones left out, which `SecureZonedMean` does, or is for shorter
        updates; or an update holds no tensor, or one without numbers or of a size that
        is not known.
      TypeError: If an update holds a tensor that is not of floats.
    """

    in_fixed_point = False

    def __init__(
        self, plan: NoisePlan, record: Any, *, queries: LevelQueries | None = None
    ) -> None:
        _check_update(record)
        if queries is not None:
            is_one = isinstance(queries, LevelQueries)
            require(is_one, "queries", queries, "a LevelQueries, or None")
            queries.check_fits(plan)
        if plan.top_up:
            raise ArgumentError(
                "plan.top_up", True, "False; no super-node here tops up noise"
            )
        if plan.min_zone_clients > 1 and not self.in_fixed_point:
            allowed = "1 without an encoding; only sums in fixed point leave zones out"
            raise ArgumentError("plan.min_zone_clients", plan.min_zone_clients, allowed)
        if (plan.encoding is not None) != self.in_fixed_point:
            allowed = "a FixedPoint" if self.in_fixed_point else "None"
            name = type(self).__name__
            raise ArgumentError("plan.encoding", plan.encoding, f"{allowed} in {name}")
        self.size = sum(spec.shape.num_elements() for spec in tf.nest.flatten(record))
        if plan.is_noisy and self.size > plan.size:
            allowed = f"{self.size} or more, the coordinates of an update"
            raise ArgumentError("plan.size", plan.size, allowed)
        self.plan = plan
        self.given_queries = queries
        self._record = record
        self._queries = (
            queries.with_secure_noise()
            if queries is not None
            else levels.queries_from_plan(plan, record)
        )
        # Zones that noise alike share a query, its state and its event.
        self._zones_alike = levels.alike(self._queries.zones)
        if self._zones_alike:
            zones = self._queries.zones[:1]
            self._queries = dataclasses.replace(self._queries, zones=zones)

    def initial_state(self) -> Any:
        """The queries' states before the first round."""
        state = self._queries.each(lambda query: query.initial_global_state())
        state["round"] = tf.constant(0)
        # Clips and noise lie in the queries' states, those of one plan.
        state["plan"] = tf.constant(plan_digest(self.plan), tf.int64)
        return state

    def client_state(self, state: Any) -> Any:
        """What clients need of the state to preprocess and noise their records.

        Raises:
          tf.errors.InvalidArgumentError: When run, if the state is of another plan.
        """
        queries, state = self._queries, levels.checked_state(self.plan, state)
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

    def seated(self, profile: Any) -> Any:
        """A client's profile; with weight 0 and zone 0 if its zone is not the plan's.

        A weight of 0 has its update rejected.

        Args:
          profile: `weight` (float32) and `zone` (int32), each [] of a client, or [C] of
            a chunk.
        """
        zone = profile["zone"]
        known = tf.logical_and(zone >= 0, zone < self.plan.num_zones)
        return collections.OrderedDict(
            profile,
            weight=tf.where(known, profile["weight"], 0.0),
            zone=tf.where(known, zone, 0),
        )

    def contribution(self, sent: Any, update: Any, profile: Any) -> Any:
        """Screens, clips, weights and noises one client's update.

        Args:
          sent: What `client_state` returned.
          update: Structure of tensors.
          profile: `weight` (float32 []), `zone` (int32 []), `carries_noise` (bool []).
        """
        contribution = self.bare_contribution(sent, update, profile)
        query = self._queries.client
        if query is not None:
            contribution["record"] = levels.noise_own_record(
                query, sent["client"], contribution["record"], profile["carries_noise"]
            )
        return contribution

    def bare_contribution(self, sent: Any, update: Any, profile: Any) -> Any:
        """As `contribution`, but for the client's noise."""
        return self.weighted(self.clipped(sent, update, profile["zone"]), profile)

    def sent_by_one(self, contribution: Any, zone: Any) -> tuple[Any, tf.Tensor]:
        """What is sent of a contribution of one client of `zone` (int32 [])."""
        alone = _made(lambda t: t[tf.newaxis], lambda t: t, contribution)
        return alone, tf.convert_to_tensor(zone)[tf.newaxis]

    def with_clients_noise(self, contribution: Any) -> Any:
        """Several clients' bare contributions, added up by zone, with the noise of all.

        Where nobody sees them apart, the sum of m clients' independent noise is one
        draw of m times the variance. For the plan's own Gaussian queries only.

        Args:
          contribution: Sums of `bare_contribution`s, of Z zones.
        """
        if self._queries.client is None:
            return contribution
        record, noising = contribution["record"], contribution["noising"]
        noised = levels.noise_as_clients(self.plan, record, noising)
        return collections.OrderedDict(contribution, record=noised)

    def clipped(
        self, sent: Any, update: Any, zone: tf.Tensor, *, stacked: bool = False
    ) -> Any:
        """Screens one client's update and clips it.

        Args:
          sent: What `client_state` returned.
          update: Structure of tensors.
          zone: int32 [].
          stacked: Whether of C clients, whose updates are of one number a tensor:
            everything then has a leading axis [C]. For the plan's own queries only.

        Returns:
          The `record`, whether it is `rejected` (bool []), and what its norms were.
        """
        queries = self._queries
        record, rejected = screen(update, stacked=stacked)
        norms = [global_norm([t], stacked=stacked) for t in tf.nest.flatten(record)]
        norms = [tf.cast(norm, tf.float32) for norm in norms]
        if queries.server is not None:
            server, own = queries.server, sent["server"]
            record = preprocess(server, own, record, stacked=stacked)
        if queries.zones:
            own = tf.constant(0) if self._zones_alike else zone
            own = tf.nest.map_structure(lambda t: tf.gather(t, own), sent["zones"])
            record = preprocess(queries.zones[0], own, record, stacked=stacked)
        if queries.client is not None:
            own = queries.client.derive_sample_params(sent["client"])
            record = preprocess(queries.client, own, record, stacked=stacked)
        return collections.OrderedDict(
            record=record,
            rejected=rejected,
            tensor_norms=tf.stack(norms, -1),
            norm=global_norm(norms, stacked=stacked),
        )

    def weighted(self, clipped: Any, profile: Any) -> Any:
        """A bare contribution of what a client clipped.

        Number by number: for C clients of records of one number a tensor, everything
        has a leading axis [C].

        Args:
          clipped: What `clipped` returned.
          profile: As for `contribution`.
        """
        given = profile["weight"]
        # Also refuses NaN. A weight beyond 1 would exceed the accounted sensitivity.
        in_range = tf.logical_and(given > 0.0, given <= 1.0)
        weight = tf.where(in_range, given, 0.0)
        refused = tf.logical_or(clipped["rejected"], tf.logical_not(in_range))
        kept = tf.where(refused, 0.0, weight)
        noises = int(self._queries.client is not None)
        noising = tf.cast(profile["carries_noise"], tf.int32) * noises
        rejected = tf.cast(refused, tf.int32)
        # A noisy plan's denominator may not tell whose data was rejected.
        realised = self.plan.estimator == "realised"
        return collections.OrderedDict(
            record=levels.scale(clipped["record"], kept),
            weight=kept if realised else weight,
            clients=tf.ones_like(rejected),
            counted=tf.cast(tf.not_equal(given, 0.0), tf.int32),
            noising=noising,
            bare=(1 - noising) * (1 - rejected),
            rejected=rejected,
            # What is left out of a sum is of norm 0.
            tensor_norms=tf.where(
                refused[..., tf.newaxis], 0.0, clipped["tensor_norms"]
            ),
            norm=tf.where(refused, 0.0, clipped["norm"]),
        )

    def zero(self, contribution: Any) -> Any:
        """The empty total for contributions as sent, of this structure of specs."""
        s = self.plan.num_zones
        return _made(
            lambda spec: tf.zeros([s, *spec.shape[1:]], spec.dtype),
            lambda spec: tf.zeros(spec.shape, spec.dtype),
            contribution,
        )

    def add(self, total: Any, contribution: Any, zones: tf.Tensor) -> Any:
        """Adds a contribution to its zones (int32 [Z]) in a total."""
        return _made(
            lambda t, rows: add_rows(t, zones, rows), tf.add, total, contribution
        )

    def release(self, state: Any, total: Any) -> tuple[Any, Any, Any]:
        """The mean with every level's noise: what the server outputs.

        Args:
          state: The queries' states.
          total: All contributions of the round, as `outputs` takes them.

        Returns:
          The released structure, the queries' new states, and the measurements.
        """
        outputs, new_state, measurements = self.outputs(state, total)
        return outputs[-1][0], new_state, measurements

    def outputs(self, state: Any, total: Any) -> tuple[list[list[Any]], Any, Any]:
        """What every node outputs, with noise at every level from the zones up.

        Args:
          state: The queries' states.
          total: All contributions of the round.

        Returns:
          For every level a structure a node: of the zones p_i X_i first, of the server
          alone last; the queries' new states, and the measurements.
        """
        plan, queries = self.plan, self._queries
        s = plan.num_zones
        new_state = collections.OrderedDict(state)
        new_state["round"] = state["round"] + 1
        events = collections.OrderedDict()
        if queries.client is not None:
            events["client"] = self._client_event(state, total)

        factors, released_units = mixing.zone_factors(plan, total["weight"])
        values = total["record"]
        hidden = [mixing.hidden_step(plan, i) for i in range(s)]
        values = levels.smoothed_rows(values, hidden)
        # In units in which one client's contribution is bounded by S.
        values = levels.scale_rows(values, factors)
        if queries.zones:
            values, new_state["zones"], events["zones"] = self._noise_zones(
                values, state["zones"]
            )
        # p_i X_i for every zone.
        outputs = levels.rows(levels.scale_rows(values, released_units), s)
        by_level, states, emitted = mixing.noise_above_zones(
            plan, queries, state, outputs
        )
        new_state |= states
        events |= emitted
        return by_level, new_state, self._measurements(state, total, events)

    def _noise_zones(self, values: Any, states: Any) -> tuple[Any, Any, Any]:
        """All zones' values [s, ...] noised, the queries' new states and events."""
        queries = self._queries.zones
        if self._zones_alike:
            # One draw: its coordinates are independent, whosever they are.
            noised, state, event = levels.noise_sum(queries[0], states[0], values, 1.0)
            return noised, [state], [event.to_named_tuple()]
        one_by_one = levels.rows(values, len(queries))
        found = [
            levels.noise_sum(query, state, value, 1.0)
            for query, state, value in zip(queries, states, one_by_one, strict=True)
        ]
        noised = tf.nest.map_structure(lambda *t: tf.stack(t), *(v for v, *_ in found))
        events = [event.to_named_tuple() for *_, event in found]
        return noised, [state for _, state, _ in found], events

    def _client_event(self, state: Any, total: Any) -> Any:
        """The clients' noise, as one of them adds it, if those did who should.

        Of zone i's clients the plan leaves n_i less the noising ones without noise;
        where more came bare, somebody left its noise out.
        """
        plan = self.plan
        blank = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), self._record
        )
        event = self._queries.client.get_noised_result(blank, state["client"])[2]
        without = [
            n - noising
            for n, noising in zip(plan.zone_sizes, plan.noising_clients, strict=True)
        ]
        delivered = tf.reduce_all(total["bare"] <= tf.constant(without))
        return levels.void_unless(delivered, event.to_named_tuple())

    def _measurements(self, state: Any, total: Any, events: Any) -> Any:
        """What `release` measures of a round, and its queries' events if any."""
        count = tf.cast(tf.reduce_sum(total["clients"]), tf.float32)
        measurements = collections.OrderedDict(
            clients=total["clients"],
            counted=total["counted"],
            noising=total["noising"],
            rejected=total["rejected"],
            update_norm=tf.math.divide_no_nan(total["norm"], count),
            tensor_norms=tf.math.divide_no_nan(total["tensor_norms"], count),
            plan=tf.constant(plan_digest(self.plan), tf.int64),
            **levels.clips(self.plan, self._queries, state),
        )
        if events:
            measurements["events"] = events
        return measurements


def _check_update(record: Any) -> None:
    specs = tf.nest.flatten(record)
    require(len(specs) > 0, "tensors of an update", "none", "one or more")
    for spec in specs:
        if not spec.dtype.is_floating:
            name = spec.dtype.name
            raise TypeError(f"an update holds {name}; a mean needs floating tensors")
        known = bool(spec.shape.num_elements())
        allowed = "of known dimensions, none of which is 0"
        require(known, "shape of an update's tensor", spec.shape, allowed)


def _made(
    by_zone: Callable[..., Any], otherwise: Callable[..., Any], *given: Any
) -> Any:
    """What is made of contributions' tensors: those `PER_ZONE`, and the others."""
    return collections.OrderedDict(
        (
            name,
            tf.nest.map_structure(
                by_zone if name in PER_ZONE else otherwise,
                *(contribution[name] for contribution in given),
            ),
        )
        for name in given[0]
    )
