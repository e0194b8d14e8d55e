"""GFL's account: what its Laplace noise is worth, and to whom."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tff_hdp.errors import ArgumentError, check_delta, check_word
from tff_hdp.privacy.accountant import METHODS, AccountRow, Method, composed
from tff_hdp.privacy.divergences import laplace_rdp
from tff_hdp.privacy.mechanisms import Laplace, Mechanism, frozen
from tff_hdp.systems.gfl import plan as gfl
from tff_hdp.systems.gfl.plan import GflPlan

_NEIGHBOURS = "replace_one"
_STRETCH = 256  # iterations that are composed at once
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
    "and its clients keep its model to themselves; a sensitivity that grows by 2 mu B "
    "every iteration, spread over M coordinates as is worst; gradients clipped to B"
)
_LOCAL = (
    "every client noises its own update before anyone sees it, and all else follows "
    "from that; gradients clipped to B, their difference spread over M "
    "coordinates as is worst; participation taken as revealed"
)

_OBSERVERS = ("super_node", "other_servers", "released_model")


def account(
    history: Sequence[tuple[GflPlan, int]],
    delta: float,
    methods: Sequence[Method] = METHODS,
    observer: str | None = None,
) -> list[AccountRow]:
    """What a client is promised against its server, the others, and everybody.

    Against the other servers under `hybrid` noise: fix what they receive and let
    the own server's noise absorb the change of its model psi. As the own copy
    takes back exactly the noise it sent, the change d of psi then reaches the next
    model undiminished and alone: |d_i| <= |d_(i-1)| + 2 mu B, and every other
    server stays as it was. Each iteration costs the divergence of Laplace noise under
    a shift of norm |d_i| in M coordinates, at most sqrt(M) |d_i| over the scale: that
    is the paper's Theorem 2 with its sqrt(M), also for all other servers together.

    Args:
      history: Plans of one scheme with how many iterations each was run.
      delta: In (0, 1).
      methods: Which epsilons to compute; there is none by `pld`.
      observer: Against whom alone; None for all.

    Returns:
      Rows for `super_node` (the client's own server), `other_servers` and
      `released_model` (whoever gets the models of all servers).

    Raises:
      ArgumentError: If an argument is out of range, or the schemes differ.
    """
    if observer is not None:
        check_word("observer", observer, _OBSERVERS)
    rows = _rows(history, delta, methods)
    return [row for row in rows if observer in (None, row.observer)]


def _rows(
    history: Sequence[tuple[GflPlan, int]], delta: float, methods: Sequence[Method]
) -> list[AccountRow]:
    check_delta("delta", delta)
    # No PLD is known for a shift over many coordinates.
    sound = [method for method in methods if method == "rdp"]
    schemes = {plan.scheme for plan, _ in history}
    if len(schemes) != 1:
        raise ArgumentError("history", sorted(schemes), "plans of one scheme")
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

    def for_everybody(row: AccountRow) -> list[AccountRow]:
        return [
            dataclasses.replace(row, observer=o, level=level)
            for level, o in enumerate(_OBSERVERS, 1)
        ]

    if scheme == "none":
        return for_everybody(bare)
    if scheme == "iid":
        noisy = dataclasses.replace(
            bare,
            noise_multiplier=last.sigma_g / (2 * last.update_norm),
            assumptions=_LOCAL,
        )
        rounds = [(_laplace(plan), count) for plan, count in history]
        return for_everybody(composed(noisy, rounds, sound, _numbers(history)))
    others = composed(
        dataclasses.replace(bare, assumptions=_OTHERS),
        [(stretch, 1) for stretch in _stretches(history)],
        sound,
        _numbers(history),
    )
    shift = sum(2 * plan.update_norm * count for plan, count in history)
    return [
        dataclasses.replace(bare, assumptions=_SUPER_NODE_NONE),
        dataclasses.replace(
            others,
            observer="other_servers",
            noise_multiplier=last.sigma_g / shift if shift else None,
            epsilon_paper=_paper(history) if "paper" in methods else None,
            level=2,
        ),
        dataclasses.replace(
            bare, observer="released_model", assumptions=_RELEASED_NONE, level=3
        ),
    ]


@dataclasses.dataclass(frozen=True)
class _Growing(Mechanism):
    """Some iterations of Laplace noise under a shift that grows from each to the next.

    Attributes:
      before: L2 norm of the shift over the noise's scale, before the first of them.
      step: By how much that grows every iteration.
      iterations: How many.
      coordinates: M, over which a shift spreads evenly, as is worst (`Laplace`).
    """

    before: float
    step: float
    iterations: int
    coordinates: int

    @property
    def ratios(self) -> np.ndarray:
        """Norm of the shift over the noise's scale, [iterations]."""
        return self.before + self.step * np.arange(1, self.iterations + 1)

    @property
    def pure_epsilon(self) -> float:
        """See base class."""
        return math.sqrt(self.coordinates) * float(self.ratios.sum())

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return _growing_rdp(self, orders)


@functools.lru_cache(maxsize=4096)
def _growing_rdp(m: _Growing, orders: tuple[float, ...]) -> np.ndarray:
    each = laplace_rdp(m.ratios[:, np.newaxis] / math.sqrt(m.coordinates), orders)
    return frozen(m.coordinates * each.sum(0))


def _stretches(history: Sequence[tuple[GflPlan, int]]) -> Iterator[_Growing]:
    """The iterations in stretches that stay as they are when others follow.

    So that an account after every iteration need not look at all of them anew.
    """
    shift = 0.0
    for plan, runs in itertools.groupby(history, lambda run: run[0]):
        total, step = sum(count for _, count in runs), 2 * plan.update_norm
        for done in range(0, total, _STRETCH):
            yield _Growing(
                before=_ratio(plan, shift + step * done),
                step=_ratio(plan, step),
                iterations=min(_STRETCH, total - done),
                coordinates=plan.dimension,
            )
        shift += step * total


def _ratio(plan: GflPlan, shift: float) -> float:
    """`shift`, in L2, over the noise's scale, sigma_g / sqrt(2)."""
    return math.sqrt(2) * shift / plan.sigma_g


def _laplace(plan: GflPlan) -> Laplace:
    """One iteration in which sampled clients noise their own updates."""
    q = plan.per_round / plan.clients
    return Laplace(_ratio(plan, 2 * plan.update_norm), q, plan.dimension)


def _numbers(history: Sequence[tuple[GflPlan, int]]) -> float:
    """How many numbers there are of the one party's noise that an account rests on."""
    return float(sum(plan.dimension * count for plan, count in history))


def _paper(history: Sequence[tuple[GflPlan, int]]) -> float | None:
    """Theorem 2, which is for one plan throughout."""
    plan = history[-1][0]
    if any(other != plan for other, _ in history):
        return None
    rounds = sum(count for _, count in history)
    return gfl.epsilon(i=rounds, mu=plan.mu, B=plan.B, sigma_g=plan.sigma_g)
