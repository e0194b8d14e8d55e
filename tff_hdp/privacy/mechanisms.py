"""One round as one observer sees one client: a mechanism, which is a value.

Each gives its Renyi divergence and its privacy loss distribution (PLD). Whoever
composes rounds knows no more of them than that. dp_accounting is imported when a
PLD is made: it takes longer than all else here together.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tff_hdp.errors import check_count, check_positive, check_probability
from tff_hdp.privacy.divergences import laplace_rdp, log_mean_exp

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import (
        PrivacyLossDistribution as Pld,
    )

# A loss is beyond `loss_span` with probability e^-40 at most, 4e-18.
LOG_TAIL = 40.0


class Mechanism(abc.ABC):
    """What a round releases to an observer; subclasses are frozen dataclasses."""

    # What the round costs beyond its divergences: what holds of those at epsilon
    # holds of the round at epsilon + slack, with e^slack times the delta.
    slack: float = 0.0

    @property
    def no_pld(self) -> str:
        """Why there is no PLD; empty where there is one."""
        if type(self).pld is Mechanism.pld:
            return f"no PLD is written for {type(self).__name__}"
        return ""

    @property
    def most_points(self) -> float:
        """How many points a PLD's grid may have, to be made and searched in seconds."""
        return 2e6

    @abc.abstractmethod
    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """Renyi divergence of one round at each order, in its worse direction."""

    def pld(self, rounds: int, discretisation: float) -> "Pld":
        """Pessimistic privacy loss distribution of `rounds` rounds."""
        raise NotImplementedError(self.no_pld)

    @property
    def loss_span(self) -> float:
        """Privacy loss that a round exceeds with probability below e^-40."""
        return self.pure_epsilon

    @property
    def if_more_is_seen(self) -> "Mechanism":
        """One that shows all that this one does, whose bound may yet be the less."""
        return self

    @property
    def pure_epsilon(self) -> float:
        """Epsilon of one round at delta 0; infinite where there is none."""
        return math.inf

    def given_noise(self, more: int = 0) -> tuple["Mechanism", float]:
        """The mechanism given that there is noise, and how likely there is none.

        How much there is does not depend on the data, so that probability can be
        paid for with delta.

        Args:
          more: How many of the least variances above 0 count as none.
        """
        del more
        return self, 0.0


@dataclasses.dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise on what the client always takes part in.

    Attributes:
      noise_multiplier: Noise standard deviation over sensitivity.

    Raises:
      ArgumentError: If it is not above 0.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return np.asarray(orders) / (2 * self.noise_multiplier**2)

    def pld(self, rounds: int, discretisation: float) -> "Pld":
        """See base class."""
        from dp_accounting.pld import privacy_loss_distribution as pld_lib

        return pld_lib.from_gaussian_mechanism(
            self.noise_multiplier / math.sqrt(rounds),
            value_discretization_interval=discretisation,
        )

    @property
    def loss_span(self) -> float:
        """See base class."""
        z = self.noise_multiplier
        return 0.5 / z**2 + math.sqrt(2 * LOG_TAIL) / z


@dataclasses.dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise on every coordinate of a sum; who takes part is seen.

    Attributes:
      ratio: L2 norm by which the client moves the sum, over the noise's scale.
      q: Probability that the client takes part in a round.
      coordinates: M, over how many coordinates that move may spread. The Renyi
        divergence is largest where it spreads evenly: with t the shift of one
        coordinate over the scale and D_a(t) its divergence, D_a'(t) / t falls, so
        D_a is concave in t^2, of which there is ratio^2 to spread. (With u =
        e^-((2a-1) t) and k = 1 - 1/a, D_a' = (1-u) / (1+ku), and t D_a'' <= D_a'
        says (1-u)(1+ku) >= -u ln(u) (1+k): linear in k, and true at 0 and 1.) The
        PLD's worst spread is not known.

    Raises:
      ArgumentError: If a field is out of range.
    """

    ratio: float
    q: float = 1.0
    coordinates: int = 1

    def __post_init__(self) -> None:
        check_positive("ratio", self.ratio)
        check_probability("q", self.q)
        check_count("coordinates", self.coordinates, 1)

    @property
    def no_pld(self) -> str:
        """See base class."""
        if self.coordinates > 1:
            return "no PLD is known for a vector's Laplace noise"
        return ""

    @property
    def pure_epsilon(self) -> float:
        """See base class. The L1 norm of a shift is at most sqrt(M) times its L2."""
        return math.sqrt(self.coordinates) * self.ratio

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return _laplace_rdp(self, orders)

    def pld(self, rounds: int, discretisation: float) -> "Pld":
        """See base class."""

        def deltas(epsilon: np.ndarray) -> np.ndarray:
            clipped = np.clip(epsilon, -self.ratio, self.ratio)
            present = -np.expm1((clipped - self.ratio) / 2)
            absent = np.maximum(-np.expm1(epsilon), 0.0)
            return (1 - self.q) * absent + self.q * np.maximum(present, absent)

        pmf = connected_dots(deltas, -self.loss_span, self.loss_span, discretisation)
        return pld_of(pmf).self_compose(rounds)


@functools.lru_cache(maxsize=4096)
def _laplace_rdp(m: Laplace, orders: tuple[float, ...]) -> np.ndarray:
    a = np.asarray(orders)
    rdp = m.coordinates * laplace_rdp(m.ratio / math.sqrt(m.coordinates), orders)
    exponent = (rdp * (a - 1))[:, np.newaxis]
    return frozen(log_mean_exp(exponent, np.zeros(1), m.q) / (a - 1))


def connected_dots(
    deltas_of: Callable[[np.ndarray], np.ndarray],
    least: float,
    most: float,
    discretisation: float,
) -> "PLDPmf":
    """Connects the dots of a hockey-stick divergence over all losses there are.

    Args:
      deltas_of: The divergence at an epsilon.
      least: Loss below which there is hardly ever any, < 0.
      most: Loss above which there is hardly ever any, > 0.
      discretisation: Distance of the dots.
    """
    from dp_accounting.pld import pld_pmf

    low, high = math.floor(least / discretisation), math.ceil(most / discretisation)
    deltas = deltas_of(np.arange(low, high + 1) * discretisation)
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        discretisation, low, high, deltas
    )
    # To compose a sparse one the library takes its size to the power of the rounds.
    return pmf.to_dense_pmf()


def pld_of(*directions: "PLDPmf") -> "Pld":
    """The distribution of one or two (remove, add) directions' losses."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    return PrivacyLossDistribution(*directions)


def frozen(array: np.ndarray) -> np.ndarray:
    """`array`, which nobody can change: it is kept for the next who asks."""
    array.flags.writeable = False
    return array
