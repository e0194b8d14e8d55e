"""HFL-DP: who adds which noise, on edge rounds and on cloud rounds (Algorithm 1)."""

import dataclasses
import math

from tff_hdp.errors import (
    ArgumentError,
    check_count,
    check_nonnegative,
    check_positive,
    require,
)
from tff_hdp.privacy.parts import check_norm


@dataclasses.dataclass(frozen=True)
class HflDpNoise:
    """Standard deviations of HFL-DP's noises, in units of the parameters.

    Attributes:
      sigma_u1: Clients, on edge rounds (eps1, t1).
      sigma_u2: Clients, on cloud rounds (eps2, t3).
      sigma_e: Edges, uploading (eps2, t4).
      n_e: Edges, sending down.
      n_c: Cloud, sending down.
    """

    sigma_u1: float = 0.0
    sigma_u2: float = 0.0
    sigma_e: float = 0.0
    n_e: float = 0.0
    n_c: float = 0.0


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
            check_count(name, getattr(self, name), 1)
        # Noise of a 32nd of a client's over n may have to hide the grid of n clients'
        # mean, and be itself within what can be drawn in float32.
        least, most = 2.0**-116 * self.n, 2.0**122
        for name in ("sigma_u", "sigma_e", "n_down"):
            stddev = check_nonnegative(name, getattr(self, name))
            ok = stddev == 0 or least <= stddev <= most
            allowed = f"0 or {least:.3g}..{most:.3g}, as float32 has it"
            require(ok, name, stddev, allowed)
            object.__setattr__(self, name, stddev)
        if self.C is not None:
            object.__setattr__(self, "C", check_positive("C", self.C))
            check_norm("C", self.C)
        elif self.is_noisy:
            raise ArgumentError("C", None, "a bound, without which noise is no use")

    @property
    def is_noisy(self) -> bool:
        """Whether anyone adds noise."""
        return max(self.sigma_u, self.sigma_e, self.n_down) > 0

    def noise_multiplier(self, observer: str) -> float:
        """Noise standard deviation over the sensitivity of what `observer` sees.

        On an edge round the cloud, other edges and those who get its models are
        granted the noised average of the client's edge.

        Args:
          observer: One of those of `account`.
        """
        if self.C is None:
            return 0.0
        if observer == "super_node":
            return self.sigma_u / (2 * self.C)
        known_clients = 1 if observer == "edge_broadcast" else 0
        edges, known_edges, variance = 1, 0, self.n_down**2
        if self.cloud and observer == "aggregator":
            variance = self.sigma_e**2
        elif self.cloud:
            edges = self.N
            if observer == "fellow_super_node":
                # It subtracts its own upload, with all noise in it.
                known_edges, known_clients = 1, self.n
            variance += (edges - known_edges) * (self.sigma_e / edges) ** 2
        total = self.n * edges
        variance += (total - known_clients) * (self.sigma_u / total) ** 2
        return math.sqrt(variance) / (2 * self.C / total)


def rounds_of(
    noise: HflDpNoise,
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
