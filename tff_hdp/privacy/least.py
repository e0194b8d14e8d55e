"""Least values: of a sum of what rises and what falls, and that meet a target."""

import heapq
import math
from collections.abc import Callable

from tff_hdp.privacy.planned_noise import LARGEST_MULTIPLIER, SMALLEST_MULTIPLIER

# Share of the least sum by which what is found may exceed it.
TOLERANCE = 0.01
# Relative error of the least variance that meets a target.
_NEAR = 5e-5
# The factor by which an argument to try next differs from the last one, at most.
_FARTHEST = 10.0
_LEAST, _MOST = SMALLEST_MULTIPLIER**2, LARGEST_MULTIPLIER**2


def least_sum(falls: Callable[[float], float], price: float, low: float) -> float:
    """Where price * t + falls(t) is least, for t >= low.

    `falls` need not be convex, nor continuous: between a < b the sum is at least
    price * a + falls(b), and what that leaves possible is split until no part can be
    better by more than `TOLERANCE`. Then the neighbourhood of the best is searched
    once more.

    Args:
      falls: A function of t that does not rise with it; infinite where t is too small.
      price: Of t, > 0.
      low: The least t allowed, > 0.

    Returns:
      t; infinite where `falls` is for every t up to 1e12.
    """
    values: dict[float, float] = {}

    def fallen(t: float) -> float:
        if t not in values:
            values[t] = falls(t)
        return values[t]

    def total(t: float) -> float:
        return price * t + fallen(t)

    best = low
    while not math.isfinite(fallen(best)):
        best *= 16.0
        if best > _MOST:
            return math.inf
    high = max(total(best) / price, best)
    parts = [(price * low + fallen(high), low, high)]
    while parts:
        bound, a, b = heapq.heappop(parts)
        best = min(best, b, key=total)
        if bound >= (1.0 - TOLERANCE) * total(best) or b <= a * (1.0 + _NEAR):
            break
        middle = math.sqrt(a * b) if b > 4.0 * a else (a + b) / 2.0
        best = min(best, middle, key=total)
        for start, end in ((a, middle), (middle, b)):
            heapq.heappush(parts, (price * start + fallen(end), start, end))
    return _refined(total, best, sorted(values))


def _refined(total: Callable[[float], float], best: float, known: list[float]) -> float:
    """The best t between the neighbours of the best known."""
    from scipy import optimize

    i = known.index(best)
    a, b = known[max(i - 1, 0)], known[min(i + 1, len(known) - 1)]
    if not (b > a and math.isfinite(total(a))):
        return best
    options = {"xatol": 1e-3 * best, "maxiter": 10}
    found = optimize.minimize_scalar(
        total, bounds=(a, b), method="bounded", options=options
    )
    return min(best, float(found.x), key=total)


def least_below(
    epsilon: Callable[[float], float], target: float, guess: float = 1.0
) -> float:
    """The least variance with epsilon(variance) <= target, within 5e-5 above.

    Args:
      epsilon: Falls with the variance, which is >= 2^-20.
      target: Epsilon > 0.
      guess: Near the result, if it is known.

    Returns:
      The variance; infinite where 1e12 is too little, 2^-20 where less is enough.
    """

    def excess(log_variance: float) -> float:
        return log_excess(epsilon(math.exp(log_variance)), target)

    bottom, top = math.log(_LEAST), math.log(_MOST)
    at = min(max(math.log(max(guess, _LEAST)), bottom), top)
    # Between a variance that is too little and one that is enough; by secants, as
    # epsilon is near a power of the variance.
    low, high, slope, tries = -math.inf, math.inf, -0.6, 0
    found = excess(at)
    while True:
        tries += 1
        if found > 0.0:
            low = at
        else:
            high = at
        if low >= top:
            return math.inf
        if high <= bottom or -_NEAR / 2 < found <= 0.0 or high - low <= _NEAR:
            return math.exp(high)
        step = min(max(-(found + _NEAR / 4) / slope, -3.0), 3.0)
        # Secants creep where epsilon hardly falls, as other noise is most of it.
        creeps = tries >= 6 and tries % 2 == 0
        if creeps:
            step = math.copysign(3.0, found)
        then = min(max(at + step, bottom), top)
        if math.isfinite(high - low) and (creeps or not low < then < high):
            then = (low + high) / 2.0
        before, at, found = (at, found), then, excess(then)
        if at != before[0]:
            slope = min((found - before[1]) / (at - before[0]), -1e-3)


def log_excess(epsilon: float, target: float) -> float:
    """ln(epsilon / target), also a number where epsilon is 0 or infinite."""
    return math.log(max(min(epsilon, 1e300), 1e-300) / target)


def aimed(tried: list[tuple[float, float]], wanted: float) -> float:
    """Where to try next for a rising function's value to be `wanted`.

    Args:
      tried: Arguments > 0 and values >= 0, maybe infinite, the last one last; the
        oldest are dropped that contradict those after them.
      wanted: > 0.

    Returns:
      As if values were proportional to arguments, or steeper where they were found to
      be; between those tried that are nearest.
    """
    while True:
        below = max((each for each in tried if each[1] <= wanted), default=None)
        above = min((each for each in tried if each[1] > wanted), default=None)
        if not (below and above) or below[0] < above[0]:
            break
        del tried[0]
    argument, value = tried[-1]
    least = below[0] if below else 0.0
    most = above[0] if above else math.inf
    if 0 < value < math.inf:
        ends = (below, above) if below and above else tried[-2:]
        change = (wanted / value) ** (1.0 / _steepness(*ends))
        found = argument * min(max(change, 1.0 / _FARTHEST), _FARTHEST)
        if least <= found <= most:
            return found
    if below and above:
        return math.sqrt(least * most)
    return 2.0 * least if below else 0.5 * most


def _steepness(*points: tuple[float, float]) -> float:
    """By how much logarithms of values rise with those of arguments, 1/2 or more."""
    first, last = points[0], points[-1]
    known = all(0 < value < math.inf for _, value in points)
    if first[0] == last[0] or not known:
        return 1.0
    found = math.log(last[1] / first[1]) / math.log(last[0] / first[0])
    return max(found, 0.5)
