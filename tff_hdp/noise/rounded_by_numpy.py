"""Gaussian noise on a grid by float32 where that settles it, by NumPy.

What is shown of a normal number is the step of the grid that it rounds to. 32 bits of
its radius, 32 of its turn and arithmetic in float32 settle that for all but one number
in hundreds; only those get the rest of their bits, and float64. The result is the one
that all bits of all numbers would give.
"""

import math

import numpy as np

from tff_hdp.noise.normals import system_box_muller
from tff_hdp.noise.words import system_words

# Pairs of numbers rounded at once: what a core's cache holds with the room they take.
PAIRS = 40_000
# An angle is right to 2^-20 and all that follows to a few parts in 2^24, so a number
# is to a third of this times its radius.
_ANGLE_ERROR = 2.0**-18
# The uniform number of a radius is right to 2^-24, its logarithm to that over itself.
_UNIFORM_ERROR = 2.0**-22


def system_rounded_sum(
    values: np.ndarray, sigma: np.ndarray, step: np.ndarray
) -> np.ndarray:
    """`values` plus Gaussian noise, to the nearest step.

    Args:
      values: float32 or float64 [n].
      sigma: The noise's standard deviation, in steps, float64 [], positive.
      step: Of the grid, float64 [], a power of two.

    Returns:
      An array like `values`.
    """
    size = len(values)
    if size % 2:
        values = np.append(values, values.dtype.type(0))
    result = np.empty_like(values)
    given, sums = values.reshape(2, -1), result.reshape(2, -1)
    codes = system_words(given.shape[1]).view(np.int32).reshape(2, -1)
    pairs = settle(given, codes, sigma, step, out=sums)
    sums[:, pairs] = _by_all_bits(given[:, pairs], codes[:, pairs], sigma, step)
    return result[:size]


def settle(
    values: np.ndarray,
    codes: np.ndarray,
    sigma: np.ndarray,
    step: np.ndarray,
    *,
    out: np.ndarray,
) -> np.ndarray:
    """Finds what values plus noise round to, as far as float32 tells.

    Args:
      values: float32 or float64 [2, n].
      codes: The first bits of n radii and n turns, int32 [2, n].
      sigma: Of the noise, float64 [].
      step: Of the grid, float64 [].
      out: Like `values`; takes the rounded sums.

    Returns:
      The pairs of which one at least may round to another step, int64 [unsettled].
    """
    most = min(values.shape[1], PAIRS)
    # Memory taken again for every part: new memory would cost as much as the
    # arithmetic. Not rows of one array, which NumPy takes for overlapping.
    floats = [np.empty(most, np.float32) for _ in range(4)]
    room = np.empty(most, values.dtype)
    unsettled = [np.empty(0, np.int64)]
    # A radius of 0 has no bounds, and what leaves float32 is not settled by it.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for start in range(0, values.shape[1], PAIRS):
            here = np.s_[:, start : start + PAIRS]
            part, sums = values[here], out[here]
            x, y, error, far = (array[: part.shape[1]] for array in floats)
            _draw(codes[here], float(sigma), x, y, error, far)
            _round(x, part[0], step, sums[0], scaled=room[: len(x)], far=far)
            # The other number's distance takes the place of this one's noise.
            _round(y, part[1], step, sums[1], scaled=room[: len(x)], far=x)
            error += np.maximum(far, x, out=far)
            # Not `error > 0.5`, which is false of what is not a number.
            unsettled.append(start + np.flatnonzero(~(error <= 0.5)))
    return np.concatenate(unsettled)


def _draw(
    codes: np.ndarray,
    sigma: float,
    x: np.ndarray,
    y: np.ndarray,
    error: np.ndarray,
    radius: np.ndarray,
) -> None:
    """Into x and y normal numbers for codes [2, n], into `error` how wrong they can be.

    `radius` is room; all are float32 [n].
    """
    uniform = error
    np.copyto(uniform, codes[0])
    uniform *= 2.0**-32
    uniform += 0.5
    np.log(uniform, out=radius)
    radius *= 2.0 * sigma**2
    # Not times -2, which has the radius -0 and its error minus infinity.
    np.sqrt(np.abs(radius, out=radius), out=radius)
    turn = y
    np.copyto(turn, codes[1])
    turn *= 2.0 * math.pi * 2.0**-32
    np.cos(turn, out=x)
    np.sin(turn, out=y)
    x *= radius
    y *= radius
    uniform *= radius
    np.divide(_UNIFORM_ERROR * sigma**2, uniform, out=error)
    radius *= _ANGLE_ERROR
    error += radius


def _round(
    noise: np.ndarray,
    values: np.ndarray,
    step: np.ndarray,
    total: np.ndarray,
    *,
    scaled: np.ndarray,
    far: np.ndarray,
) -> None:
    """Into `total` values plus noise, to the nearest step; into `far` how far that was.

    The distance is in steps, the noise used up, `scaled` room for values.
    """
    # Whole steps apart, so that a large value costs the noise no precision.
    np.multiply(values, float(1.0 / step), out=scaled)
    np.floor(scaled, out=total)
    np.subtract(scaled, total, out=far, casting="same_kind")
    far += noise
    np.rint(far, out=noise)
    far -= noise
    np.abs(far, out=far)
    total += noise
    total *= float(step)


def _by_all_bits(
    values: np.ndarray, codes: np.ndarray, sigma: np.ndarray, step: np.ndarray
) -> np.ndarray:
    """Sums of some pairs, float64 [2, m], of which the first bits are known."""
    high, turn = codes.astype(np.int64)
    more, further = system_words(2 * len(high)).reshape(2, -1)
    # Of a radius the last 63 bits count.
    high = ((high + 2**31) << 31) | (more & (2**31 - 1))
    turn = (turn << 32) | (further & (2**32 - 1))
    scaled = values.astype(np.float64) / step
    whole = np.floor(scaled)
    noise = sigma * system_box_muller(high, turn)
    return (whole + np.rint(scaled - whole + noise)) * step
