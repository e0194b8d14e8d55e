"""Whole numbers of clients out of shares."""

import math
from collections.abc import Sequence


def largest_remainder(exact: Sequence[float]) -> tuple[int, ...]:
    """Rounds to whole numbers whose sum is the rounded sum.

    Args:
      exact: Numbers >= 0.

    Returns:
      Each rounded down, or up for those with the largest fractions.
    """
    counts = [math.floor(x + 1e-9) for x in exact]
    missing = round(sum(exact)) - sum(counts)
    order = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in order[: max(missing, 0)]:
        counts[i] += 1
    return tuple(counts)
