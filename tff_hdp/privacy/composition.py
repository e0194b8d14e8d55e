"""Composition of rounds, and conversion to (epsilon, delta)."""

import functools
import math

import numpy as np
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from tff_hdp.privacy.mechanisms import Mechanism

_DEFAULT = tuple(RdpAccountant().orders.tolist())
_LOW = (1.011, 1.015, 1.02, 1.03, 1.05, 1.07, *(1.15 + 0.1 * k for k in range(8)))
_HIGH = (72, 80, 96, 112, 160, 192, 224, 320, 384, 448, 640, 768, 896)
# dp_accounting's default orders, with more for very large epsilons and in the
# gaps above 63.
ORDERS = tuple(sorted({*_LOW, *_DEFAULT, *_HIGH}))
# Used where the best of ORDERS is the largest, that is for tiny epsilons.
LARGE_ORDERS = tuple(float(round(2 ** (k / 2))) for k in range(21, 35))

_STEPS_PER_EPSILON = 2e4
_MOST_POINTS = 2e6
_COARSEST_GRID = 1.0
_SMALLEST_PLD_DELTA = 1e-10

Rounds = frozenset[tuple[Mechanism, int]]
Epsilon = tuple[float | None, tuple[str, ...]]


@functools.lru_cache(maxsize=256)
def epsilon_by_rdp(rounds: Rounds, delta: float) -> Epsilon:
    """Composes in Renyi DP, with dp_accounting's conversion to epsilon.

    Where the rounds have pure epsilons that add up to less, it is those.

    Args:
      rounds: Mechanisms with how often each was run, each mechanism once.
      delta: In (0, 1).

    Returns:
      Epsilon, or None; and what the number rests on or why there is none.
    """
    sound, spent = _without_bare_rounds(rounds)
    if spent >= delta:
        return None, (_bare_words(spent),)
    notes = (f"{spent:.3g} of delta pays for rounds without noise",) if spent else ()
    left = delta - spent
    epsilon, order = _convert(sound, ORDERS, left)
    pure = sum(count * mechanism.pure_epsilon for mechanism, count in sound)
    if rounds and pure <= epsilon:
        return pure, (*notes, "epsilon is the sum of the rounds' and needs no delta")
    if order == ORDERS[-1]:
        epsilon = min(epsilon, _convert(sound, LARGE_ORDERS, left)[0])
    if not math.isfinite(epsilon):
        return None, (*notes, "no finite epsilon by RDP")
    return epsilon, notes


def _convert(
    rounds: Rounds, orders: tuple[float, ...], delta: float
) -> tuple[float, float]:
    total = np.zeros(len(orders))
    for mechanism, count in rounds:
        total += count * mechanism.rdp(orders)
    epsilon, order = compute_epsilon(orders, total, delta)
    return float(epsilon), order


def _without_bare_rounds(rounds: Rounds) -> tuple[Rounds, float]:
    """Conditions on there being noise; returns the probability that there is not."""
    sound: dict[Mechanism, int] = {}
    spent = 0.0
    for mechanism, count in rounds:
        given, bare = mechanism.given_noise()
        spent += count * bare
        sound[given] = sound.get(given, 0) + count
    return frozenset(sound.items()), spent


def _bare_words(spent: float) -> str:
    return (
        "no guarantee: with a probability of up to "
        f"{min(spent, 1.0):.3g} some round has no noising participant"
    )


@functools.lru_cache(maxsize=256)
def epsilon_by_pld(rounds: Rounds, delta: float) -> Epsilon:
    """Composes privacy loss distributions, rounded pessimistically.

    Args:
      rounds: Mechanisms with how often each was run, each mechanism once.
      delta: In (0, 1).

    Returns:
      Epsilon, or None; and what the number rests on or why there is none.
    """
    if not rounds:
        return 0.0, ()
    if why := next((m.no_pld for m, _ in rounds if m.no_pld), ""):
        return None, (why,)
    if delta < _SMALLEST_PLD_DELTA:
        return None, (f"PLD is not resolved below delta {_SMALLEST_PLD_DELTA}",)
    _, spent = _without_bare_rounds(rounds)
    if spent >= delta:
        return None, (_bare_words(spent),)
    grid = _grid(rounds, delta)
    if grid > _COARSEST_GRID:
        return None, (f"noise too small for PLD: it would need a grid of {grid:g}",)
    composed = None
    for mechanism, count in rounds:
        pld = mechanism.pld(count, grid)
        composed = pld if composed is None else composed.compose(pld)
    epsilon = float(composed.get_epsilon_for_delta(delta))
    notes = (f"PLD on a grid of {grid:g}, rounded up",)
    if not math.isfinite(epsilon):
        return None, (*notes, "no finite epsilon by PLD")
    return epsilon, notes


def _grid(rounds: Rounds, delta: float) -> float:
    """A grid of 1e-4 times a power of two: relative error 1e-5, bounded size.

    The rounding error falls with the square of the grid over epsilon; it is
    pessimistic on any grid.
    """
    sound, spent = _without_bare_rounds(rounds)
    epsilon = _convert(sound, ORDERS, delta - spent)[0]
    span = max(m.loss_span for m, _ in rounds)
    span = max(span, _convert(sound, ORDERS, 1e-15)[0])
    fine = min(max(epsilon, 1e-3), 1e9) / _STEPS_PER_EPSILON
    coarse = 2 * span / _MOST_POINTS
    return 1e-4 * 2.0 ** math.ceil(math.log2(max(fine, coarse) / 1e-4))
