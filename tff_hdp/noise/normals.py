"""Standard normal numbers out of secure words, to the end of their tails.

By the transform of Box and Muller (1958). A radius takes 63 random bits, and more
where those are few: tails have no end.
"""

import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tff_hdp.noise.words import (
    fill_with_words,
    nonnegative,
    secure_words,
    system_words,
    traced_once,
)
from tff_hdp.runtime.replacements import replace_function

# By how much the probability of any result of one number may differ from the exact
# mechanism's, as a factor 1 +- this; `tff_hdp.privacy.composition` accounts for it.
# Logarithm, square root, tangent or cosine, their product and the sum are each right to
# a few of their last places (2^-52 of at most 20 STEPS < 2^11 steps), so a result's
# bounds lie within 2^-39 of a step of where they should, 20 standard deviations out
# (where a number lies with probability 2^-292). One draw for m parties is on the grid
# of each, where its bounds are off sqrt(m) times as far: it counts as m numbers.
RELATIVE_ERROR = 2.0**-38

MARKER = "tff_hdp_standard_normal"
_LOG_2 = math.log(2.0)
# Radii by so many bits are drawn with as many again.
_FEW = 2**45
# Numbers drawn at once: about what a core's cache holds with the room they take.
BLOCK = 2**16


def standard_normal(count: tf.Tensor | int) -> tf.Tensor:
    """Standard normal numbers, drawn anew at every execution.

    The in-process runtime computes `system_normals` in its place, which is several
    times as fast.

    Args:
      count: How many, int32 [].

    Returns:
      float64 [count].
    """
    count = tf.convert_to_tensor(count, tf.int32)
    bits = traced_once(_standard_normal_bits)(count)
    return tf.bitcast(bits, tf.float64)


@tf.function(
    input_signature=[tf.TensorSpec([], tf.int32)],
    autograph=False,
    experimental_implements=MARKER,
)
def _standard_normal_bits(count: tf.Tensor) -> tf.Tensor:
    # What is computed in Python must return no floats.
    half = (count + 1) // 2
    pair = box_muller(*words(2, half))
    return tf.bitcast(tf.reshape(pair, [-1])[:count], tf.int64)


def box_muller(high: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """Two normal numbers for two words.

    Args:
      high: Of the radius, by its last 63 bits, int64 [n].
      turn: Of the angle, int64 [n].

    Returns:
      float64 [2, n].
    """
    radius = tf.sqrt(2.0 * exponential(high))
    angle = tf.cast(turn, tf.float64) * (math.pi * 2.0**-63)
    return tf.stack([radius * tf.cos(angle), radius * tf.sin(angle)])


def system_normals(count: np.ndarray) -> np.ndarray:
    """What `standard_normal` gives, by NumPy in this process.

    Args:
      count: How many, int32 [].

    Returns:
      The bits of float64 numbers, int64 [count].
    """
    blocks = [np.empty(0), *map(np.copy, normal_blocks(int(count), 1.0))]
    return np.concatenate(blocks).view(np.int64)


replace_function(MARKER, system_normals)


def normal_blocks(count: int, stddev: float) -> Iterator[np.ndarray]:
    """Normal numbers by NumPy, in parts that stay in a core's cache.

    Args:
      count: How many in all.
      stddev: Their standard deviation.

    Yields:
      float64 [BLOCK], or what is left; memory that the next part takes again.
    """
    most = min(count + count % 2, BLOCK)
    numbers, room, words = np.empty(most), np.empty(most // 2), np.empty(most, np.int64)
    for start in range(0, count, BLOCK):
        half = (min(count - start, BLOCK) + 1) // 2
        pair = numbers[: 2 * half].reshape(2, half)
        fill_with_words(words[: 2 * half])
        high_and_turn = words[: 2 * half].reshape(2, half)
        _box_muller(*high_and_turn, stddev, out=pair, room=room[:half])
        yield numbers[: min(count - start, BLOCK)]


def _box_muller(
    high: np.ndarray,
    turn: np.ndarray,
    stddev: float,
    *,
    out: np.ndarray,
    room: np.ndarray,
) -> None:
    """Two normal numbers for two words [n] into float64 [2, n]; the words are used up.

    The angle is one of the first quadrant by 62 bits and two signs. Its cosine and sine
    come from the tangent of its half, for which NumPy has vector instructions. Every
    step goes to memory at hand: new memory would cost a third of the time.
    """
    scale = np.multiply(_exponentials(high, out=room), 2.0 * stddev**2, out=room)
    np.sqrt(scale, out=scale)
    squared, tangent = out
    angle = np.bitwise_and(turn, 2**62 - 1, out=high)
    np.add(angle, 0.5, out=tangent)
    tangent *= math.pi / 4 * 2.0**-62
    np.tan(tangent, out=tangent)
    np.multiply(tangent, tangent, out=squared)
    scale /= np.add(squared, 1.0, out=high.view(np.float64))
    tangent *= 2.0
    tangent *= scale
    np.subtract(1.0, squared, out=squared)
    squared *= scale
    np.copysign(squared, turn.view(np.float64), out=squared)
    turn <<= 1
    np.copysign(tangent, turn.view(np.float64), out=tangent)


def _exponentials(high: np.ndarray, *, out: np.ndarray) -> np.ndarray:
    """Exponential numbers of mean 1, by a word each and more for small ones."""
    first = np.bitwise_and(high, 2**63 - 1, out=high)
    np.add(first, 0.5, out=out)
    out *= 2.0**-63
    np.log(out, out=out)
    np.negative(out, out=out)
    if first.min() < _FEW:
        few = np.flatnonzero(first < _FEW)
        low = (system_words(few.size) & (2**63 - 1)) + 0.5
        out[few] = -np.log((first[few] + low * 2.0**-63) * 2.0**-63)
        none = np.flatnonzero(first == 0)
        if none.size:
            # What lies beyond 63 zeros is an exponential number again.
            again = _exponentials(system_words(none.size), out=np.empty(none.size))
            out[none] = 63.0 * _LOG_2 + again
    return out


def exponential(high: tf.Tensor) -> tf.Tensor:
    """Exponential numbers of mean 1, by a word each and more for small ones.

    -log of a uniform number of 63 bits, or of 126 where the first 63 are few.

    Args:
      high: int64 [n].

    Returns:
      float64 [n].
    """
    first = nonnegative(high)
    found = -tf.math.log((tf.cast(first, tf.float64) + 0.5) * 2.0**-63)
    few = tf.where(first < _FEW)
    return tf.cond(
        tf.size(few) > 0,
        lambda: tf.tensor_scatter_nd_update(
            found, few, _by_more_bits(tf.gather_nd(first, few))
        ),
        lambda: found,
    )


def _by_more_bits(first: tf.Tensor) -> tf.Tensor:
    """Exponential numbers by 63 bits that are known, int64 [n], and 63 more.

    Where all that are known are zero (once in 2^63 numbers), what lies beyond
    63 log(2) is an exponential number again, and drawn anew.
    """

    def draw(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        (low,) = words(1, tf.size(first))
        whole = tf.cast(first, tf.float64)
        uniform = whole + (tf.cast(nonnegative(low), tf.float64) + 0.5) * 2.0**-63
        return -tf.math.log(uniform * 2.0**-63), tf.equal(first, 0)

    def further(
        beyond: tf.Tensor, found: tf.Tensor, open_: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        beyond += 63.0 * _LOG_2
        (high,) = words(1, tf.size(found))
        more, again = draw(nonnegative(high))
        return beyond, tf.where(open_, beyond + more, found), open_ & again

    _, found, _ = tf.while_loop(
        lambda beyond, found, open_: tf.reduce_any(open_),
        further,
        (tf.constant(0.0, tf.float64), *draw(first)),
    )
    return found


def words(rows: int, count: tf.Tensor) -> list[tf.Tensor]:
    """`rows` tensors of secure words, int64 [count]."""
    return tf.unstack(tf.reshape(secure_words(rows * count), [rows, count]))
