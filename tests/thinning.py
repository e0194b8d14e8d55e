"""Which cases of a large product run always, and which with the long studies."""

import itertools

import pytest


def thinned(*axes, every):
    """Parameters of a product: one case in `every` as it is, the others slow.

    Cases are taken along diagonals, so that each value of an axis with at least
    `every` values beside it is met.
    """
    cases = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = [axis[i] for axis, i in zip(axes, places, strict=True)]
        marks = [pytest.mark.slow] * (sum(places) % every > 0)
        cases.append(pytest.param(*values, marks=marks))
    return cases
