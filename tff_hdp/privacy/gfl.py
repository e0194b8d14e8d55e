"""GFL: what its Laplace noise is worth, to whom, and after how many iterations.

Source: GFL paper, Theorem 2: after i iterations the model's sensitivity is
2 mu B i, and the losses of iterations 1..i add up. The root in the theorem
covers the 2 alone: a Laplace variable of standard deviation sigma_g has scale
sigma_g / sqrt(2).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from dp_accounting.rdp import compute_epsilon

from tff_hdp.privacy.accountant import METHODS, AccountRow, Method
from tff_hdp.privacy.checks import check_delta, check_positive, check_rounds
from tff_hdp.privacy.mechanisms import ORDERS
from tff_hdp.privacy.moments import log_mean_exp
from tff_hdp.secagg.fixed_point import FixedPoint

Scheme = Literal["none", "iid", "hybrid"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class GflPlan:
    """Who hides what in one iteration of GFL.

    Attributes:
      scheme: `hybrid` (masked clients, graph-homomorphic noise between servers),
        `iid` (independent noise at clients and between servers) or `none`.
      mu: Step size.
      B: Norm to which a client's stochastic gradient is clipped.
      sigma_g: Standard deviation of each coordinate's Laplace noise; 0 under
        `none`.
      dimension: M, the model's parameters.
      clients: K, the clients of the smallest server.
      per_round: L, how many of them every server draws.

    Raises:
      ValueError: If a field is out of range.
    """

    scheme: Scheme
    mu: float
    B: float
    sigma_g: float
    dimension: int
    clients: int
    per_round: int

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise ValueError(
                f"scheme is {self.scheme!r}; allowed are {', '.join(SCHEMES)}"
            )
        for name in ("mu", "B", "dimension", "clients", "per_round"):
            check_positive(name, getattr(self, name))
        if self.per_round > self.clients:
            raise ValueError(
                f"per_round is {self.per_round}; allowed is at most {self.clients}"
            )
        if self.is_noisy:
            check_positive("sigma_g", self.sigma_g)
        elif self.sigma_g != 0:
            raise ValueError(f"sigma_g is {self.sigma_g}; allowed is 0 without noise")
        if self.masked and self.per_round < 2:
            raise ValueError(
                f"per_round is {self.per_round}; masks need at least 2 clients"
            )

    @property
    def is_noisy(self) -> bool:
        """Whether anyone adds noise."""
        return self.scheme != "none"

    @property
    def masked(self) -> bool:
        """Whether clients mask their updates."""
        return self.scheme == "hybrid"

    @property
    def encoding(self) -> FixedPoint:
        """The fixed point of masked updates: coordinates in [-mu B, mu B]."""
        return FixedPoint.for_sum(
            clip=self.mu * self.B, bits=32, max_clients=self.per_round
        )

    @property
    def update_norm(self) -> float:
        """Bound on the L2 norm of a client's update as sent, rounding included."""
        norm = self.mu * self.B
        return self.encoding.rounded_norm(norm, self.dimension) if self.masked else norm


def epsilon(
    *, i: int, mu: float, B: float, sigma_g: float, dimension: int | None = None
) -> float:
    """Epsilon after i iterations against a neighbouring server.

    Args:
      i: Iterations, >= 0.
      mu: Step size.
      B: Bound on the gradient's norm.
      sigma_g: Standard deviation of each coordinate's Laplace noise.
      dimension: M, the model's parameters. None gives the paper's value, which
        takes the L2 sensitivity for the L1 one. With it, epsilon is sqrt(M)
        larger: the L1 norm can be sqrt(M) times the L2 norm.

    Returns:
      sqrt(2) mu B i (i+1) / sigma_g, times sqrt(M) if `dimension` is given.
      Against whoever sees every server's model there is no guarantee: the noise
      cancels in their average.

    Raises:
      ValueError: If an argument is out of range.
    """
    i = check_rounds("i", i)
    for name, value in {"mu": mu, "B": B, "sigma_g": sigma_g}.items():
        check_positive(name, value)
    return math.sqrt(2 * _dimension(dimension)) * mu * B * i * (i + 1) / sigma_g


def sigma_g(
    *, i: int, mu: float, B: float, epsilon: float, dimension: int | None = None
) -> float:
    """The standard deviation that gives `epsilon` after i iterations.

    Args:
      i: Iterations, >= 1.
      mu: Step size.
      B: Bound on the gradient's norm.
      epsilon: Target.
      dimension: As in `epsilon`.

    Returns:
      The inverse of `epsilon` in sigma_g.

    Raises:
      ValueError: If an argument is out of range.
    """
    check_positive("i", i)
    for name, value in {"mu": mu, "B": B, "epsilon": epsilon}.items():
        check_positive(name, value)
    return math.sqrt(2 * _dimension(dimension)) * mu * B * i * (i + 1) / epsilon


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
    return epsilon(i=rounds, mu=plan.mu, B=plan.B, sigma_g=plan.sigma_g)


def _dimension(dimension: int | None) -> int:
    if dimension is None:
        return 1
    check_positive("dimension", dimension)
    return dimension
