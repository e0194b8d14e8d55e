"""GFL's account: what its Laplace noise is worth, and to whom."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from dp_accounting.rdp import compute_epsilon

from tff_hdp.privacy.accountant import METHODS, AccountRow, Method
from tff_hdp.privacy.checks import check_delta
from tff_hdp.privacy.mechanisms import ORDERS
from tff_hdp.privacy.renyi import log_mean_exp
from tff_hdp.systems.gfl import plan as gfl
from tff_hdp.systems.gfl.plan import GflPlan

_NEIGHBOURS = "replace_one"
_SUPER_NODE_NONE = (
    "no guarantee: the server sees the exact sum of its sampled clients' updates; "
    "the masks hide each update within that sum"
)
_RELEASED_NONE = (
    "no guarantee: the noise cancels in the average of all servers' models, which "
    "is what non-private training gives; the model a server sends its clients has "
    "no account either"
)
_OTHERS = (
    "all other servers together may pool what they receive; the client's own server "
    "keeps its model to itself; a sensitivity that grows by 2 mu B sqrt(M) in L1 "
    "every iteration; gradients clipped to B"
)
_LOCAL = (
    "every client noises its own update before anyone sees it, and all else follows "
    "from that; gradients clipped to B, M coordinates; participation taken as revealed"
)


def account(
    history: Sequence[tuple[GflPlan, int]],
    delta: float,
    methods: Sequence[Method] = METHODS,
) -> list[AccountRow]:
    """What a client is promised against its server, the others, and everybody.

    Against the other servers under `hybrid` noise: fix what they receive and let
    the own server's noise absorb the change of its model psi. As the own copy
    takes back exactly the noise it sent, the change d of psi then reaches the next
    model undiminished and alone: |d_i| <= |d_(i-1)| + 2 mu B, every other server
    stays as it was, and each iteration costs sqrt(M) |d_i| over the Laplace scale.
    That is the paper's Theorem 2 with its sqrt(M), also for all other servers
    together.

    Args:
      history: Plans of one scheme with how many iterations each was run.
      delta: In (0, 1).
      methods: Which epsilons to compute; there is none by `pld`.

    Returns:
      Rows for `super_node` (the client's own server), `other_servers` and
      `released_model` (whoever gets the models of all servers).

    Raises:
      ValueError: If an argument is out of range, or the schemes differ.
    """
    check_delta("delta", delta)
    schemes = {plan.scheme for plan, _ in history}
    if len(schemes) != 1:
        raise ValueError(f"history has the schemes {sorted(schemes)}; allowed is one")
    scheme = schemes.pop()
    last = history[-1][0]
    bare = AccountRow(
        observer="super_node",
        client_kind={"none": "trusting", "iid": "ldp", "hybrid": "hdp"}[scheme],
        zone=None,
        noise_multiplier=None,
        epsilon_rdp=None,
        epsilon_pld=None,
        epsilon_paper=None,
        delta=delta,
        neighbours=_NEIGHBOURS,
        sampling=f"exactly {last.per_round} of {last.clients} clients of a server",
        assumptions="no guarantee: no noise is added",
    )
    observers = ("super_node", "other_servers", "released_model")
    if scheme == "none":
        return [
            dataclasses.replace(bare, observer=o, level=level)
            for level, o in enumerate(observers, 1)
        ]
    if scheme == "iid":
        noisy = _noisy_row(bare, _local_ratios(history), _LOCAL, methods)
        noisy = dataclasses.replace(
            noisy, noise_multiplier=last.sigma_g / (2 * last.update_norm)
        )
        return [
            dataclasses.replace(noisy, observer=o, level=level)
            for level, o in enumerate(observers, 1)
        ]
    shifts = _shifts(history)
    others = _noisy_row(bare, _hybrid_ratios(history, shifts), _OTHERS, methods)
    return [
        dataclasses.replace(bare, assumptions=_SUPER_NODE_NONE),
        dataclasses.replace(
            others,
            observer="other_servers",
            noise_multiplier=last.sigma_g / shifts[-1] if len(shifts) else None,
            epsilon_paper=_paper(history) if "paper" in methods else None,
            level=2,
        ),
        dataclasses.replace(
            bare, observer="released_model", assumptions=_RELEASED_NONE, level=3
        ),
    ]


def laplace_rdp(ratio: np.ndarray, orders: Sequence[float]) -> np.ndarray:
    """Renyi divergence of Laplace noise under an L1 shift (Mironov 2017, Prop. 6).

    Several coordinates that share the shift diverge less: the divergence is convex
    in it and 0 without one.

    Args:
      ratio: [n] shift over scale, >= 0.
      orders: [orders] each > 1.

    Returns:
      [n, orders].
    """
    t, a = np.asarray(ratio, np.float64)[:, None], np.asarray(orders, np.float64)
    near = np.log(a / (2 * a - 1)) + (a - 1) * t
    far = np.log((a - 1) / (2 * a - 1)) - a * t
    return np.logaddexp(near, far) / (a - 1)


def _noisy_row(
    row: AccountRow,
    iterations: Sequence[tuple[np.ndarray, float]],
    assumptions: str,
    methods: Sequence[Method],
) -> AccountRow:
    """`row` with its epsilon: `iterations` are pairs of L1 ratios [n] and q."""
    if "rdp" not in methods:
        return dataclasses.replace(row, assumptions=assumptions)
    pure = float(sum(ratios.sum() for ratios, _ in iterations))
    orders = np.asarray(ORDERS)
    total = np.zeros(len(orders))
    for ratios, q in iterations:
        exponent = laplace_rdp(ratios, ORDERS) * (orders - 1)
        moments = log_mean_exp(exponent[..., np.newaxis], np.zeros(1), q)
        total += moments.sum(0) / (orders - 1)
    composed = float(compute_epsilon(ORDERS, total, row.delta)[0])
    if pure <= composed:
        assumptions += "; epsilon is the sum of the iterations' and needs no delta"
    return dataclasses.replace(
        row, epsilon_rdp=min(pure, composed), assumptions=assumptions
    )


def _shifts(history: Sequence[tuple[GflPlan, int]]) -> np.ndarray:
    """[i] bounds on the L2 change of the own server's psi, iteration by iteration."""
    steps = [np.full(count, 2 * plan.update_norm) for plan, count in history]
    return np.cumsum(np.concatenate(steps))


def _hybrid_ratios(
    history: Sequence[tuple[GflPlan, int]], shifts: np.ndarray
) -> list[tuple[np.ndarray, float]]:
    factors = np.concatenate(
        [np.full(count, _ratio(plan, 1.0)) for plan, count in history]
    )
    return [(shifts * factors, 1.0)]


def _local_ratios(
    history: Sequence[tuple[GflPlan, int]],
) -> list[tuple[np.ndarray, float]]:
    return [
        (
            np.full(count, _ratio(plan, 2 * plan.update_norm)),
            plan.per_round / plan.clients,
        )
        for plan, count in history
    ]


def _ratio(plan: GflPlan, shift: float) -> float:
    """An L2 shift's L1 norm, at most sqrt(M) times it, over the Laplace scale."""
    return math.sqrt(2 * plan.dimension) * shift / plan.sigma_g


def _paper(history: Sequence[tuple[GflPlan, int]]) -> float | None:
    """Theorem 2, which is for one plan throughout."""
    plan = history[-1][0]
    if any(other != plan for other, _ in history):
        return None
    rounds = sum(count for _, count in history)
    return gfl.epsilon(i=rounds, mu=plan.mu, B=plan.B, sigma_g=plan.sigma_g)
