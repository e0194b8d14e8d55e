"""What composes rounds takes no mechanism that does not say what it is worth."""

import numpy as np
import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.composition import ORDERS, epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.mechanisms import Gaussian, Mechanism

DELTA, SHAPE = 1e-5, [len(ORDERS)]


@pytest.mark.parametrize(
    "moments",
    [
        np.where(np.array(ORDERS) > 50, np.nan, 1.0),
        np.array(1.0),
        -np.ones_like(ORDERS),
    ],
    ids=["nan", "scalar", "negative"],
)
def test_a_mechanism_without_its_moments_is_refused(moments):
    """dp_accounting takes the least epsilon, and NaN for the least: it was 0."""

    class Odd(Mechanism):
        def rdp(self, orders):
            return moments

    with pytest.raises(ArgumentError, match=r"mechanism is .*; allowed: one whose div"):
        epsilon_by_rdp(frozenset([(Odd(), 10)]), DELTA)


def test_a_mechanism_without_a_pld_says_so():
    class Plain(Gaussian):
        pld = Mechanism.pld

    rounds = frozenset([(Plain(1.0), 1)])
    assert epsilon_by_pld(rounds, DELTA) == (None, ("no PLD is written for Plain",))
