"""From a target epsilon at an observer to the noise multiplier that meets it."""

import math
from collections.abc import Callable
from typing import Literal

from tff_hdp.errors import ArgumentError, check_positive
from tff_hdp.privacy.accountant import account, worst
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import ThreatModel
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
    threat: ThreatModel = ThreatModel(),
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
      threat: What is assumed of the parties.

    Returns:
      z, within 1e-4 of the least, on the side that meets the target.

    Raises:
      ArgumentError: If an argument is out of range, or no multiplier between 2^-10
        and 2^20 meets or misses the target; the reason is that of the account.
    """
    check_positive("target_epsilon", target_epsilon)
    if method not in ("rdp", "pld"):
        raise ArgumentError("method", method, "rdp, pld")

    def epsilon(z: float, by: Literal["rdp", "pld"]) -> float:
        rows = account(make_plan(z), rounds, delta, (by,), threat=threat)
        row = worst(rows, observer, client_kind, method=by)
        value = getattr(row, f"epsilon_{by}")
        return math.inf if value is None else value

    # Renyi DP is cheap and close: it brackets the slower method.
    high = 1.0
    for by in ("rdp", method):
        while epsilon(high, by) > target_epsilon:
            high *= 2
            if high > _LARGEST:
                rows = account(make_plan(high), 1, 1e-5, ("rdp",), threat=threat)
                row = worst(rows, observer)
                raise ArgumentError(
                    "target_epsilon",
                    target_epsilon,
                    f"what a noise multiplier up to {_LARGEST:g} meets against the "
                    f"{observer} ({row.client_kind} clients: "
                    f"{row.assumptions or 'too strict'})",
                )
    low = high / 2
    while epsilon(low, method) <= target_epsilon:
        high, low = low, low / 2
        if low < _SMALLEST:
            raise ArgumentError(
                "target_epsilon",
                target_epsilon,
                f"less: it is met even at z = {high:g}, with no noise to speak of",
            )
    while high - low > _RELATIVE * low:
        middle = math.sqrt(low * high)
        if epsilon(middle, method) <= target_epsilon:
            high = middle
        else:
            low = middle
    return high
