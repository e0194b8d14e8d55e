"""Standard normal numbers out of secure words, to the end of their tails.

By the transform of Box and Muller (1958). A radius takes 63 random bits, and more
where those are few: tails have no end.
"""

import math

import numpy as np
import tensorflow as tf

from tff_hdp.noise.words import (
    nonnegative,
    secure_words,
    system_words,
    traced_once,
)
from tff_hdp.runtime.replacements import replace_function

# By how much the probability of any result of one number may differ from the exact
# mechanism's, as a factor 1 +- this; `tff_hdp.privacy.composition` accounts for it.
# Logarithm, square root, cosine, their product and the sum are each right to a few of
# their last places (2^-52 of at most 20 STEPS < 2^11 steps), so a result's bounds lie
# within 2^-39 of a step of where they should, 20 standard deviations out (where a
# number lies with probability 2^-292). One draw for m parties is on the grid of each,
# where its bounds are off sqrt(m) times as far: it counts as m numbers.
RELATIVE_ERROR = 2.0**-38

MARKER = "tff_hdp_standard_normal"
_LOG_2 = math.log(2.0)
# Radii by so many bits are drawn with as many again.
_FEW = 2**45
# Pairs computed at once: about what a core's cache holds with the room they take.
BLOCK = 2**12


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
    pair = box_muller(*tf.unstack(tf.reshape(secure_words(2 * half), [2, half])))
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
    count = int(count)
    drawn = system_words(count + count % 2).reshape(2, -1)
    numbers = np.empty(drawn.shape)
    for start in range(0, drawn.shape[1], BLOCK):
        here = np.s_[:, start : start + BLOCK]
        numbers[here] = system_box_muller(*drawn[here])
    return numbers.reshape(-1)[:count].view(np.int64)


replace_function(MARKER, system_normals)


def system_box_muller(high: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """What `box_muller` gives, by NumPy."""
    radius = np.sqrt(2.0 * _exponentials(high))
    angle = turn * (math.pi * 2.0**-63)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def _exponentials(high: np.ndarray) -> np.ndarray:
    """What `exponential` gives, by NumPy."""
    first = high & (2**63 - 1)
    found = -np.log((first + 0.5) * 2.0**-63)
    few = np.flatnonzero(first < _FEW)
    if few.size:
        low = (system_words(few.size) & (2**63 - 1)) + 0.5
        found[few] = -np.log((first[few] + low * 2.0**-63) * 2.0**-63)
        none = np.flatnonzero(first == 0)
        if none.size:
            # What lies beyond 63 zeros is an exponential number again.
            found[none] = 63.0 * _LOG_2 + _exponentials(system_words(none.size))
    return found


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
        low = secure_words(tf.size(first))
        whole = tf.cast(first, tf.float64)
        uniform = whole + (tf.cast(nonnegative(low), tf.float64) + 0.5) * 2.0**-63
        return -tf.math.log(uniform * 2.0**-63), tf.equal(first, 0)

    def further(
        beyond: tf.Tensor, found: tf.Tensor, open_: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        beyond += 63.0 * _LOG_2
        high = secure_words(tf.size(found))
        more, again = draw(nonnegative(high))
        return beyond, tf.where(open_, beyond + more, found), open_ & again

    _, found, _ = tf.while_loop(
        lambda beyond, found, open_: tf.reduce_any(open_),
        further,
        (tf.constant(0.0, tf.float64), *draw(first)),
    )
    return found
