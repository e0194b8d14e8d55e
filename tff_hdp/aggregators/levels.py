"""What happens to a record at each level: screen, clip, scale, noise.

The clip and the noise of a level are a tensorflow-privacy `DPQuery`, so any
query of that library can stand at any level (Gaussian noise is then drawn by
`tff_hdp.noise`, see `queries.with_secure_noise`). Queries nest like an onion: a
record is preprocessed by the server's query first and the client's last, and a
sum is noised by the client's first and the server's last.

All noise of aggregators is drawn here, save by the parties of `secure_protocol`, who
draw their own: `noise_own_record`, `noise_as_clients` and `noise_sum` as the queries
do, `discrete_client_noise` and `discrete_zone_noise` for sums in fixed point, and
`smoothed`, to hide who rounded to what.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_privacy as tfp
from tensorflow_privacy.privacy.dp_query.nested_query import NestedSumQuery

from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.queries import (
    GaussianSumQuery,
    clip_of,
    with_secure_noise,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.noise import add_gaussian, discrete_gaussian, grid_step
from tff_hdp.privacy.plan import NoisePlan, plan_digest
from tff_hdp.privacy.planned_noise import PartyNoise

Structure = Any  # nested structure of tensors

# Standard deviation of what hides a grid, in its steps; see `smoothed`.
SMOOTHING = 2.0
# Standard deviations beyond which there is no noise: 2^-1160.
_FAR = 40.0

# As in Andrew et al.'s adaptive clipping.
CLIP_LEARNING_RATE = 0.2


def queries_from_plan(plan: NoisePlan, record: Structure) -> LevelQueries:
    """The queries that clip and noise as `plan` says.

    Every level that adds noise clips too, so each client is clipped at least
    once; clipping again changes nothing.

    Args:
      plan: Who adds which noise.
      record: A client update, as a structure of `tf.TensorSpec`; per-layer
        clipping needs to know its tensors.

    Returns:
      A `LevelQueries`; all None and empty for a plan without noise.

    Raises:
      ArgumentError: If `plan.clipping.layer_norms` does not fit the record, or the
        noise is too much for adaptive clipping.
    """
    if not plan.is_noisy:
        return LevelQueries()
    if plan.clipping.kind == "adaptive":
        return LevelQueries(server=_adaptive_query(plan))

    def query(noise: PartyNoise) -> tfp.DPQuery:
        if plan.clipping.kind == "flat":
            return GaussianSumQuery(plan.clipping.clip_norm, noise.stddev)
        norms = layer_norms(plan, record)
        per_tensor = [GaussianSumQuery(c, noise.stddev) for c in norms]
        return NestedSumQuery(tf.nest.pack_sequence_as(record, per_tensor))

    zones, *upper, (server,) = plan.node_noise
    # Upper levels do not clip, so zones do for them where nobody else would.
    zones_clip = any(zones) or not (plan.clients_carry_noise or server)
    return LevelQueries(
        client=query(plan.client_noise) if plan.clients_carry_noise else None,
        zones=list(map(query, zones)) if zones_clip else (),
        upper=[list(map(query, nodes)) for nodes in upper],
        server=query(server) if server else None,
    )


def layer_norms(plan: NoisePlan, record: Structure) -> list[float]:
    """C_l for every tensor of `record`, in `tf.nest` order.

    Raises:
      ArgumentError: If `plan.clipping.layer_norms` are not as many.
    """
    count = len(tf.nest.flatten(record))
    given = plan.clipping.layer_norms
    if given is None:
        return [plan.clipping.clip_norm / math.sqrt(count)] * count
    if len(given) != count:
        raise ArgumentError(
            "clipping.layer_norms",
            given,
            f"{count} norms, one for each tensor of the update",
        )
    return list(given)


def checked_state(plan: NoisePlan, state: Any) -> Any:
    """A state as it is.

    Queries' states hold clips and noise: with those of another plan a round would be
    that plan's, and its ledger told of this one.

    Args:
      plan: Whose process takes the state.
      state: Of `ZonedMean.initial_state`, or a later one.

    Raises:
      tf.errors.InvalidArgumentError: When run, if it is of another plan.
    """
    own = tf.debugging.assert_equal(
        state["plan"],
        tf.constant(plan_digest(plan), tf.int64),
        message="the state is of the process of another plan, whose clips and noise it "
        "holds; carry the weights of its model over alone",
    )
    with tf.control_dependencies([] if own is None else [own]):
        return tf.nest.map_structure(tf.identity, state)


def scale(values: Structure, factor: tf.Tensor | float) -> Structure:
    """Multiplies every tensor by `factor`, cast to the tensor's dtype.

    A Python 1.0 leaves the tensors as they are.

    Raises:
      TypeError: If a tensor is not floating; an integer sum cannot be rescaled.
    """

    def scaled(t: tf.Tensor) -> tf.Tensor:
        if not t.dtype.is_floating:
            raise TypeError(
                f"a record holds a {t.dtype.name} tensor; floats are needed"
            )
        known_one = isinstance(factor, float) and factor == 1.0
        return t if known_one else t * tf.cast(factor, t.dtype)

    return tf.nest.map_structure(scaled, values)


def scale_rows(values: Structure, factors: Sequence[float] | tf.Tensor) -> Structure:
    """Multiplies row i of every tensor [s, ...] by `factors[i]`; see `scale`."""
    if not tf.is_tensor(factors):
        if set(factors) == {1.0}:
            return scale(values, 1.0)
        factors = tf.constant(factors, tf.float64)

    def scaled(t: tf.Tensor) -> tf.Tensor:
        return scale(t, tf.reshape(factors, [-1] + [1] * (t.shape.rank - 1)))

    return tf.nest.map_structure(scaled, values)


def rows(values: Structure, count: int) -> list[Structure]:
    """The rows of every tensor [count, ...], a structure each."""
    flat = (tf.unstack(t, count) for t in tf.nest.flatten(values))
    return [
        tf.nest.pack_sequence_as(values, list(row)) for row in zip(*flat, strict=True)
    ]


def alike(queries: Sequence[tfp.DPQuery]) -> bool:
    """Whether queries are several, all Gaussian, and clip and noise the same."""
    if len(queries) < 2 or {type(query) for query in queries} != {GaussianSumQuery}:
        return False
    return len({(query._l2_norm_clip, query._stddev) for query in queries}) == 1


def noise_own_record(
    query: tfp.DPQuery, state: Structure, record: Structure, carries: tf.Tensor
) -> Structure:
    """A client runs `query` on its own record, if it carries noise (bool [])."""
    return tf.cond(
        carries, lambda: query.get_noised_result(record, state)[0], lambda: record
    )


def noise_as_clients(
    plan: NoisePlan, value: Structure, noising: tf.Tensor
) -> Structure:
    """Sums of records with the noise of all who add some, zone by zone.

    Args:
      plan: What each of them adds.
      value: Z zones' sums, each tensor [Z, ...].
      noising: Of how many clients' noise, int32 [Z].
    """
    each = plan.client_noise.stddev
    together = each * tf.sqrt(tf.cast(noising, tf.float64))
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), value)

    @tf.autograph.experimental.do_not_convert
    def noised(zone: tuple[Structure, tf.Tensor]) -> Structure:
        return add_gaussian(*zone, each=each)

    return tf.map_fn(noised, (value, together), fn_output_signature=specs)


def noise_sum(
    query: tfp.DPQuery, state: Structure, value: Structure, unit: float
) -> tuple[Structure, Structure, Any]:
    """Noises `value`, whose sensitivity is `unit` times the clip norm.

    Args:
      query: The level's query, whose noise is meant for sensitivity S.
      state: The query's global state.
      value: Structure of tensors.
      unit: Sensitivity of `value` in units of S; 0 for a value nobody moves.

    Returns:
      The noised value, the query's new state and its `DpEvent`.
    """
    in_units_of_clip = scale(value, 1.0 / unit if unit else 0.0)
    noised, state, event = query.get_noised_result(in_units_of_clip, state)
    return scale(noised, unit), state, event


def step_to_hide(steps: Sequence[float], own: float = 0.0) -> float:
    """The step of the grid that must be hidden before a sum is passed on; 0 for none.

    Noise comes rounded to a grid. Where all parties' values lie on one, so does their
    sum, exactly. Otherwise what lies between the steps of the coarsest is no longer
    covered by the noise on it: it shows what parties with finer grids or no noise sent;
    and noise of less than some steps of a grid shows between them, and covers nothing.

    Args:
      steps: Of the grid of each value in the sum; 0 for one without noise.
      own: Standard deviation of the noise that is added to the sum; 0 for none.
    """
    coarsest = max(steps)
    alike = math.isclose(min(steps), coarsest)
    return 0.0 if alike and not 0.0 < own < SMOOTHING * coarsest else coarsest


def adds_up_in_float32(count: int, bound: float, stddev: float) -> bool:
    """Whether sums of noised values on one grid are exact in float32.

    What it cannot hold is rounded away, and depends on what is added up.

    Args:
      count: Of the values, at most.
      bound: Of one without its noise, in absolute value.
      stddev: Of the noise of one.
    """
    largest = count * bound + _FAR * stddev * math.sqrt(count)
    return largest <= 2**24 * grid_step(stddev)


def smoothed(value: Structure, step: float) -> Structure:
    """A sum without the grids on which its parts lie.

    The noise added here is not accounted. With it the sum's phase on the grid to hide
    is uniform to a factor of 1 +- 2 exp(-2 pi^2 `SMOOTHING`^2), and the noise on it as
    good as Gaussian.

    Args:
      value: The sum.
      step: To hide, see `step_to_hide`; 0 adds nothing.
    """
    return add_gaussian(value, SMOOTHING * step) if step else value


def smoothed_rows(values: Structure, steps: Sequence[float]) -> Structure:
    """Smooths row i of every tensor [s, ...] by `steps[i]`; see `smoothed`."""
    if len(set(steps)) == 1:
        return smoothed(values, steps[0])
    found = map(smoothed, rows(values, len(steps)), steps)
    return tf.nest.map_structure(lambda *t: tf.stack(t), *found)


def discrete_client_noise(plan: NoisePlan, size: int) -> tf.Tensor:
    """A client's discrete Gaussian noise in steps of the encoding, int64 [size]."""
    return _discrete(plan, plan.client_noise, size)


def discrete_zone_noise(plan: NoisePlan, size: int) -> tf.Tensor:
    """Every super-node's noise in steps of the plan's encoding, int64 [s, size]."""
    return tf.stack([_discrete(plan, noise, size) for noise in plan.zone_noise])


def _discrete(plan: NoisePlan, noise: PartyNoise, size: int) -> tf.Tensor:
    if not noise:
        return tf.zeros([size], tf.int64)
    return discrete_gaussian(noise.in_steps(plan.encoding.step), size)


def zone_events(plan: NoisePlan) -> list[Any]:
    """The `DpEvent`s of super-nodes whose noise is discrete, as named tuples."""
    return [noise.event.to_named_tuple() for noise in plan.zone_noise]


def clips(plan: NoisePlan, queries: LevelQueries, state: Any) -> dict[str, Any]:
    """To what a round clips.

    Returns:
      `clip_norm`, the round's S: moving where clipping adapts, infinite without a
      clip; and with queries `clip_norms`, that of every level, by `clip_of`.
    """
    by_level = queries.each(lambda _, own: clip_of(own), state)
    if not by_level:
        return {"clip_norm": tf.constant(float("inf"))}
    norm = tf.constant(plan.clipping.clip_norm, tf.float32)
    if queries.server is not None:
        norm = queries.server.derive_metrics(state["server"]).get("clip", norm)
    return {"clip_norm": norm, "clip_norms": by_level}


def void_unless(delivered: tf.Tensor, event: Any) -> Any:
    """An event as it is if its noise was `delivered` (bool []), else of multiplier 0.

    Args:
      delivered: Whether everybody added the noise that the event tells of.
      event: A `DpEvent` as a named tuple.
    """

    def void(leaf: Any) -> Any:
        if isinstance(leaf, str):
            return leaf
        leaf = tf.convert_to_tensor(leaf)
        if not leaf.dtype.is_floating:
            return leaf
        return tf.where(delivered, leaf, tf.zeros_like(leaf))

    return tf.nest.map_structure(void, event)


def _adaptive_query(plan: NoisePlan) -> tfp.DPQuery:
    """Splits z between update and clipped count, see `NoisePlan.share_of_sum`."""
    count_stddev, z = plan.count_stddev, plan.server_noise.noise_multiplier
    if z >= 2 * count_stddev:
        raise ArgumentError(
            "server_noise_multiplier",
            z,
            f"less than {2 * count_stddev:g} with adaptive clipping and "
            f"{plan.expected_clients:g} expected clients",
        )
    adaptive = tfp.QuantileAdaptiveClipSumQuery(
        initial_l2_norm_clip=plan.clipping.clip_norm,
        noise_multiplier=z / math.sqrt(plan.share_of_sum),
        target_unclipped_quantile=plan.clipping.target_quantile,
        learning_rate=CLIP_LEARNING_RATE,
        clipped_count_stddev=count_stddev,
        # Counts are weighted and scaled as updates are.
        expected_num_records=1.0 / max(plan.released_units),
        geometric_update=True,
    )
    return with_secure_noise(adaptive)
