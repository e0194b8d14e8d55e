"""HFL-DP: epsilon per observer of its rounds as they run.

A client sends its whole trained model, clipped to the norm C. Whatever changes in
its data, one example or all, can move that by 2C: the account's sensitivity, and
replacing a client its neighbour relation. Theorem 1 counts 2C/m, for averages of
clipped parts of single examples, which the algorithm does not form.
"""

import dataclasses
import math
from collections.abc import Sequence

from tff_hdp.errors import check_delta, check_word
from tff_hdp.privacy.accountant import METHODS, AccountRow, Method, composed
from tff_hdp.privacy.mechanisms import Gaussian
from tff_hdp.privacy.plan import MOST_COORDINATES
from tff_hdp.systems.hfl_dp.plan import HflDpRound

OBSERVERS = (
    *("super_node", "edge_broadcast", "aggregator", "released_model"),
    "fellow_super_node",
)
_ASSUMPTIONS = {
    "super_node": "the edge sees every model its clients send it",
    "edge_broadcast": (
        "another client of the same edge sees what the edge and the cloud send down, "
        "and knows its own noise"
    ),
    "aggregator": (
        "the cloud sees what edges send it; edge rounds between are accounted as if "
        "it saw their noised averages, since later models depend on them"
    ),
    "released_model": (
        "whoever gets the cloud's models and added no noise to them; edge rounds "
        "between are accounted as if seen, since later models depend on them"
    ),
    "fellow_super_node": (
        "another edge gets the cloud's models and knows what it sent itself, with the "
        "noise in it; edge rounds between are accounted as if seen"
    ),
}

# Theorem 1 divides by m: less noise where everybody has more.
_OF_M = "; m, the fewest examples of a client, is public, and the noise follows from it"


def account(
    history: Sequence[tuple[HflDpRound, int]],
    delta: float,
    methods: Sequence[Method] = METHODS,
    observer: str | None = None,
) -> list[AccountRow]:
    """Epsilon of one client with all its data against every observer.

    Each round sends a new clipped model with fresh Gaussian noise, computed from
    the client's data and from what was sent before; such rounds compose, and the
    composition of Gaussians is a Gaussian: 1/z^2 = sum 1/z_t^2.

    Args:
      history: Rounds of either kind with how many times each was run.
      delta: In (0, 1).
      methods: `rdp`; `pld`, of one Gaussian; `paper`, eps1 at the edge
        and eps2 above it, as stated there.
      observer: Against whom alone; None for all.

    Returns:
      A row for each of `OBSERVERS`, but for other edges where there is one edge, and
      for other clients of an edge that has but one.

    Raises:
      ArgumentError: If `delta` is out of range, or `observer` nobody's name.
    """
    check_delta("delta", delta)
    if observer is not None:
        check_word("observer", observer, OBSERVERS)
    absent = set()
    if max(plan.N for plan, _ in history) == 1:
        absent.add("fellow_super_node")
    if max(plan.n for plan, _ in history) == 1:
        absent.add("edge_broadcast")
    return [
        _row(history, who, level, delta, methods)
        for who, level in zip(OBSERVERS, (1, 2, 3, 4, 4), strict=True)
        if who not in absent and observer in (None, who)
    ]


def _row(
    history: Sequence[tuple[HflDpRound, int]],
    observer: str,
    level: int,
    delta: float,
    methods: Sequence[Method],
) -> AccountRow:
    rounds = [(plan.noise_multiplier(observer), count) for plan, count in history]
    last = history[-1][0]
    above = observer in ("aggregator", "released_model")
    # The paper says nothing of fellows.
    states = "paper" in methods and not observer.startswith("fellow_")
    stated = {plan.paper_epsilon for plan, _ in history if plan.cloud == above}
    by_paper = any(plan.paper_epsilon is not None for plan, _ in history)
    row = AccountRow(
        observer=observer,
        client_kind="ldp",
        zone=None,
        noise_multiplier=last.noise_multiplier(observer),
        epsilon_rdp=None,
        epsilon_pld=None,
        epsilon_paper=stated.pop() if states and len(stated) == 1 else None,
        delta=delta,
        neighbours="replace_one",
        sampling="every client takes part in every round",
        assumptions=(
            f"{_ASSUMPTIONS[observer]}; the clipped model's sensitivity 2C = "
            f"{2 * (last.C or math.inf):g}, for one example as for all of a client"
            + _OF_M
            * by_paper
        ),
        level=level,
    )
    if any(z == 0.0 for z, _ in rounds):
        return dataclasses.replace(
            row,
            noise_multiplier=None,
            assumptions="no guarantee: in some round this observer meets no noise but "
            "its own",
        )
    sound = [method for method in methods if method != "paper"]
    total = sum(count / z**2 for z, count in rounds)
    parties = max((plan.n + 2) * plan.N + 1 for plan, _ in history)
    numbers = float(MOST_COORDINATES * parties * sum(count for _, count in rounds))
    whole = [(Gaussian(total**-0.5), 1)] if total else []
    return composed(row, whole, sound, numbers)
