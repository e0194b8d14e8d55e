"""HFL-DP's rounds as they run, and their epsilon per observer.

A client sends its whole trained model, clipped to the norm C. Whatever changes in
its data, one example or all, can move that by 2C: the account's sensitivity, and
replacing a client its neighbour relation. Theorem 1 counts 2C/m, for averages of
clipped parts of single examples, which the algorithm does not form.
"""

import dataclasses
import math
from collections.abc import Sequence

from tff_hdp.errors import (
    ArgumentError,
    check_delta,
    check_nonnegative,
    check_positive,
)
from tff_hdp.privacy.accountant import METHODS, AccountRow, Method, composed
from tff_hdp.privacy.mechanisms import Gaussian
from tff_hdp.privacy.plan import MOST_COORDINATES
from tff_hdp.systems.hfl_dp import noise as hfl_dp

OBSERVERS = ("super_node", "edge_broadcast", "aggregator", "released_model")
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
        "whoever gets the cloud's models; edge rounds between are accounted as if "
        "seen, since later models depend on them"
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HflDpRound:
    """The noise of one edge aggregation, or of one with the cloud's behind it.

    Attributes:
      cloud: Whether the cloud aggregates after the edges.
      n: Clients of an edge, all of which take part.
      N: Edges.
      C: Bound on the norm of a client's model; None without clipping.
      sigma_u: Noise of a client's model, standard deviation.
      sigma_e: Noise of an edge's model sent to the cloud; 0 on edge rounds.
      n_down: Noise of what is sent down: the edge's n_E or the cloud's n_C.
      paper_epsilon: What the paper states for rounds of this kind; None where
        its formulas did not choose the noise.

    Raises:
      ArgumentError: If a field is out of range.
    """

    cloud: bool
    n: int
    N: int
    C: float | None
    sigma_u: float = 0.0
    sigma_e: float = 0.0
    n_down: float = 0.0
    paper_epsilon: float | None = None

    def __post_init__(self) -> None:
        for name in ("n", "N"):
            check_positive(name, getattr(self, name))
        for name in ("sigma_u", "sigma_e", "n_down"):
            check_nonnegative(name, getattr(self, name))
        if self.C is not None:
            check_positive("C", self.C)
        elif self.is_noisy:
            raise ArgumentError("C", None, "a bound, without which noise is no use")

    @property
    def is_noisy(self) -> bool:
        """Whether anyone adds noise."""
        return max(self.sigma_u, self.sigma_e, self.n_down) > 0

    def multiplier(self, observer: str) -> float:
        """Noise standard deviation over the sensitivity of what `observer` sees.

        On an edge round the cloud and those above it are granted the noised
        average of the client's edge.

        Args:
          observer: One of `OBSERVERS`.
        """
        if self.C is None:
            return 0.0
        clients = 1 if observer == "super_node" else self.n
        edges = 1
        known = 1 if observer == "edge_broadcast" else 0
        variance = self.n_down**2
        if observer == "super_node":
            variance = 0.0
        elif self.cloud and observer == "aggregator":
            variance = self.sigma_e**2
        elif self.cloud:
            edges = self.N
            variance += self.sigma_e**2 / edges
        total = clients * edges
        variance += (total - known) * (self.sigma_u / total) ** 2
        return math.sqrt(variance) / (2 * self.C / total)


def rounds_of(
    noise: hfl_dp.HflDpNoise,
    *,
    n: int,
    N: int,
    C: float | None,
    paper_epsilons: tuple[float | None, float | None] = (None, None),
) -> tuple[HflDpRound, HflDpRound]:
    """The edge round and the cloud round that some noises make.

    Args:
      noise: Standard deviations; all 0 for none.
      n: Clients of an edge.
      N: Edges.
      C: Bound on the norm of a client's model, or None.
      paper_epsilons: eps1 and eps2 where the paper's formulas gave the noise.
    """
    shape = {"n": n, "N": N, "C": C}
    return (
        HflDpRound(
            cloud=False,
            sigma_u=noise.sigma_u1,
            n_down=noise.n_e,
            paper_epsilon=paper_epsilons[0],
            **shape,
        ),
        HflDpRound(
            cloud=True,
            sigma_u=noise.sigma_u2,
            sigma_e=noise.sigma_e,
            n_down=noise.n_c,
            paper_epsilon=paper_epsilons[1],
            **shape,
        ),
    )


def account(
    history: Sequence[tuple[HflDpRound, int]],
    delta: float,
    methods: Sequence[Method] = METHODS,
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

    Returns:
      A row for each of `OBSERVERS`.

    Raises:
      ArgumentError: If `delta` is out of range.
    """
    check_delta("delta", delta)
    return [
        _row(history, observer, level, delta, methods)
        for level, observer in enumerate(OBSERVERS, 1)
    ]


def _row(
    history: Sequence[tuple[HflDpRound, int]],
    observer: str,
    level: int,
    delta: float,
    methods: Sequence[Method],
) -> AccountRow:
    rounds = [(plan.multiplier(observer), count) for plan, count in history]
    last = history[-1][0]
    above = observer in ("aggregator", "released_model")
    stated = {plan.paper_epsilon for plan, _ in history if plan.cloud == above}
    row = AccountRow(
        observer=observer,
        client_kind="ldp",
        zone=None,
        noise_multiplier=last.multiplier(observer),
        epsilon_rdp=None,
        epsilon_pld=None,
        epsilon_paper=stated.pop() if "paper" in methods and len(stated) == 1 else None,
        delta=delta,
        neighbours="replace_one",
        sampling="every client takes part in every round",
        assumptions=(
            f"{_ASSUMPTIONS[observer]}; the clipped model's sensitivity 2C = "
            f"{2 * (last.C or math.inf):g}, for one example as for all of a client"
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
