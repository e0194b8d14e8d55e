"""GFL: who hides what in an iteration, and the paper's epsilon of its noise.

Source: GFL paper, Theorem 2: after i iterations the model's sensitivity is
2 mu B i, and the losses of iterations 1..i add up. The root in the theorem
covers the 2 alone: a Laplace variable of standard deviation sigma_g has scale
sigma_g / sqrt(2).
"""

import dataclasses
import math
from typing import Literal, get_args

from tff_hdp.errors import ArgumentError, check_count, check_positive, require
from tff_hdp.privacy.parts import check_norm
from tff_hdp.protocols.secagg.fixed_point import FixedPoint

Scheme = Literal["none", "iid", "hybrid"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

# Of hybrid noise over mu B, the most that a client moves a model in an iteration.
# Models grow as large as their noise; in float32 they are rounded by 2^-24 of that.
MOST_NOISE = 2.0**10
# Likewise of the norm of all coordinates' noise, and of the weights that a model begins
# with: sums of masked updates are added to them before there is noise.
MOST_WEIGHTS = 2.0**14
# The least that float32 has with all steps of its grid; far below it is flushed to 0.
LEAST_NOISE = 2.0**-100


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
      ArgumentError: If a field is out of range.
    """

    scheme: Scheme
    mu: float
    B: float
    sigma_g: float
    dimension: int
    clients: int
    per_round: int

    def __post_init__(self) -> None:
        require(self.scheme in SCHEMES, "scheme", self.scheme, ", ".join(SCHEMES))
        for name in ("mu", "B"):
            check_positive(name, getattr(self, name))
        check_norm("B", self.B)
        for name in ("dimension", "clients", "per_round"):
            check_count(name, getattr(self, name), 1)
        drawn, most = self.per_round, self.clients
        require(drawn <= most, "per_round", drawn, f"at most {most}, the clients")
        if self.is_noisy:
            sigma_g = check_positive("sigma_g", self.sigma_g)
            allowed = f"at least {LEAST_NOISE:g}, below which float32 has none"
            require(sigma_g >= LEAST_NOISE, "sigma_g", sigma_g, allowed)
            most = 2.0**122
            if self.masked:
                most = min(MOST_NOISE, MOST_WEIGHTS / math.sqrt(self.dimension))
                most *= self.mu * self.B
            allowed = f"at most {most:g}, beyond which float32 is too coarse"
            require(sigma_g <= most, "sigma_g", sigma_g, allowed)
        elif self.sigma_g != 0:
            raise ArgumentError("sigma_g", self.sigma_g, "0 without noise")
        if self.masked and drawn < 2:
            raise ArgumentError("per_round", drawn, "at least 2, so that masks hide")

    def check_start(self, norm: float) -> None:
        """Raises ArgumentError if clients' steps are lost in a model of such a norm.

        A step of about half of what float32 rounds to becomes all of it, and moves the
        model by twice what is accounted. Clients' own noise covers what `iid` rounds.
        """
        least = norm / (MOST_WEIGHTS * self.B)
        allowed = f"at least {least:.3g} with a gradient bound of {self.B:g} and "
        allowed += f"weights of norm {norm:.3g}"
        require(not self.masked or self.mu >= least, "mu", self.mu, allowed)

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
      ArgumentError: If an argument is out of range.
    """
    i = check_count("i", i)
    for name, value in {"mu": mu, "B": B, "sigma_g": sigma_g}.items():
        check_positive(name, value)
    M = 1 if dimension is None else check_count("dimension", dimension, 1)
    return math.sqrt(2 * M) * mu * B * i * (i + 1) / sigma_g
