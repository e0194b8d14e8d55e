"""Composition of rounds, and conversion to (epsilon, delta)."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from tff_hdp.errors import require
from tff_hdp.privacy.mechanisms import Mechanism

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import (
        PrivacyLossDistribution as Pld,
    )

# dp_accounting's default orders, with more for very large epsilons and in the gaps
# above 63.
ORDERS = (
    *(1.011, 1.015, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15),
    *(round(1.2 + 0.05 * k, 2) for k in range(15)),
    *(round(2.0 + 0.1 * k, 1) for k in range(90)),
    *map(float, (*range(11, 64), 72, 80, 96, 112, 128, 160, 192, 224, 256, 320)),
    *(384.0, 448.0, 512.0, 640.0, 768.0, 896.0, 1024.0),
)
# Used where the best of ORDERS is the largest, that is for tiny epsilons.
LARGE_ORDERS = tuple(float(round(2 ** (k / 2))) for k in range(21, 35))

_STEPS_PER_EPSILON = 2e4
_STEPS_PER_ROUND = 8
COARSEST_GRID = 1.0
_SMALLEST_PLD_DELTA = 1e-10
# Of ten times as many, on a grid fine enough for each, some do not come back.
MOST_PLD_ROUNDS = 10**6

# By how much the probability of any result of one number that `tff_hdp.noise` draws
# may differ from the exact mechanism's, as a factor 1 +- this.
RELATIVE_ERROR = 2.0**-38
# Of epsilon, the least share for whose sake delta pays for rounds that have noise: for
# less, an account is the plain one of all rounds.
_WORTH = 0.05
# Shares of delta: kept for what finite precision costs, and of it for each direction.
_KEPT, _TAIL = 1e-5, 1e-6

# So many orders about the best are converted by dp_accounting.
_CLOSEST = 8

Rounds = frozenset[tuple[Mechanism, int]]
Epsilon = tuple[float | None, tuple[str, ...]]


def gathered(rounds: Iterable[tuple[Mechanism, int]]) -> Rounds:
    """Rounds with each mechanism once, and how often it was run in all."""
    counts: dict[Mechanism, int] = {}
    for mechanism, count in rounds:
        counts[mechanism] = counts.get(mechanism, 0) + count
    return frozenset(counts.items())


@functools.lru_cache(maxsize=256)
def epsilon_by_rdp(rounds: Rounds, delta: float, numbers: float = 0.0) -> Epsilon:
    """Composes in Renyi DP, with dp_accounting's conversion to epsilon.

    Delta pays for rounds without noise, and for those with the least noise where that
    saves a twentieth of epsilon: a rare round of little noise may decide all moments,
    and were it bare would decide none. Where the rounds have pure epsilons that add up
    to less, it is those.

    Args:
      rounds: Mechanisms with how often each was run, each mechanism once.
      delta: In (0, 1).
      numbers: How many numbers of noise are drawn in all; see `precision_loss`.

    Returns:
      Epsilon, or None; and what the number rests on or why there is none.
    """
    if not rounds:
        return 0.0, ()
    sound, spent = _without_bare_rounds(rounds)
    if spent >= delta:
        return None, (_bare_words(spent),)
    notes = (f"{spent:.3g} of delta pays for rounds without noise",) if spent else ()
    epsilon = _as_computed(rounds, delta, numbers, _converter(sound, spent))
    before, more = sound, 1
    while True:
        noisier, spent = _without_bare_rounds(rounds, more)
        if noisier == before or spent >= delta:
            break
        found = _as_computed(rounds, delta, numbers, _converter(noisier, spent))
        if found < (1.0 - _WORTH) * epsilon:
            words = f"{spent:.3g} of delta pays for rounds with the least noise"
            epsilon, notes = found, (words,)
        elif math.isfinite(epsilon):
            break
        before, more = noisier, 2 * more
    pure = sum(count * (m.pure_epsilon + m.slack) for m, count in sound)
    pure += 2.0 * numbers * RELATIVE_ERROR
    if pure <= epsilon and math.isfinite(pure):
        return pure, (*notes, "epsilon is the sum of the rounds' and needs no delta")
    if not math.isfinite(epsilon):
        return None, (*notes, "no finite epsilon by RDP")
    return epsilon, notes


@functools.lru_cache(maxsize=256)
def epsilon_by_pld(rounds: Rounds, delta: float, numbers: float = 0.0) -> Epsilon:
    """Composes privacy loss distributions, rounded up; else as `epsilon_by_rdp`.

    The less of two: of the rounds, and of rounds that show more, which are bounded by
    other means.
    """
    if not rounds:
        return 0.0, ()
    more = gathered((m.if_more_is_seen, count) for m, count in rounds)
    ways = dict.fromkeys((rounds, more))
    found = [_composed_epsilon(way, delta, numbers) for way in ways]
    known = [pair for pair in found if pair[0] is not None]
    return min(known, default=found[0], key=lambda pair: pair[0])


def composed_pld(rounds: Rounds, grid: float) -> "Pld":
    """dp_accounting's PLD of all rounds, of which there are some, on one grid."""
    plds = (mechanism.pld(count, grid) for mechanism, count in rounds)
    return functools.reduce(lambda first, second: first.compose(second), plds)


def finest_grid(rounds: Rounds) -> float:
    """The finest grid on which PLDs of these rounds have a size that is bounded.

    Infinite where noise is so small that no grid is coarse enough.
    """
    sound, _ = _without_bare_rounds(rounds)
    span = max(m.loss_span for m, _ in rounds)
    span = max(span, _convert(sound, ORDERS, 1e-15)[0])
    return 2 * span / min(m.most_points for m, _ in rounds)


def precision_loss(numbers: float, epsilon: float, delta: float) -> float:
    """By how much noise of finite precision may exceed an epsilon, at one data set.

    Given what was drawn before, each number's law is within a factor 1 +- e of the
    ideal one, e = `RELATIVE_ERROR`. The logarithm of the ratio of all N is then a sum
    of terms within +-e whose conditional means are at most e^2 (a Kullback-Leibler
    divergence is at most the chi-squared one), so it exceeds e sqrt(2 N t) + N e^2
    with probability at most e^-t (Azuma and Hoeffding), and never N e. Both
    neighbours' results may be off, in opposite directions, and what one of them leaves
    to chance is paid e^epsilon times.

    Args:
      numbers: N.
      epsilon: What the exact mechanism's may be, at most.
      delta: In (0, 1).

    Returns:
      The loss. Twice it more epsilon, and e^loss times the delta and 2e-6 of it more,
      hold for what is computed.
    """
    t = math.log(1.0 / (_TAIL * delta)) + epsilon
    chance = RELATIVE_ERROR * math.sqrt(2.0 * numbers * t) * (1 + 1e-9)
    return min(chance + 2.0 * numbers * RELATIVE_ERROR**2, numbers * RELATIVE_ERROR)


def _composed_epsilon(rounds: Rounds, delta: float, numbers: float) -> Epsilon:
    if why := next((m.no_pld for m, _ in rounds if m.no_pld), ""):
        return None, (why,)
    if delta < _SMALLEST_PLD_DELTA:
        return None, (f"PLD is not resolved below delta {_SMALLEST_PLD_DELTA}",)
    if sum(count for _, count in rounds) > MOST_PLD_ROUNDS:
        return None, (f"PLD is not taken of more than {MOST_PLD_ROUNDS:,} rounds",)
    _, spent = _without_bare_rounds(rounds)
    if spent >= delta:
        return None, (_bare_words(spent),)
    grid = _grid(rounds, delta)
    if not grid <= COARSEST_GRID:
        return None, (f"noise too small for PLD: it would need a grid of {grid:g}",)
    at = composed_pld(rounds, grid).get_epsilon_for_delta
    epsilon = float(_as_computed(rounds, delta, numbers, at))
    notes = (f"PLD on a grid of {grid:g}, rounded up",)
    if not math.isfinite(epsilon):
        return None, (*notes, "no finite epsilon by PLD")
    return epsilon, notes


def _as_computed(
    rounds: Rounds, delta: float, numbers: float, at: Callable[[float], float]
) -> float:
    """Epsilon with the rounds' slack and what finite precision costs.

    From delta to epsilon by the rounds' divergences is `at`.
    """
    slack = sum(count * mechanism.slack for mechanism, count in rounds)
    epsilon = at(delta)
    if not (numbers or slack) or not math.isfinite(epsilon):
        return epsilon
    while True:
        most = epsilon + slack + 1.0
        loss = precision_loss(numbers, most, delta)
        found = at(delta * (1.0 - _KEPT) * math.exp(-loss - slack)) + slack
        if found <= most or not math.isfinite(found):
            return found + 2.0 * loss
        epsilon = found - slack


def _convert(
    rounds: Rounds, orders: tuple[float, ...], delta: float
) -> tuple[float, float]:
    from dp_accounting.rdp import compute_epsilon

    total = np.zeros(len(orders))
    for mechanism, count in rounds:
        moments = np.asarray(mechanism.rdp(orders), np.float64)
        # What dp_accounting makes of one that is not a number is an epsilon of 0.
        ok = moments.shape == total.shape and bool(np.all(moments >= 0.0))
        allowed = "one whose divergences are numbers >= 0, one for each order"
        require(ok, "mechanism", mechanism, allowed)
        # As a float: a count beyond 64 bits is none of numpy's.
        total += float(count) * moments
    near = _nearest_best(np.asarray(orders), total, delta)
    epsilon, order = compute_epsilon(np.asarray(orders)[near], total[near], delta)
    return float(epsilon), float(order)


def _nearest_best(orders: np.ndarray, rdp: np.ndarray, delta: float) -> np.ndarray:
    """Where the orders lie that dp_accounting may take for the best.

    It converts one after the other, for which every round of a run would wait; any of
    them gives an epsilon that holds.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = rdp - np.log(delta * orders) / (orders - 1.0)
    bounds += np.log1p(-1.0 / orders)
    bounds[delta**2 + np.expm1(-rdp) > 0] = 0.0
    return np.sort(np.argsort(bounds)[:_CLOSEST])


def _converter(rounds: Rounds, spent: float) -> Callable[[float], float]:
    """From a delta, of which so much is spent, to the rounds' epsilon."""

    def at(delta: float) -> float:
        if delta <= spent:
            return math.inf
        epsilon, order = _convert(rounds, ORDERS, delta - spent)
        if order == ORDERS[-1]:
            epsilon = min(epsilon, _convert(rounds, LARGE_ORDERS, delta - spent)[0])
        return epsilon

    return at


def _without_bare_rounds(rounds: Rounds, more: int = 0) -> tuple[Rounds, float]:
    """Conditions on there being noise; returns the probability that there is not.

    Args:
      rounds: Mechanisms with how often each was run.
      more: See `Mechanism.given_noise`.
    """
    sound, spent = [], 0.0
    for mechanism, count in rounds:
        ok = mechanism.slack >= 0.0 and mechanism.pure_epsilon >= 0.0
        allowed = "one whose slack and pure epsilon are numbers >= 0"
        require(ok, "mechanism", mechanism, allowed)
        given, bare = mechanism.given_noise(more)
        spent += count * bare
        sound.append((given, count))
    return gathered(sound), spent


def _bare_words(spent: float) -> str:
    return (
        "no guarantee: with a probability of up to "
        f"{min(spent, 1.0):.3g} some round has no noising participant"
    )


def _grid(rounds: Rounds, delta: float) -> float:
    """A grid of 1e-4 times a power of two: relative error 1e-5, bounded size.

    The rounding error falls with the square of the grid over epsilon; it is
    pessimistic on any grid.
    """
    sound, spent = _without_bare_rounds(rounds)
    # Where delta is large, epsilon is next to nothing beside the losses' span.
    epsilon = _convert(sound, ORDERS, min(delta - spent, 0.01))[0]
    # Of very many rounds each needs some points of its own.
    narrow = _STEPS_PER_EPSILON / _STEPS_PER_ROUND * min(m.loss_span for m, _ in rounds)
    fine = min(max(min(epsilon, narrow), 1e-3), 1e9) / _STEPS_PER_EPSILON
    coarse = finest_grid(rounds)
    if not math.isfinite(coarse):
        return math.inf
    return 1e-4 * 2.0 ** math.ceil(math.log2(max(fine, coarse) / 1e-4))
