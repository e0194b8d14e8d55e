"""From a target epsilon at an observer to the noise multiplier that meets it."""

import functools
import math
from collections.abc import Callable

from tff_hdp.errors import (
    ArgumentError,
    TooLittleNoiseError,
    check_count,
    check_positive,
    check_word,
)
from tff_hdp.privacy.accountant import SOUND, AccountRow, Sound, account, worst
from tff_hdp.privacy.least import log_excess
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned_noise import LARGEST_MULTIPLIER, SMALLEST_MULTIPLIER
from tff_hdp.privacy.threat import CLIENT_KINDS, ClientKind, Observer, ThreatModel

_RELATIVE = 1e-4


def calibrate(
    make_plan: Callable[[float], NoisePlan],
    *,
    target_epsilon: float,
    observer: Observer,
    client_kind: ClientKind | None = None,
    rounds: int,
    delta: float,
    method: Sound = "rdp",
    threat: ThreatModel = ThreatModel(),
) -> float:
    """The least noise multiplier whose sound epsilon is at most a target.

    Sums in fixed point of few bits carry no noise below some steps of their grid. Where
    that is more than the target asks for, the least that they carry is what is found.

    Args:
      make_plan: Builds the plan from the multiplier z that is sought.
      target_epsilon: Epsilon > 0 to meet.
      observer: Against whom.
      client_kind: For which clients; None for those worst off.
      rounds: T.
      delta: In (0, 1).
      method: Which account must meet the target.
      threat: What is assumed of the parties.

    Returns:
      z, within 1e-4 of where epsilon crosses the target or of the least that the plan
      takes, on the side that meets it.

    Raises:
      ArgumentError: If an argument is out of range, or no multiplier between 2^-10
        and 1e6 meets or misses the target; the reason is that of the account.
    """
    if not callable(make_plan):
        name = type(make_plan).__name__
        raise ArgumentError("make_plan", name, "a function from z to a NoisePlan")
    check_positive("target_epsilon", target_epsilon)
    rounds = check_count("rounds", rounds, 1)
    check_word("method", method, SOUND)
    if client_kind is not None:
        check_word("client_kind", client_kind, CLIENT_KINDS)

    def worst_row(plan: NoisePlan, by: Sound) -> AccountRow:
        rows = account(plan, rounds, delta, (by,), threat=threat)
        return worst(rows, observer, client_kind, method=by)

    def epsilon(z: float, by: Sound) -> float:
        try:
            plan = make_plan(z)
        except TooLittleNoiseError:
            if z == LARGEST_MULTIPLIER:
                raise
            return math.inf
        return worst_row(plan, by).epsilon(by)

    z = _least_multiplier(epsilon, target_epsilon, method)
    if z == math.inf:
        row = worst_row(make_plan(LARGEST_MULTIPLIER), method)
        raise _refusal(target_epsilon, observer, row)
    if z == 0.0:
        raise ArgumentError(
            "target_epsilon",
            target_epsilon,
            f"less: it is met even at z = {SMALLEST_MULTIPLIER:g}, with no noise to "
            "speak of",
        )
    return z


def _refusal(target: float, observer: Observer, row: AccountRow) -> ArgumentError:
    """Why no multiplier meets a target; `row` is what the largest comes to."""
    clients, why = f"{row.client_kind} clients", row.assumptions
    if not row.is_guaranteed:
        allowed = f"one that noise protects {clients} from; of this one: {why}"
        return ArgumentError("observer", observer, allowed)
    allowed = f"what a noise multiplier up to {LARGEST_MULTIPLIER:g} meets against the "
    allowed += f"{observer} ({clients}: {why or 'too strict'})"
    return ArgumentError("target_epsilon", target, allowed)


def _least_multiplier(
    epsilon: Callable[[float, Sound], float], target: float, method: Sound
) -> float:
    """The least z with epsilon(z, method) <= target, within 1e-4 above.

    Infinite where 1e6 is too little, 0 where 2^-10 is enough.
    """
    high = 1.0
    # Renyi DP, which is cheap and close, brackets what another account asks for.
    for by in dict.fromkeys(("rdp", method)):
        while epsilon(high, by) > target:
            if high == LARGEST_MULTIPLIER:
                return math.inf
            high = min(2 * high, LARGEST_MULTIPLIER)
        high = _least_below(functools.partial(epsilon, by=by), high, target)
        if high == 0.0:
            return 0.0
    return high


def _least_below(
    epsilon: Callable[[float], float], high: float, target: float
) -> float:
    """The least z up to `high`, which meets the target; 0 if 2^-10 does."""
    from scipy import optimize

    def excess(log_z: float) -> float:
        return log_excess(epsilon(math.exp(log_z)), target)

    low, step = high, 1.1
    while (low := low / step) >= SMALLEST_MULTIPLIER:
        if epsilon(low) > target:
            break
        high, step = low, step * step
    else:
        return 0.0
    root = optimize.brentq(
        excess, math.log(low), math.log(high), xtol=_RELATIVE / 4, rtol=1e-12
    )
    z = math.exp(root + _RELATIVE / 4)
    while epsilon(z) > target:
        z *= 1.0 + _RELATIVE / 4
    return min(z, high)
