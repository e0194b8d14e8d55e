"""Gaussian and Laplace noise of cryptographic randomness, safe in floating point.

A value is never added to noise in floating point and shown: the low bits of such a
sum tell the value (Mironov, CCS 2012). What is shown is the exact sum rounded to a
grid whose step hangs on the noise alone; rounding is post-processing, so the sum's
epsilon is the result's.
"""

import math
import os
from collections.abc import Callable
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.noise.normals import (
    BLOCK,
    exponential,
    standard_normal,
    system_normals,
    words,
)
from tff_hdp.noise.words import nonnegative, secure_words
from tff_hdp.runtime.replacements import replace_function

MARKER = "tff_hdp_add_gaussian"

# The grid's step is the noise's standard deviation over this.
STEPS = 64

_MOST_BLOCKS_ALONE = 16
_BITS = {tf.float32: tf.int32, tf.float64: tf.int64}


def add_gaussian(values: Any, stddev: tf.Tensor | float) -> Any:
    """`values` plus independent Gaussian noise, rounded to a grid.

    Tails have no end: a uniform number that is too small for its bits gets more. The
    in-process runtime computes `system_add_gaussian` in its place, which is three
    times as fast.

    Args:
      values: Structure of float32 or float64 tensors.
      stddev: Standard deviation, float [], the same for every number; 0 adds
        nothing.

    Returns:
      A structure like `values`.

    Raises:
      TypeError: If a tensor is of another type.
    """
    return _add(values, stddev, _gaussian_sum)


def add_laplace(values: Any, stddev: tf.Tensor | float) -> Any:
    """`values` plus independent Laplace noise, rounded to a grid.

    Args:
      values: Structure of floating tensors.
      stddev: Standard deviation, sqrt(2) times the scale, float [].

    Returns:
      A structure like `values`.
    """
    return _add(values, stddev, _laplace_sum)


def gaussian(shape: Any, stddev: tf.Tensor | float) -> tf.Tensor:
    """Gaussian noise by itself, float32, on the grid of `add_gaussian`."""
    return add_gaussian(tf.zeros(shape), stddev)


def laplace(shape: Any, stddev: tf.Tensor | float) -> tf.Tensor:
    """Laplace noise by itself, float32, on the grid of `add_laplace`."""
    return add_laplace(tf.zeros(shape), stddev)


def _add(
    values: Any,
    stddev: tf.Tensor | float,
    noised: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> Any:
    """Adds `noised` noise to all tensors of one dtype at once.

    A key and a stream cost something each.
    """
    flat = [tf.convert_to_tensor(t) for t in tf.nest.flatten(values)]
    stddev = tf.cast(stddev, tf.float64)
    found = list(flat)
    for tensor in flat:
        if tensor.dtype not in _BITS:
            name = tensor.dtype.name
            raise TypeError(f"noise is for float32 and float64 tensors, not {name}")
    for dtype in dict.fromkeys(t.dtype for t in flat):
        places = [i for i, t in enumerate(flat) if t.dtype == dtype]
        joined = tf.concat([tf.reshape(flat[i], [-1]) for i in places], 0)
        result = tf.cond(
            stddev > 0.0, lambda x=joined: noised(x, stddev), lambda x=joined: x
        )
        sizes = tf.stack([tf.size(flat[i]) for i in places])
        parts = tf.split(result, sizes, num=len(places))
        for i, part in zip(places, parts, strict=True):
            found[i] = tf.reshape(part, tf.shape(flat[i]))
            found[i].set_shape(flat[i].shape)
    return tf.nest.pack_sequence_as(values, found)


def _gaussian_sum(values: tf.Tensor, stddev: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(_gaussian_sum_bits(values, stddev), values.dtype)


@tf.function(autograph=False, experimental_implements=MARKER, reduce_retracing=True)
def _gaussian_sum_bits(values: tf.Tensor, stddev: tf.Tensor) -> tf.Tensor:
    # What is computed in Python must return no floats.
    total = _rounded_sum(values, standard_normal(tf.size(values)), stddev)
    return tf.bitcast(total, _BITS[values.dtype])


def system_add_gaussian(values: np.ndarray, stddev: np.ndarray) -> np.ndarray:
    """What `add_gaussian` gives, by NumPy in this process.

    Args:
      values: float32 or float64 [n].
      stddev: float64 [], positive.

    Returns:
      The bits of the noised values, int32 or int64 [n].
    """
    result = np.empty_like(values)
    step = stddev / STEPS

    def add(start: int) -> None:
        part = values[start : start + BLOCK].astype(np.float64) / step
        whole = np.floor(part)
        part -= whole
        part += STEPS * system_normals(len(part)).view(np.float64)
        np.rint(part, out=part)
        part += whole
        result[start : start + BLOCK] = part * step

    starts = range(0, len(values), BLOCK)
    # All zones' noise is one draw; clients' chunks draw side by side as it is.
    threads = os.cpu_count() if len(starts) > _MOST_BLOCKS_ALONE else 1
    if threads == 1:
        for start in starts:
            add(start)
    else:
        with futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(add, starts))
    return result.view(_BITS[tf.as_dtype(values.dtype)].as_numpy_dtype)


replace_function(MARKER, system_add_gaussian)


def _laplace_sum(values: tf.Tensor, stddev: tf.Tensor) -> tf.Tensor:
    return _rounded_sum(values, _standard_laplace(tf.size(values)), stddev)


def _rounded_sum(value: tf.Tensor, unit: tf.Tensor, stddev: tf.Tensor) -> tf.Tensor:
    """`value` + stddev `unit` (float64 [size]), to the nearest step."""
    step = stddev / STEPS
    scaled = tf.cast(value, tf.float64) / step
    # Whole steps apart, so that a large value costs the noise no precision.
    whole = tf.floor(scaled)
    total = whole + tf.round(scaled - whole + unit * STEPS)
    return tf.cast(total * step, value.dtype)


def uniform(count: tf.Tensor) -> tf.Tensor:
    """float64 [count] in (0, 1), by 63 bits."""
    words = tf.cast(nonnegative(secure_words(count)), tf.float64)
    return (words + 0.5) * 2.0**-63


def _standard_laplace(count: tf.Tensor) -> tf.Tensor:
    """float64 [count] of variance 1: the difference of two exponentials."""
    first, second = tf.split(exponential(*words(2, 2 * count)), 2)
    return (first - second) * math.sqrt(0.5)
