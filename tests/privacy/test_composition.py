"""What composes rounds takes no mechanism that does not say what it is worth."""

import math

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.composition import (
    LARGE_ORDERS,
    ORDERS,
    epsilon_by_pld,
    epsilon_by_rdp,
)
from tff_hdp.privacy.mechanisms import Gaussian, Laplace, Mechanism
from tff_hdp.privacy.sampled import SampledGaussian
from tff_hdp.privacy.spectrum import Spectrum

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


@pytest.mark.parametrize("name", ["pure_epsilon", "slack"])
@pytest.mark.parametrize("value", [-3.0, math.nan])
def test_what_a_round_costs_besides_is_no_gain(name, value):
    odd = type("Odd", (Gaussian,), {name: value})
    for epsilon in (epsilon_by_rdp, epsilon_by_pld):
        with pytest.raises(ArgumentError, match=r"mechanism is .*; allowed: one whose"):
            epsilon(frozenset([(odd(1.0), 10)]), DELTA)


def test_a_pure_epsilon_has_the_slack_too():
    loose = type("Loose", (Laplace,), {"slack": 5.0})
    epsilon, notes = epsilon_by_rdp(frozenset([(loose(0.1), 1)]), 1e-15)
    exact, _ = epsilon_by_rdp(frozenset([(Laplace(0.1), 1)]), 1e-15)
    assert exact == pytest.approx(0.1, rel=1e-9)
    assert epsilon == pytest.approx(5.1, rel=1e-9)
    assert notes == ("epsilon is the sum of the rounds' and needs no delta",)


def test_a_mechanism_without_a_pld_says_so():
    class Plain(Gaussian):
        pld = Mechanism.pld

    rounds = frozenset([(Plain(1.0), 1)])
    assert epsilon_by_pld(rounds, DELTA) == (None, ("no PLD is written for Plain",))


MECHANISMS = st.one_of(
    st.builds(Gaussian, st.floats(0.05, 500.0)),
    st.builds(
        lambda q, z: SampledGaussian(q, Spectrum((z * z,), (0.0,)), hidden=True),
        st.floats(1e-4, 1.0),
        st.floats(0.3, 50.0),
    ),
    st.builds(Laplace, st.floats(1e-6, 5.0)),
)


@settings(max_examples=200, deadline=None)
@given(
    mechanism=MECHANISMS, count=st.integers(1, 10**6), log_delta=st.floats(-60, -0.01)
)
def test_few_orders_give_the_epsilon_of_all(mechanism, count, log_delta):
    """Only the best few are converted, and dp_accounting finds none that is better."""
    delta = 10.0**log_delta
    found, _ = epsilon_by_rdp(frozenset([(mechanism, count)]), delta)
    epsilon, order = np.inf, None
    for orders in (ORDERS, LARGE_ORDERS):
        if order in (None, ORDERS[-1]):
            rdp = count * mechanism.rdp(orders)
            found_here, order = compute_epsilon(orders, rdp, delta)
            epsilon = min(epsilon, found_here)
    pure = count * mechanism.pure_epsilon
    assert found == min(epsilon, pure)


# As 9 clients of whom each comes with probability .8 and brings a variance of 15.4.
FEW_COME = tuple(
    math.log(math.comb(9, i)) + i * math.log(0.8) + (9 - i) * math.log(0.2)
    for i in range(10)
)


@pytest.mark.parametrize("more", [1e-6, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("hidden", [False, True])
def test_more_noise_never_costs_epsilon(more, hidden):
    """Next to no noise decided all moments, where none at all is paid for by delta."""

    def rounds(least):
        spectrum = Spectrum(tuple(least + 15.4 * i for i in range(10)), FEW_COME)
        return frozenset([(SampledGaussian(0.8, spectrum, hidden=hidden), 15)])

    without, why = epsilon_by_rdp(rounds(0.0), DELTA)
    epsilon, then = epsilon_by_rdp(rounds(more), DELTA)
    assert any("of delta pays for rounds without noise" in words for words in why)
    assert any("of delta pays for rounds with the least" in words for words in then)
    assert epsilon <= 1.05 * without
    exact, _ = epsilon_by_pld(rounds(more), DELTA)
    # Of next to no noise no grid is fine enough.
    assert exact is None if more == 1e-6 else exact <= epsilon


def test_delta_pays_for_no_more_rounds_than_it_can():
    """Half of the rounds have little noise: nobody can leave them to chance."""
    halves = Spectrum((0.01, 9.0), (math.log(0.5), math.log(0.5)))
    rounds = frozenset([(SampledGaussian(0.5, halves, hidden=False), 3)])
    little = frozenset(
        [(SampledGaussian(0.5, Spectrum((0.01,), (0.0,)), hidden=False), 3)]
    )
    epsilon, why = epsilon_by_rdp(rounds, DELTA)
    assert not why
    assert epsilon > 0.9 * epsilon_by_rdp(little, DELTA)[0]
