"""What clients train and exchange: all weights, a subset, or measurements of all.

Every compressor is linear and known to clients and server alike, so a secure sum
of compressed updates is the compressed sum (FL-TOP paper, equation 2). A random
one is drawn anew every round from a public seed, by every party for itself.
"""

import abc
import math

import numpy as np
import tensorflow as tf

from tff_hdp.errors import require

# How far a bound for the greatest of random numbers is set from where it is expected.
_DEVIATIONS = 10.0


class Compressor(abc.ABC):
    """How n weights go down to a client and its update comes up.

    Attributes:
      num_weights: n.
      upload_size: Numbers a client sends up in a round.
      download_size: Numbers it receives.
      is_random: Whether it differs from round to round.
    """

    num_weights: int
    upload_size: int
    download_size: int
    is_random: bool = False

    def send(self, weights: tf.Tensor) -> tf.Tensor:
        """What goes down, [download_size], of the global weights [n]."""
        return weights

    def receive(self, sent: tf.Tensor) -> tf.Tensor:
        """The global weights [n], from what went down."""
        return sent

    def trainable(self, round_number: tf.Tensor) -> tf.Tensor | None:
        """The coordinates a client trains, int32 [m]; None for all n."""
        del round_number
        return None

    def compress(self, updates: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """What C clients send up, [C, upload_size], of their updates [C, n]."""
        coordinates = self.trainable(round_number)
        return (
            updates if coordinates is None else tf.gather(updates, coordinates, axis=1)
        )

    @abc.abstractmethod
    def decompress(self, update: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """The update of all weights [n], from an aggregate [upload_size]."""


class Identity(Compressor):
    """FL-STD: every weight is trained and exchanged.

    Args:
      num_weights: n.
    """

    def __init__(self, num_weights: int) -> None:
        self.num_weights = self.upload_size = self.download_size = num_weights

    def decompress(self, update: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        del round_number
        return update


class FixedSubset(Compressor):
    """FL-TOP: the same K weights in every round; the others stay at w_0.

    Args:
      initial: w_0, [n]; clients have it, from a shared seed say.
      coordinates: Which K, distinct and rising; clients are told once.

    Raises:
      ArgumentError: If the coordinates are no whole numbers, none at all, do not
        rise, or leave 0..n-1.
    """

    def __init__(self, initial: np.ndarray, coordinates: np.ndarray) -> None:
        self._coordinates = _check_coordinates(coordinates, len(initial))
        self._initial = initial
        self.num_weights = len(initial)
        self.upload_size = self.download_size = len(self._coordinates)

    def send(self, weights: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return tf.gather(weights, self._coordinates)

    def receive(self, sent: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return tf.tensor_scatter_nd_update(
            tf.constant(self._initial), self._coordinates[:, np.newaxis], sent
        )

    def trainable(self, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        del round_number
        return tf.constant(self._coordinates)

    def decompress(self, update: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        del round_number
        return _spread(update, tf.constant(self._coordinates), self.num_weights)


class RandomSubset(Compressor):
    """FL-BASIC: K weights drawn uniformly anew every round.

    Args:
      num_weights: n.
      size: K.
      seed: Public, in 0..2^31 - 1.
    """

    is_random = True

    def __init__(self, num_weights: int, size: int, seed: int) -> None:
        self.num_weights = self.download_size = num_weights
        self.upload_size = size
        self._seed = seed

    def trainable(self, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return draw_subset(self.num_weights, self.upload_size, self._seed, round_number)

    def decompress(self, update: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return _spread(update, self.trainable(round_number), self.num_weights)


def draw_subset(
    population: int, size: int, seed: int, round_number: tf.Tensor
) -> tf.Tensor:
    """`size` distinct numbers of 0..population - 1, int32, the same for all parties.

    Everyone of the population draws a lot, and the greatest `size` lots win.

    Args:
      population: How many there are.
      size: How many to draw.
      seed: Public, in 0..2^31 - 1.
      round_number: int32 [].

    Returns:
      [size], rising.
    """
    # `index_shuffle` would be cheaper, but prefers some numbers to others.
    lots = tf.random.stateless_uniform(
        [population], [seed, round_number], minval=None, maxval=None, dtype=tf.int32
    )
    return _greatest(lots, size)


def _greatest(lots: tf.Tensor, size: int) -> tf.Tensor:
    """Where the `size` greatest of int32 lots [n], drawn uniformly, are; rising."""
    n = lots.shape[0]
    # Among those over a bound that hardly ever keeps too many out, the few least are
    # told sooner than the many greatest of all.
    share = size / n
    likely = share + _DEVIATIONS * math.sqrt(share * (1 - share) / n)
    if likely >= 1.0:
        return tf.sort(tf.math.top_k(lots, size).indices)
    bound = tf.constant(round(2**31 - 2**32 * likely), lots.dtype)
    places = tf.where(lots >= bound)[:, 0]

    def without_least() -> tf.Tensor:
        found = tf.gather(lots, places)
        surplus = tf.size(found) - size
        # Of the bits of a number, ~x turns round the order without overflow.
        dropped = tf.math.top_k(tf.bitwise.invert(found), surplus).indices
        kept = tf.tensor_scatter_nd_update(
            tf.ones_like(found, tf.bool),
            dropped[:, tf.newaxis],
            tf.zeros_like(dropped, tf.bool),
        )
        return tf.boolean_mask(tf.cast(places, tf.int32), kept)

    indices = tf.cond(
        tf.size(places) >= size,
        without_least,
        lambda: tf.sort(tf.math.top_k(lots, size).indices),
    )
    return tf.ensure_shape(indices, [size])


def _spread(values: tf.Tensor, coordinates: tf.Tensor, size: int) -> tf.Tensor:
    return tf.scatter_nd(coordinates[:, tf.newaxis], values, [size])


def _check_coordinates(coordinates: np.ndarray, num_weights: int) -> np.ndarray:
    """Returns them as int32; refuses others than distinct and rising ones."""
    found = np.asarray(coordinates)
    ok = found.ndim == 1 and found.size > 0 and found.dtype.kind in "iu"
    # Differences of unsigned numbers are never negative.
    ok = ok and np.all(np.diff(found.astype(np.int64)) > 0)
    ok = ok and 0 <= found[0] <= found[-1] < num_weights
    require(ok, "coordinates", found, f"rising ones in 0..{num_weights - 1}")
    return found.astype(np.int32)
