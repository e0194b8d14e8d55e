"""Gaussian and Laplace noise of cryptographic randomness, safe in floating point.

A value is never added to noise in floating point and shown: the low bits of such a
sum tell the value (Mironov, CCS 2012). What is shown is the exact sum rounded to a
grid whose step depends on the noise alone; rounding is post-processing, so the sum's
epsilon is the result's. Steps are powers of two: what is on one grid adds up exactly.
"""

import functools
import math
import os
from collections.abc import Callable
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.errors import check_nonnegative, require
from tff_hdp.noise.normals import exponential
from tff_hdp.noise.rounded import rounded_sum
from tff_hdp.noise.rounded_by_numpy import system_rounded_sum
from tff_hdp.noise.words import secure_words, traced_once
from tff_hdp.runtime.replacements import replace_function

MARKER = "tff_hdp_add_gaussian"

# So many steps of the grid at most make up a standard deviation of the noise, and at
# least half as many.
STEPS = 64

# Numbers beyond which threads share the work.
_MOST_ALONE = 2**19
_BITS = {tf.float32: tf.int32, tf.float64: tf.int64}
# Standard deviations that can be drawn. The grid's step, a 32nd of the least, must be a
# normal number, as TensorFlow takes smaller ones for 0; in float64 it must divide any
# value that has a square. `STEPS` times any but the greatest must be finite.
_RANGES = {
    tf.float32: (2.0**-121, 2.0**122),
    tf.float64: (2.0**-507, 2.0**1018),
}
_EXPONENT = np.int64(0x7FF0000000000000)


def grid_step(stddev: float) -> float:
    """The step of the grid to which noise comes rounded, a power of two; 0 of none.

    Args:
      stddev: Of the noise.
    """
    if not stddev:
        return 0.0
    return 2.0 * math.ldexp(0.5, math.frexp(stddev)[1]) / STEPS


def add_gaussian(
    values: Any, stddev: tf.Tensor | float, *, each: tf.Tensor | float | None = None
) -> Any:
    """`values` plus independent Gaussian noise, rounded to a grid.

    Tails have no end: a uniform number that is too small for its bits gets more. The
    in-process runtime computes `system_add_gaussian` in its place, which is several
    times as fast.

    Args:
      values: Structure of float32 or float64 tensors.
      stddev: Standard deviation, float [], the same for every number: 0, which adds
        nothing, or 2^-121 to 2^122, for float64 tensors 2^-507 to 2^1018.
      each: That of one party's noise, at most `stddev`, where it is drawn for several
        at once: the grid is then the one that each would have used.

    Returns:
      A structure like `values`.

    Raises:
      ArgumentError: If a standard deviation is out of range.
      InvalidArgumentError: If it is so as a tensor.
      TypeError: If a tensor is of another type.
    """
    return _add(values, stddev, each, _gaussian_sum)


def add_laplace(values: Any, stddev: tf.Tensor | float) -> Any:
    """`values` plus independent Laplace noise, rounded to a grid.

    Args:
      values: Structure of floating tensors.
      stddev: Standard deviation, sqrt(2) times the scale, float []; its range is that
        of `add_gaussian`.

    Returns:
      A structure like `values`.

    Raises:
      ArgumentError: As there.
      InvalidArgumentError: Likewise.
      TypeError: Likewise.
    """
    return _add(values, stddev, None, _laplace_sum)


def _add(
    values: Any,
    stddev: tf.Tensor | float,
    each: tf.Tensor | float | None,
    noised: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
) -> Any:
    """Adds `noised` noise to all tensors of one dtype at once.

    A key and a stream cost something each.
    """
    flat = [tf.convert_to_tensor(t) for t in tf.nest.flatten(values)]
    found = list(flat)
    for tensor in flat:
        if tensor.dtype not in _BITS:
            name = tensor.dtype.name
            raise TypeError(f"noise is for float32 and float64 tensors, not {name}")
    for dtype in dict.fromkeys(t.dtype for t in flat):
        places = [i for i, t in enumerate(flat) if t.dtype == dtype]
        joined = tf.concat([tf.reshape(flat[i], [-1]) for i in places], 0)
        own = one = _checked("stddev", stddev, dtype)
        if each is not None:
            one = _checked_part(_checked("each", each, dtype), own)
        step = _step(one)
        result = tf.cond(
            own > 0.0,
            lambda x=joined, own=own, step=step: noised(x, own / step, step),
            lambda x=joined: x,
        )
        sizes = tf.stack([tf.size(flat[i]) for i in places])
        parts = tf.split(result, sizes, num=len(places))
        for i, part in zip(places, parts, strict=True):
            found[i] = tf.reshape(part, tf.shape(flat[i]))
            found[i].set_shape(flat[i].shape)
    return tf.nest.pack_sequence_as(values, found)


def _checked(name: str, stddev: tf.Tensor | float, dtype: tf.DType) -> tf.Tensor:
    """As float64 []; noise that is not a number, or rounds to 0, would be none."""
    least, most = _RANGES[dtype]
    allowed = f"0, or {least:.3g}..{most:.3g} for {dtype.name}"
    if not tf.is_tensor(stddev):
        number = check_nonnegative(name, float(stddev))
        require(number == 0.0 or least <= number <= most, name, number, allowed)
        return tf.constant(number, tf.float64)
    if stddev.dtype not in _BITS:
        stddev = tf.cast(stddev, tf.float64)
    # By its bits but the sign's: numbers that are not normal equal 0, and a GPU's
    # arithmetic makes them so.
    bits = tf.bitcast(stddev, _BITS[stddev.dtype])
    is_zero = tf.equal(tf.bitwise.bitwise_and(bits, bits.dtype.max), 0)
    stddev = tf.cast(stddev, tf.float64)
    in_range = tf.logical_and(stddev >= least, stddev <= most)
    said = f"the noise's standard deviation is out of range; allowed: {allowed}"
    right = tf.logical_or(is_zero, in_range)
    with tf.control_dependencies([tf.debugging.Assert(right, [said, stddev])]):
        return tf.identity(stddev)


def _checked_part(each: tf.Tensor, together: tf.Tensor) -> tf.Tensor:
    """One party's standard deviation, where there is noise: on a coarser grid none."""
    known = tf.get_static_value(each), tf.get_static_value(together)
    allowed = "above 0, and at most stddev, that of all together"
    if None not in known:
        number, most = map(float, known)
        require(most == 0.0 or 0.0 < number <= most, "each", number, allowed)
    fits = tf.logical_and(each > 0.0, each <= together)
    right = tf.logical_or(tf.equal(together, 0.0), fits)
    said = f"each is out of range; allowed: {allowed}"
    with tf.control_dependencies([tf.debugging.Assert(right, [said, each, together])]):
        return tf.identity(each)


def _step(stddev: tf.Tensor) -> tf.Tensor:
    """`grid_step` of a tensor, float64 []: its exponent alone."""
    power = tf.bitwise.bitwise_and(tf.bitcast(stddev, tf.int64), _EXPONENT)
    return tf.bitcast(power, tf.float64) * (2.0 / STEPS)


def _gaussian_sum(values: tf.Tensor, sigma: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    number = tf.TensorSpec([], tf.float64)
    numbers = tf.TensorSpec([None], values.dtype)
    draw = traced_once(_gaussian_sum_bits, numbers, number, number)
    return tf.bitcast(draw(values, sigma, step), values.dtype)


@tf.function(autograph=False, experimental_implements=MARKER)
def _gaussian_sum_bits(
    values: tf.Tensor, sigma: tf.Tensor, step: tf.Tensor
) -> tf.Tensor:
    # What is computed in Python must return no floats.
    return tf.bitcast(rounded_sum(values, sigma, step), _BITS[values.dtype])


def system_add_gaussian(
    values: np.ndarray, sigma: np.ndarray, step: np.ndarray
) -> np.ndarray:
    """What `add_gaussian` gives, by NumPy in this process.

    Args:
      values: float32 or float64 [n].
      sigma: The standard deviation, in steps, float64 [], positive.
      step: Of the grid, float64 [], a power of two.

    Returns:
      The bits of the noised values, int32 or int64 [n].
    """
    # All zones' noise is one draw; clients' chunks draw side by side as it is.
    threads = os.cpu_count() if len(values) > _MOST_ALONE else 1
    if threads == 1:
        result = system_rounded_sum(values, sigma, step)
    else:
        spans = np.array_split(values, threads)
        add = functools.partial(system_rounded_sum, sigma=sigma, step=step)
        with futures.ThreadPoolExecutor(threads) as pool:
            result = np.concatenate(list(pool.map(add, spans)))
    return result.view(_BITS[tf.as_dtype(values.dtype)].as_numpy_dtype)


replace_function(MARKER, system_add_gaussian)


def _laplace_sum(values: tf.Tensor, sigma: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """`values` plus Laplace noise, to the nearest step."""
    # The difference of two exponentials, of variance 2. It is as near the exact one as
    # `normals.RELATIVE_ERROR` says up to 40 standard deviations out, beyond which a
    # number lies with probability 2^-80.
    first, second = tf.split(exponential(secure_words(2 * tf.size(values))), 2)
    noise = (first - second) * math.sqrt(0.5) * sigma
    scaled = tf.cast(values, tf.float64) / step
    # Whole steps apart, so that a large value costs the noise no precision.
    whole = tf.floor(scaled)
    total = whole + tf.round(scaled - whole + noise)
    return tf.cast(total * step, values.dtype)
