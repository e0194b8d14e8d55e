"""What happens to a record at each level: screen, clip, scale, noise.

The clip and the noise of a level are a tensorflow-privacy `DPQuery`, so any
query of that library can stand at any level (Gaussian noise is then drawn by
`tff_hdp.noise`, see `queries.with_secure_noise`). Queries nest like an onion: a
record is preprocessed by the server's query first and the client's last, and a
sum is noised by the client's first and the server's last.

All noise that aggregators draw is drawn here: `noise_own_record` and `noise_sum`
run a query of `queries_from_plan`; `discrete_noise` is for sums in fixed point;
`smoothed` hides who rounded to what.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_privacy as tfp
from tensorflow_privacy.privacy.dp_query.nested_query import NestedSumQuery

from tff_hdp.aggregators.queries import GaussianSumQuery, with_secure_noise
from tff_hdp.errors import ArgumentError
from tff_hdp.noise import STEPS, add_gaussian, discrete_gaussian
from tff_hdp.privacy.plan import NoisePlan

Structure = Any  # nested structure of tensors

# Noise of who passes on a sum, as a share of the noise in it; see `smoothed`.
SMOOTHING = 4.0 / STEPS

# The constants of TFF's and Andrew et al.'s adaptive clipping.
COUNT_STDDEV_SHARE = 0.05
CLIP_LEARNING_RATE = 0.2


@dataclasses.dataclass(frozen=True)
class LevelQueries:
    """The `DPQuery` of every level; None or empty where a level only sums.

    All queries of a plan must clip to the plan's S: a `DpEvent` tells a noise
    multiplier, not the clip norm it is relative to.

    Attributes:
      client: Run by a noising client on its own weighted record.
      zones: One query per zone; all of one class, so that one preprocessing
        with the zone's own parameters serves every client.
      upper: For each level between zones and server, one query per node. These
        only noise; they do not preprocess.
      server: Run on the sum over all zones.
    """

    client: tfp.DPQuery | None = None
    zones: Sequence[tfp.DPQuery] = ()
    upper: Sequence[Sequence[tfp.DPQuery]] = ()
    server: tfp.DPQuery | None = None

    def with_secure_noise(self) -> "LevelQueries":
        """The same, with all Gaussian noise drawn by `tff_hdp.noise`."""
        return LevelQueries(
            client=self.client and with_secure_noise(self.client),
            zones=[with_secure_noise(query) for query in self.zones],
            upper=[
                [with_secure_noise(query) for query in nodes] for nodes in self.upper
            ],
            server=self.server and with_secure_noise(self.server),
        )


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

    def query(noise_multiplier: float) -> tfp.DPQuery:
        stddev = noise_multiplier * plan.clipping.clip_norm
        if plan.clipping.kind == "flat":
            return GaussianSumQuery(plan.clipping.clip_norm, stddev)
        per_tensor = [GaussianSumQuery(c, stddev) for c in layer_norms(plan, record)]
        return NestedSumQuery(tf.nest.pack_sequence_as(record, per_tensor))

    client_noises = plan.client_noise_multiplier > 0 and any(plan.noising_clients)
    # Upper levels do not clip, so zones do for them where nobody else would.
    zones_clip = any(plan.zone_noise_multipliers) or not (
        client_noises or plan.server_noise_multiplier > 0
    )
    return LevelQueries(
        client=query(plan.client_noise_multiplier) if client_noises else None,
        zones=[query(z) for z in plan.zone_noise_multipliers] if zones_clip else (),
        upper=[
            [query(z) for z in level.noise_multipliers] for level in plan.upper_levels
        ],
        server=query(plan.server_noise_multiplier)
        if plan.server_noise_multiplier > 0
        else None,
    )


def layer_norms(plan: NoisePlan, record: Structure) -> list[float]:
    """C_l for every tensor of `record`, in `tf.nest` order."""
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


def screen(update: Structure) -> tuple[Structure, tf.Tensor]:
    """Zeroes an update whose norm is not finite in float32.

    That is one with a NaN, an infinity, or values so large that their squares
    overflow: clipping would turn those into NaN.

    Args:
      update: Structure of float tensors.

    Returns:
      The update or zeros of its shape, and whether it was rejected (bool []).
    """
    finite = tf.math.is_finite(tf.linalg.global_norm(tf.nest.flatten(update)))
    kept = tf.nest.map_structure(
        lambda t: tf.where(finite, t, tf.zeros_like(t)), update
    )
    return kept, tf.logical_not(finite)


def scale(values: Structure, factor: tf.Tensor | float) -> Structure:
    """Multiplies every tensor by `factor`, cast to the tensor's dtype.

    Raises:
      TypeError: If a tensor is not floating; an integer sum cannot be rescaled.
    """

    def scaled(t: tf.Tensor) -> tf.Tensor:
        if not t.dtype.is_floating:
            raise TypeError(
                f"a record holds a {t.dtype.name} tensor; floats are needed"
            )
        return t * tf.cast(factor, t.dtype)

    return tf.nest.map_structure(scaled, values)


def scale_rows(values: Structure, factors: Sequence[tf.Tensor | float]) -> Structure:
    """Multiplies row i of every tensor [s, ...] by `factors[i]`; see `scale`."""
    known = not tf.is_tensor(factors[0])
    column = tf.constant(factors, tf.float64) if known else tf.stack(factors)

    def scaled(t: tf.Tensor) -> tf.Tensor:
        return scale(t, tf.reshape(column, [-1] + [1] * (t.shape.rank - 1)))

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
        carries,
        lambda: query.get_noised_result(record, state)[0],
        lambda: record,
    )


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


def smoothed(value: Structure, stddev: float) -> Structure:
    """A sum of several parties' values, without the grids on which each lies.

    Noise comes rounded to a grid. What lies between the steps of a sum's coarsest
    grid is no longer covered by the noise on it: it shows what parties with finer
    grids or no noise sent. So who passes a sum on adds noise of `SMOOTHING`, four of
    the coarsest steps or more, which is not accounted: the sum's noise then is
    Gaussian to a factor of 1 +- 2 exp(-2 pi^2 4^2).

    Args:
      value: The sum.
      stddev: Of the noise in it, all parties' together; 0 adds nothing.
    """
    return add_gaussian(value, SMOOTHING * stddev) if stddev else value


def smoothed_rows(values: Structure, stddevs: Sequence[float]) -> Structure:
    """Smooths row i of every tensor [s, ...] by `stddevs[i]`; see `smoothed`."""
    if len(set(stddevs)) == 1:
        return smoothed(values, stddevs[0])
    found = map(smoothed, rows(values, len(stddevs)), stddevs)
    return tf.nest.map_structure(lambda *t: tf.stack(t), *found)


def discrete_noise(plan: NoisePlan, multiplier: float, size: int) -> tf.Tensor:
    """Discrete Gaussian noise in steps of the plan's encoding.

    Args:
      plan: With an encoding.
      multiplier: z, in units of the clip norm.
      size: Coordinates.

    Returns:
      int64 [size].
    """
    if multiplier == 0.0:
        return tf.zeros([size], tf.int64)
    sigma = multiplier * plan.clipping.clip_norm / plan.encoding.step
    return discrete_gaussian(sigma, size)


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
    """Splits z between update and clipped count (Andrew et al. 2021, Theorem 1)."""
    expected_clients = float(
        sum(q * n for q, n in zip(plan.participation, plan.zone_sizes, strict=True))
    )
    count_stddev = COUNT_STDDEV_SHARE * expected_clients
    z = plan.server_noise_multiplier
    if z >= 2 * count_stddev:
        raise ArgumentError(
            "server_noise_multiplier",
            z,
            f"less than {2 * count_stddev:g} with adaptive clipping and "
            f"{expected_clients:g} expected clients",
        )
    adaptive = tfp.QuantileAdaptiveClipSumQuery(
        initial_l2_norm_clip=plan.clipping.clip_norm,
        noise_multiplier=(z**-2 - (2 * count_stddev) ** -2) ** -0.5,
        target_unclipped_quantile=plan.clipping.target_quantile,
        learning_rate=CLIP_LEARNING_RATE,
        clipped_count_stddev=count_stddev,
        expected_num_records=expected_clients,
        geometric_update=True,
    )
    return with_secure_noise(adaptive)
