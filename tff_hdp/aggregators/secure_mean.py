"""The zoned mean on integers: what clients encode, and what becomes of the sums.

Under secure aggregation a client's clipped, weighted record becomes a vector of
integers (`FixedPoint`), noised by discrete Gaussians on the same grid, so that
sums modulo 2^b are exact and noise keeps its law under the masks.
"""

import collections
import math
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf
from tensorflow_privacy.privacy.dp_query import discrete_gaussian_utils

from tff_hdp.aggregators import levels
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.secure import with_encoding

# tensorflow-privacy's sampler squares samples in 64 bits.
MAX_BITS = 30


class SecureZonedMean(ZonedMean):
    """The `ZonedMean` of a plan with an encoding.

    A *contribution* is here the `vector` of a client's record, in `tf.nest` order,
    and after it its weight, as integers; beside it are un-noised counts and norms
    for the operator. Vectors add up modulo 2^b; how is not this class's affair.

    A record is shortened by at most half a step per coordinate's worth of norm, so
    that the rounded one still has norm at most w S: the sensitivity is the
    plan's, rounding included.

    Args:
      plan: With an encoding; see `tff_hdp.privacy.secure.with_encoding`.
      record: An update, as a structure of float `tf.TensorSpec`.
      draws_noise: Whether `contribution` and `zone_outputs` add the discrete
        noise; False where the parties of a protocol add it themselves.

    Raises:
      ValueError: If the encoding is too coarse for the record, or its sums could
        wrap around.
    """

    in_fixed_point = True

    def __init__(
        self, plan: NoisePlan, record: Any, *, draws_noise: bool = True
    ) -> None:
        super().__init__(plan, record)
        self._record = record
        self._draws_noise = draws_noise
        self._encoding = plan.encoding
        self.size = sum(spec.shape.num_elements() for spec in tf.nest.flatten(record))
        self._check_encoding()
        # The integer that stands for weight 1.
        self.weight_one = (2 ** (self._encoding.bits - 1) - 1) // (
            self._encoding.max_clients
        )

    @property
    def plan(self) -> NoisePlan:
        """Who adds which noise, in which fixed point."""
        return self._plan

    @property
    def vector_size(self) -> int:
        """Coordinates of a vector: those of the record, and the weight."""
        return self.size + 1

    @property
    def modulus(self) -> int:
        """2^b."""
        return 2**self._encoding.bits

    def contribution(self, sent: Any, update: Any, profile: Any) -> Any:
        """Screens, clips, weights, encodes and noises one client's update.

        Args:
          sent: What `client_state` returned.
          update: Structure of tensors.
          profile: `weight` (float32 []), `zone` (int32 []), `carries_noise` (bool []).

        Returns:
          `vector` (int64 [vector_size]), which has to be summed modulo 2^b, and
          for the operator `rejected` (int32 []), `saturated` (int32 [], whether a
          coordinate was beyond the encoding's), `tensor_norms` and `norm`.
        """
        silent = collections.OrderedDict(profile, carries_noise=tf.constant(False))
        plain = super().contribution(sent, update, silent)
        record = tf.concat(
            [
                tf.reshape(tf.cast(t, tf.float64), [-1])
                for t in tf.nest.flatten(plain["record"])
            ],
            0,
        )
        if self._plan.is_noisy:
            record = self._shortened(record, plain["weight"])
        saturated = tf.reduce_any(tf.abs(record) > self._encoding.clip)
        clipped = tf.clip_by_value(record, -self._encoding.clip, self._encoding.clip)
        integers = tf.cast(tf.round(clipped / self._encoding.step), tf.int64)
        if self._draws_noise and self._plan.client_noise_multiplier > 0:
            integers += tf.cond(
                profile["carries_noise"],
                lambda: self._discrete_noise(
                    self._plan.client_noise_multiplier, [self.size]
                ),
                lambda: tf.zeros([self.size], tf.int64),
            )
        # Rounded up, so that no record outgrows its weight.
        weight = tf.math.ceil(tf.cast(plain["weight"], tf.float64) * self.weight_one)
        if self._plan.estimator == "fixed":
            # Nobody divides by weights, and their sum would tell who took part.
            weight = tf.zeros_like(weight)
        return collections.OrderedDict(
            vector=tf.concat([integers, tf.cast(weight, tf.int64)[tf.newaxis]], 0),
            rejected=plain["rejected"],
            saturated=tf.cast(saturated, tf.int32),
            tensor_norms=plain["tensor_norms"],
            norm=plain["norm"],
        )

    def zone_outputs(self, vectors: Any, clients: Any) -> tuple[Any, Any]:
        """Zones that are too small left out, and super-nodes' discrete noise added.

        A zone that is left out still gets its noise: were its output bare, it
        would show for certain whether one client more had come.

        Args:
          vectors: int64 [s, vector_size], sums modulo 2^b.
          clients: int32 [s], how many took part.

        Returns:
          The vectors, and which zones with clients were left out (bool [s]).
        """
        enough = clients >= self._plan.min_zone_clients
        vectors = tf.where(enough[:, tf.newaxis], vectors, 0)
        if self._draws_noise and self._plan.secure_server:
            noise = [
                self._discrete_noise(z, [self.size])
                for z in self._plan.zone_noise_multipliers
            ]
            vectors += tf.pad(tf.stack(noise), [[0, 0], [0, 1]])
        return vectors, tf.logical_and(clients > 0, tf.logical_not(enough))

    def release(self, state: Any, total: Any) -> tuple[Any, Any, Any]:
        """The mean that sums modulo 2^b stand for, with continuous noise added.

        Args:
          state: The queries' states.
          total: `vectors`, int64 modulo 2^b: [s, vector_size], what `zone_outputs`
            returned, or with `secure_server` their sum over zones [vector_size];
            `left_out` (bool [s]); `clients` (int32 [s]) and what contributions
            hold besides their vectors, summed over clients.

        Returns:
          The released structure, the queries' new states, and the measurements.
        """
        half = np.int64(self.modulus // 2)
        centred = tf.math.floormod(total["vectors"] + half, 2 * half) - half
        coordinates = tf.cast(centred[..., :-1], tf.float64) * self._encoding.step
        weight = tf.cast(centred[..., -1] / self.weight_one, tf.float32)
        record = self._unflatten(tf.cast(coordinates, tf.float32))
        operator = collections.OrderedDict(
            (name, total[name])
            for name in ("clients", "rejected", "tensor_norms", "norm")
        )
        if self._plan.secure_server:
            result = self._release_sum(state, record, weight, operator)
        else:
            summed = collections.OrderedDict(record=record, weight=weight, **operator)
            result = super().release(state, summed)
        released, new_state, measurements = result
        measurements["saturated"] = total["saturated"]
        measurements["left_out"] = tf.math.count_nonzero(
            total["left_out"], dtype=tf.int32
        )
        return released, new_state, measurements

    def _release_sum(
        self, state: Any, record: Any, weight: tf.Tensor, operator: Any
    ) -> tuple[Any, Any, Any]:
        """`release` where the server has only the sum over zones."""
        plan, queries = self._plan, self._queries
        new_state = collections.OrderedDict(state, round=state["round"] + 1)
        events = collections.OrderedDict()
        if queries.client is not None:
            events["client"] = _gaussian_event(plan.client_noise_multiplier)
        if queries.zones:
            events["zones"] = [_gaussian_event(z) for z in plan.zone_noise_multipliers]
        if plan.estimator == "realised":
            unit = tf.math.divide_no_nan(1.0, weight)
        else:
            unit = max(plan.released_sensitivities) / plan.clipping.clip_norm
        released = levels.scale(record, unit)
        if queries.server is not None:
            released, new_state["server"], event = levels.noise_sum(
                queries.server, state["server"], released, unit
            )
            events["server"] = event.to_named_tuple()
        return released, new_state, self._measurements(state, operator, events)

    def _check_encoding(self) -> None:
        encoding, norm = self._encoding, self._plan.clipping.clip_norm
        if encoding.bits > MAX_BITS:
            raise ValueError(
                f"plan.encoding.bits is {encoding.bits}; at most {MAX_BITS}"
            )
        finest = with_encoding(
            self._plan, size=self.size, bits=encoding.bits, largest=encoding.clip
        ).encoding.step
        if encoding.step < finest * (1 - 1e-9):
            raise ValueError(
                f"plan.encoding.step is {encoding.step:.6g}; with {self.size} "
                f"coordinates allowed is at least {finest:.6g}"
            )
        if self._plan.is_noisy and self._rounding >= norm:
            raise ValueError(
                f"plan.encoding.step is {encoding.step:.6g}: rounding "
                f"{self.size} coordinates moves them by {self._rounding:.3g}, beyond "
                f"the clip norm {norm:.6g}; use more bits"
            )

    @property
    def _rounding(self) -> float:
        """How far rounding moves a record, in L2."""
        return self._encoding.rounded_norm(0.0, self.size)

    def _shortened(self, record: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        """`record` with room to be rounded within norm w S."""
        norm = tf.norm(record)
        longest = tf.cast(weight, tf.float64) * self._plan.clipping.clip_norm
        longest = tf.maximum(longest - self._rounding, 0.0)
        return record * tf.minimum(
            tf.ones_like(norm), tf.math.divide_no_nan(longest, norm)
        )

    def _discrete_noise(self, multiplier: float, shape: list[int]) -> tf.Tensor:
        """Discrete Gaussian noise, int64, its parameter rounded up to an integer."""
        sigma = multiplier * self._plan.clipping.clip_norm / self._encoding.step
        return discrete_gaussian_utils.sample_discrete_gaussian(
            tf.constant(math.ceil(sigma), tf.int64), shape, tf.int64
        )

    def _unflatten(self, flat: tf.Tensor) -> Any:
        """[..., size] to the record's structure of [..., *shape]."""
        specs = tf.nest.flatten(self._record)
        sizes = [spec.shape.num_elements() for spec in specs]
        leading = flat.shape[:-1]
        tensors = [
            tf.cast(tf.reshape(part, leading + spec.shape), spec.dtype)
            for part, spec in zip(tf.split(flat, sizes, -1), specs, strict=True)
        ]
        return tf.nest.pack_sequence_as(self._record, tensors)


def _gaussian_event(multiplier: float) -> Any:
    return dp_accounting.GaussianDpEvent(multiplier).to_named_tuple()
