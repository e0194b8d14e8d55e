"""Real vectors as integers modulo 2^b, so that masks can hide them exactly."""

import dataclasses
import math

import numpy as np

from tff_hdp.errors import (
    ArgumentError,
    check_count,
    check_nonnegative,
    check_positive,
    require,
)
from tff_hdp.protocols.secagg.errors import BadInputError

MIN_BITS, MAX_BITS = 4, 32
# Chance that noise wraps around somewhere in one sum, where noise is expected.
_WRAP_PROBABILITY = 2.0**-40


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """Coordinates in [-clip, clip], rounded to multiples of `step`, mod 2^bits.

    Sums of up to `max_clients` encoded vectors never wrap around; with noise
    (see `for_sum`) they do with probability at most 2^-40. Rounding is to the
    nearest, so each coordinate of a sum over k clients is off by at most
    k * step / 2, and a vector of d coordinates and norm S has norm at most
    S + step * sqrt(d) / 2 once rounded, which is the sensitivity to account.

    Attributes:
      clip: Coordinates are clipped to [-clip, clip]; one L2 clipping norm will
        do, since no coordinate exceeds it.
      step: The value of integer 1.
      bits: b, the ring is Z modulo 2^b.
      max_clients: k, the most vectors one sum may have.

    Raises:
      ArgumentError: If a field is out of range or the sum could wrap around.
    """

    clip: float
    step: float
    bits: int
    max_clients: int

    def __post_init__(self) -> None:
        _check_ranges(self.clip, self.bits, self.max_clients)
        for name in ("bits", "max_clients"):
            object.__setattr__(self, name, int(getattr(self, name)))
        check_positive("step", self.step)
        largest = self.max_clients * (self.clip / self.step + 0.5)
        if largest > 2 ** (self.bits - 1) - 1:
            raise ArgumentError(
                "bits",
                self.bits,
                f"enough for sums of {self.max_clients} clients, which reach "
                f"{largest:.0f}, beyond {2 ** (self.bits - 1) - 1}",
            )

    @staticmethod
    def for_sum(
        *,
        clip: float,
        bits: int,
        max_clients: int,
        stddev: float = 0.0,
        size: int = 1,
    ) -> "FixedPoint":
        """The finest step that leaves room for the sum and its noise.

        Args:
          clip: Bound on every coordinate.
          bits: Size of the ring, 4..32.
          max_clients: k, the most vectors one sum may have.
          stddev: Standard deviation of the total noise per coordinate, in
            the units of `clip`.
          size: d, coordinates of the vectors; only matters with noise.

        Raises:
          ArgumentError: If an argument is out of range, or `bits` too few.
        """
        _check_ranges(clip, bits, max_clients)
        check_nonnegative("stddev", stddev)
        check_count("size", size, 1)
        tail = _tail(stddev, size)
        room = 2 ** (bits - 1) - 1 - max_clients / 2
        require(room >= 1, "bits", bits, f"enough for sums of {max_clients} clients")
        # The relative 1e-12 keeps the check above true in floating point.
        step = (max_clients * clip + tail) / room * (1 + 1e-12)
        return FixedPoint(clip, step, bits, max_clients)

    def check_room(self, num_clients: int, stddev: float, size: int) -> None:
        """Checks that a noisy sum wraps around with probability at most 2^-40.

        Args:
          num_clients: How many vectors it has.
          stddev: Standard deviation of its noise, in the units of `clip`.
          size: d, coordinates of the vectors.

        Raises:
          ArgumentError: If it may more often, or an argument is out of range.
        """
        require(size >= 1, "size", size, "a vector of at least one coordinate")
        check_count("num_clients", num_clients, 1)
        check_nonnegative("stddev", stddev)
        largest = num_clients * self.clip + _tail(stddev, size)
        ring = (2 ** (self.bits - 1) - 1 - num_clients / 2) * self.step
        if stddev and largest > ring:
            raise ArgumentError(
                "encoding",
                f"of sums that wrap around at {ring:.4g}",
                f"one beyond {largest:.4g}, which {num_clients} clients and noise of "
                f"standard deviation {stddev:.4g} may reach",
            )

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Clips, rounds and reduces modulo 2^bits.

        Args:
          values: [d] real numbers.

        Returns:
          [d] of `ring_dtype(bits)`.

        Raises:
          BadInputError: If `values` is not a vector of finite numbers.
        """
        if np.iscomplexobj(values):
            raise BadInputError("values are complex; give real numbers")
        try:
            values = np.asarray(values, np.float64)
        except (TypeError, ValueError) as error:
            raise BadInputError(f"values are no numbers: {error}") from error
        if values.ndim != 1:
            raise BadInputError(f"values have shape {values.shape}; give a vector")
        finite = np.isfinite(values)
        if not finite.all():
            index = int(np.argmin(finite))
            raise BadInputError(
                f"values[{index}] is {values[index]}; it must be finite"
            )
        scaled = np.clip(values, -self.clip, self.clip)
        scaled /= self.step
        np.rint(scaled, out=scaled)
        return to_ring(scaled.astype(np.int64), self.bits)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """The real sum that an encoded sum stands for, [d] float64."""
        return from_ring(total, self.bits) * self.step

    def max_error(self, num_clients: int) -> float:
        """Bound on any coordinate's error in a sum of clipped vectors."""
        return num_clients * self.step / 2

    def rounded_norm(self, norm: float, size: int) -> float:
        """Bound on the L2 norm, once rounded, of vectors of L2 norm `norm`.

        Raises:
          ArgumentError: If an argument is out of range.
        """
        norm, size = check_nonnegative("norm", norm), check_count("size", size, 1)
        return norm + self.step * math.sqrt(size) / 2


def ring_dtype(bits: int) -> np.dtype:
    """The smallest little-endian unsigned type of at least `bits` bits."""
    return np.dtype("<u1" if bits <= 8 else "<u2" if bits <= 16 else "<u4")


def to_ring(integers: np.ndarray, bits: int) -> np.ndarray:
    """Signed integers (int64) modulo 2^bits."""
    values = integers.astype(ring_dtype(bits))
    reduce_in_place(values, bits)
    return values


def reduce_in_place(values: np.ndarray, bits: int) -> None:
    """Reduces unsigned integers of the type `ring_dtype(bits)` modulo 2^bits."""
    if bits < 8 * values.itemsize:
        values &= values.dtype.type(2**bits - 1)


def from_ring(values: np.ndarray, bits: int) -> np.ndarray:
    """The representatives in [-2^(bits-1), 2^(bits-1)), as int64."""
    half = 2 ** (bits - 1)
    return ((values.astype(np.int64) + half) & (2**bits - 1)) - half


def _tail(stddev: float, size: int) -> float:
    """What discrete Gaussian noise exceeds nowhere but with probability 2^-40."""
    # They are sub-Gaussian (Canonne et al. 2020, Lemma 17).
    return stddev * math.sqrt(2 * math.log(2 * size / _WRAP_PROBABILITY))


def _check_ranges(clip: float, bits: int, max_clients: int) -> None:
    check_positive("clip", clip)
    bits = check_count("bits", bits)
    require(MIN_BITS <= bits <= MAX_BITS, "bits", bits, f"{MIN_BITS}..{MAX_BITS}")
    check_count("max_clients", max_clients, 1)
