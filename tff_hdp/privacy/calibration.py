"""From a target epsilon at an observer to the noise multiplier that meets it."""

import math
from collections.abc import Callable
from typing import Literal

from tff_hdp.privacy.accountant import account, worst
from tff_hdp.privacy.checks import check_positive
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.views import ClientKind, Observer

_RELATIVE = 1e-4
_LARGEST = 2.0**20
_SMALLEST = 2.0**-10


def calibrate(
    make_plan: Callable[[float], NoisePlan],
    *,
    target_epsilon: float,
    observer: Observer,
    client_kind: ClientKind | None = None,
    rounds: int,
    delta: float,
    method: Literal["rdp", "pld"] = "rdp",
) -> float:
    """The least noise multiplier whose sound epsilon is at most a target.

    Args:
      make_plan: Builds the plan from the multiplier z that is sought.
      target_epsilon: Epsilon > 0 to meet.
      observer: Against whom.
      client_kind: For which clients; None for those worst off.
      rounds: T.
      delta: In (0, 1).
      method: Which account must meet the target.

    Returns:
      z, within 1e-4 of the least, on the side that meets the target.

    Raises:
      ValueError: If an argument is out of range, or no multiplier between 2^-10
        and 2^20 meets or misses the target; the reason is that of the account.
    """
    check_positive("target_epsilon", target_epsilon)
    if method not in ("rdp", "pld"):
        raise ValueError(f"method is {method!r}; allowed are rdp, pld")

    def epsilon(z: float, by: Literal["rdp", "pld"]) -> float:
        rows = account(make_plan(z), rounds, delta, methods=(by,))
        row = worst(rows, observer, client_kind, method=by)
        value = getattr(row, f"epsilon_{by}")
        return math.inf if value is None else value

    # Renyi DP is cheap and close: it brackets the slower method.
    high = _meet(make_plan, epsilon, "rdp", target_epsilon, observer, 1.0)
    high = _meet(make_plan, epsilon, method, target_epsilon, observer, high)
    low = high / 2
    while epsilon(low, method) <= target_epsilon:
        high, low = low, low / 2
        if low < _SMALLEST:
            raise ValueError(
                f"target_epsilon is {target_epsilon}: met even at z = {high:g}; no "
                "noise to speak of is needed"
            )
    while high - low > _RELATIVE * low:
        middle = math.sqrt(low * high)
        if epsilon(middle, method) <= target_epsilon:
            high = middle
        else:
            low = middle
    return high


def _meet(
    make_plan: Callable[[float], NoisePlan],
    epsilon: Callable[[float, Literal["rdp", "pld"]], float],
    method: Literal["rdp", "pld"],
    target: float,
    observer: Observer,
    z: float,
) -> float:
    """Doubles z until the target is met."""
    while epsilon(z, method) > target:
        z *= 2
        if z > _LARGEST:
            plan = make_plan(z)
            row = worst(account(plan, 1, 1e-5, methods=("rdp",)), observer)
            raise ValueError(
                f"target_epsilon is {target}: no noise multiplier up to {_LARGEST:g} "
                f"meets it against the {observer} ({row.client_kind} clients: "
                f"{row.assumptions or 'too strict'})"
            )
    return z
