"""The zoned mean on integers: what clients encode, and what becomes of the sums.

Under secure aggregation a client's clipped, weighted record becomes a vector of
integers (`FixedPoint`), noised by discrete Gaussians on the same grid, so that
sums modulo 2^b are exact and noise keeps its law under the masks.
"""

import collections
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators import levels
from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.vectors import centred, decode, encode, join, split
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.secure import check_weight_one, with_encoding

# The ring of `FixedPoint` has room for two more.
_MAX_TESTED_BITS = 30


class SecureZonedMean(ZonedMean):
    """The `ZonedMean` of a plan with an encoding.

    A *contribution* has here, in place of record and weight, one `vector`: the
    record, in `tf.nest` order, and after it the weight, as integers. How many
    clients were `saturated`, with a coordinate beyond the encoding's, is counted
    too. Vectors add up modulo 2^b; how is not this class's affair.

    A record is shortened by at most half a step per coordinate's worth of norm, so
    that the rounded one still has norm at most w S: the sensitivity is the
    plan's, rounding included.

    Args:
      plan: With an encoding; see `tff_hdp.privacy.secure.with_encoding`.
      record: An update, as a structure of float `tf.TensorSpec`.
      draws_noise: Whether `contribution` and `total` add the discrete noise; False
        where the parties of a protocol add it themselves.

    Attributes:
      vector_size: Coordinates of a vector: those of the record, and the weight.
      modulus: 2^b.
      weight_one: The integer that stands for weight 1.

    Raises:
      ArgumentError: If the encoding is too coarse for the record or for weights by
        which sums are divided, or its sums could wrap around.
    """

    in_fixed_point = True

    def __init__(
        self, plan: NoisePlan, record: Any, *, draws_noise: bool = True
    ) -> None:
        super().__init__(plan, record)
        self._draws_noise = draws_noise
        self._encoding = plan.encoding
        self._check_encoding()
        self.vector_size = self.size + 1
        self.modulus = 2**plan.encoding.bits
        self.weight_one = check_weight_one(plan)

    def contribution(self, sent: Any, update: Any, profile: Any) -> Any:
        """Screens, clips, weights, encodes and noises one client's update.

        Args:
          sent: What `client_state` returned.
          update: Structure of tensors.
          profile: `weight` (float32 []), `zone` (int32 []), `carries_noise` (bool []).

        Returns:
          A contribution, whose `vector` (int64 [vector_size]) has to be summed
          modulo 2^b.
        """
        encoding = self._encoding
        bare = self.bare_contribution(sent, update, profile)
        plain, weight = bare.pop("record"), bare.pop("weight")
        record = join([tf.cast(t, tf.float64) for t in tf.nest.flatten(plain)])
        if self.plan.is_noisy:
            record = self._shortened(record, weight)
        saturated = tf.reduce_any(tf.abs(record) > encoding.clip)
        integers = encode(record, encoding)
        if self._draws_noise and self.plan.clients_carry_noise:
            integers += tf.cond(
                profile["carries_noise"],
                lambda: levels.discrete_client_noise(self.plan, self.size),
                lambda: tf.zeros([self.size], tf.int64),
            )
        # Rounded up, so that no record outgrows its weight.
        weight = tf.math.ceil(tf.cast(weight, tf.float64) * self.weight_one)
        if self.plan.estimator == "fixed":
            # Nobody divides by weights, and their sum would tell who took part.
            weight = tf.zeros_like(weight)
        return collections.OrderedDict(
            vector=tf.concat([integers, tf.cast(weight, tf.int64)[tf.newaxis]], 0),
            **bare,
            saturated=tf.cast(saturated, tf.int32),
        )

    def total(self, vectors: Any, operator: Any) -> Any:
        """What `outputs` takes, of zones' sums.

        Zones that are too small are left out, super-nodes' discrete noise is added and,
        where the server sees no more than that, zones are summed. A zone that is left
        out still gets its noise: were its output bare, it would show for certain
        whether one client more had come.

        Args:
          vectors: int64 [s, vector_size], sums modulo 2^b.
          operator: What contributions hold besides their vectors, summed over clients.
        """
        counted = operator["counted"]
        enough = counted >= self.plan.min_zone_clients
        vectors = tf.where(enough[:, tf.newaxis], vectors, 0)
        if self.plan.secure_server:
            if self._draws_noise:
                noise = levels.discrete_zone_noise(self.plan, self.size)
                vectors += tf.pad(noise, [[0, 0], [0, 1]])
            vectors = tf.math.floormod(tf.reduce_sum(vectors, 0), self.modulus)
        left_out = tf.logical_and(counted > 0, tf.logical_not(enough))
        return collections.OrderedDict(vectors=vectors, left_out=left_out, **operator)

    def decoded(self, vectors: Any) -> tuple[Any, tf.Tensor]:
        """What sums modulo 2^b stand for.

        Args:
          vectors: int64 [..., vector_size].

        Returns:
          Records, each tensor float64 [..., *shape], and weights, float32 [...].
        """
        shapes = [spec.shape for spec in tf.nest.flatten(self._record)]
        coordinates = decode(vectors[..., :-1], self._encoding)
        record = tf.nest.pack_sequence_as(self._record, split(coordinates, shapes))
        weight = centred(vectors[..., -1], self._encoding.bits)
        return record, tf.cast(weight / self.weight_one, tf.float32)

    def outputs(self, state: Any, total: Any) -> tuple[list[list[Any]], Any, Any]:
        """The mean's outputs, from sums modulo 2^b, with continuous noise added.

        Args:
          state: The queries' states.
          total: `vectors`, int64 modulo 2^b: [s, vector_size], zones' outputs, or with
            `secure_server` their sum over zones [vector_size]; `left_out` (bool [s]),
            which zones with clients were; and what contributions hold besides their
            vectors, summed over clients.

        Returns:
          As `ZonedMean.outputs`; with `secure_server`, the sum of the zones' outputs in
          their place.
        """
        record, weight = self.decoded(total["vectors"])
        operator = collections.OrderedDict(
            (name, part)
            for name, part in total.items()
            if name not in ("vectors", "left_out", "saturated")
        )
        if self.plan.secure_server:
            result = self._release_sum(state, record, weight, operator)
        else:
            summed = collections.OrderedDict(record=record, weight=weight, **operator)
            result = super().outputs(state, summed)
        exact, new_state, measurements = result
        by_level = [[self._as_sent(value) for value in nodes] for nodes in exact]
        measurements["saturated"] = total["saturated"]
        measurements["left_out"] = tf.math.count_nonzero(
            total["left_out"], dtype=tf.int32
        )
        return by_level, new_state, measurements

    def _release_sum(
        self, state: Any, record: Any, weight: tf.Tensor, operator: Any
    ) -> tuple[list[list[Any]], Any, Any]:
        """`outputs` where the server has only the sum over zones."""
        plan, queries = self.plan, self._queries
        new_state = collections.OrderedDict(state, round=state["round"] + 1)
        events = collections.OrderedDict()
        if queries.client is not None:
            events["client"] = self._client_event(state, operator)
        if queries.zones:
            events["zones"] = levels.zone_events(plan)
        if plan.estimator == "realised":
            unit = tf.math.divide_no_nan(1.0, weight)
        else:
            unit = max(plan.released_units)
        summed = released = levels.scale(record, unit)
        if queries.server is not None:
            released, new_state["server"], event = levels.noise_sum(
                queries.server, state["server"], released, unit
            )
            events["server"] = event.to_named_tuple()
        measurements = self._measurements(state, operator, events)
        return [[summed], [released]], new_state, measurements

    def _check_encoding(self) -> None:
        encoding, norm = self._encoding, self.plan.clipping.clip_norm
        if encoding.bits > _MAX_TESTED_BITS:
            raise ArgumentError(
                "plan.encoding.bits", encoding.bits, f"at most {_MAX_TESTED_BITS}"
            )
        finest = with_encoding(
            self.plan, size=self.size, bits=encoding.bits, largest=encoding.clip
        ).encoding.step
        if encoding.step < finest * (1 - 1e-9):
            raise ArgumentError(
                "plan.encoding.step",
                f"{encoding.step:.6g}",
                f"at least {finest:.6g} with {self.size} coordinates",
            )
        if self.plan.is_noisy and self._rounding >= norm:
            raise ArgumentError(
                "plan.encoding.step",
                f"{encoding.step:.6g}",
                f"a finer one, of more bits; rounding {self.size} coordinates moves "
                f"them by {self._rounding:.3g}, beyond the clip norm {norm:.6g}",
            )

    @property
    def _rounding(self) -> float:
        """How far rounding moves a record, in L2."""
        return self._encoding.rounded_norm(0.0, self.size)

    def _shortened(self, record: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        """`record` with room to be rounded within norm w S."""
        norm = tf.norm(record)
        longest = tf.cast(weight, tf.float64) * self.plan.clipping.clip_norm
        longest = tf.maximum(longest - self._rounding, 0.0)
        return record * tf.minimum(
            tf.ones_like(norm), tf.math.divide_no_nan(longest, norm)
        )

    def _as_sent(self, value: Any) -> Any:
        """In the record's dtypes."""
        return tf.nest.map_structure(
            lambda t, spec: tf.cast(t, spec.dtype), value, self._record
        )


def build_mean(
    plan: NoisePlan,
    record: Any,
    *,
    queries: LevelQueries | None = None,
    draws_noise: bool = True,
) -> ZonedMean:
    """The mean of a plan: a `SecureZonedMean` if it has an encoding.

    Args:
      plan: Who adds which noise.
      record: An update, as a structure of float `tf.TensorSpec`.
      queries: See `ZonedMean`; none beside an encoding.
      draws_noise: See `SecureZonedMean`.

    Raises:
      ArgumentError: If there are queries beside an encoding, or the mean refuses.
    """
    if plan.encoding is None:
        return ZonedMean(plan, record, queries=queries)
    if queries is not None:
        raise ArgumentError("queries", queries, "None where plan.encoding is given")
    return SecureZonedMean(plan, record, draws_noise=draws_noise)
