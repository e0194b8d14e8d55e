"""One round as one observer sees one client: a mechanism, which is a value.

Each gives its Renyi divergence, its privacy loss distribution (PLD) and its
dp_accounting event. Whoever composes rounds knows no more of them than that.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import ClassVar

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib

from tff_hdp.errors import check_count, check_positive, check_probability, require
from tff_hdp.privacy.divergences import gaussian_epsilon, laplace_rdp, log_mean_exp
from tff_hdp.privacy.plan import MIN_STEPS

Pld = pld_lib.PrivacyLossDistribution


class Mechanism(abc.ABC):
    """What a round releases to an observer; subclasses are frozen dataclasses."""

    # Why there is no PLD; empty where there is one.
    no_pld: ClassVar[str] = ""

    @property
    @abc.abstractmethod
    def event(self) -> dp_accounting.DpEvent | None:
        """The round as a dp_accounting event, or None where it has none."""

    @abc.abstractmethod
    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """Renyi divergence of one round at each order, in its worse direction."""

    def pld(self, rounds: int, discretisation: float) -> Pld:
        """Pessimistic privacy loss distribution of `rounds` rounds."""
        raise NotImplementedError(self.no_pld)

    @property
    def loss_span(self) -> float:
        """Privacy loss that a round exceeds with probability below 1e-17."""
        return self.pure_epsilon

    @property
    def pure_epsilon(self) -> float:
        """Epsilon of one round at delta 0; infinite where there is none."""
        return math.inf

    def given_noise(self) -> tuple["Mechanism", float]:
        """The mechanism given that there is noise, and how likely there is none.

        Whether there is any does not depend on the data, so that probability
        can be paid for with delta.
        """
        return self, 0.0


@dataclasses.dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise on what the client always takes part in.

    Attributes:
      multiplier: Noise standard deviation over sensitivity.
    """

    multiplier: float

    def __post_init__(self) -> None:
        check_positive("multiplier", self.multiplier)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """See base class."""
        return dp_accounting.GaussianDpEvent(self.multiplier)

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return np.asarray(orders) / (2 * self.multiplier**2)

    def pld(self, rounds: int, discretisation: float) -> Pld:
        """See base class."""
        return pld_lib.from_gaussian_mechanism(
            self.multiplier / math.sqrt(rounds),
            value_discretization_interval=discretisation,
        )

    @property
    def loss_span(self) -> float:
        """See base class."""
        return 0.5 / self.multiplier**2 + math.sqrt(80.0) / self.multiplier

    def epsilon(self, delta: float) -> float:
        """Exact epsilon of one round."""
        return gaussian_epsilon(self.multiplier, delta)


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Gaussian noise of which parts are drawn on the grid of a fixed point.

    Its divergences are those of continuous noise: from `MIN_STEPS` on a sum of
    discrete Gaussians differs from a Gaussian by less than e^-900 at any point
    (Kairouz, Liu and Steinke 2021, Theorem 1).

    Attributes:
      continuous: The same round with continuous noise.
      steps: The least standard deviation of a discrete part, in steps of the grid.
    """

    continuous: Mechanism
    steps: float

    def __post_init__(self) -> None:
        # Multipliers are compared likewise, and just enough may round to less.
        ok = self.steps >= MIN_STEPS * (1 - 1e-9)
        require(ok, "steps", self.steps, f"at least {MIN_STEPS:g}")

    @property
    def no_pld(self) -> str:
        """See base class."""
        return self.continuous.no_pld

    @property
    def event(self) -> dp_accounting.DpEvent | None:
        """See base class."""
        return self.continuous.event

    @property
    def loss_span(self) -> float:
        """See base class."""
        return self.continuous.loss_span

    def given_noise(self) -> tuple[Mechanism, float]:
        """See base class."""
        given, bare = self.continuous.given_noise()
        return dataclasses.replace(self, continuous=given), bare

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return self.continuous.rdp(orders)

    def pld(self, rounds: int, discretisation: float) -> Pld:
        """See base class."""
        return self.continuous.pld(rounds, discretisation)


@dataclasses.dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise on every coordinate of a sum; who takes part is seen.

    Attributes:
      ratio: L1 norm by which the client moves the sum, over the noise's scale.
      q: Probability that the client takes part in a round.
      coordinates: Over how many coordinates that move may spread. The Renyi
        divergence is least for one; of the PLD that is not known.
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
        return "no PLD is known for a vector's Laplace noise" * (self.coordinates > 1)

    @property
    def event(self) -> dp_accounting.DpEvent | None:
        """See base class."""
        return dp_accounting.LaplaceDpEvent(1 / self.ratio) if self.q == 1.0 else None

    @property
    def pure_epsilon(self) -> float:
        """See base class."""
        return self.ratio

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return _laplace_rdp(self, orders)

    def pld(self, rounds: int, discretisation: float) -> Pld:
        """See base class."""

        def deltas(epsilon: np.ndarray) -> np.ndarray:
            clipped = np.clip(epsilon, -self.ratio, self.ratio)
            present = -np.expm1((clipped - self.ratio) / 2)
            absent = np.maximum(-np.expm1(epsilon), 0.0)
            return (1 - self.q) * absent + self.q * np.maximum(present, absent)

        return Pld(connected_dots(deltas, self.loss_span, discretisation)).self_compose(
            rounds
        )


@functools.lru_cache(maxsize=4096)
def _laplace_rdp(m: Laplace, orders: tuple[float, ...]) -> np.ndarray:
    a = np.asarray(orders)
    exponent = (laplace_rdp(m.ratio, orders) * (a - 1))[:, np.newaxis]
    return frozen(log_mean_exp(exponent, np.zeros(1), m.q) / (a - 1))


def connected_dots(
    deltas_of: Callable[[np.ndarray], np.ndarray], span: float, discretisation: float
) -> pld_pmf.PLDPmf:
    """Connects the dots of a hockey-stick divergence over the losses up to `span`."""
    top = max(1, math.ceil(span / discretisation))
    deltas = deltas_of(np.arange(-top, top + 1) * discretisation)
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        discretisation, -top, top, deltas
    )


def frozen(array: np.ndarray) -> np.ndarray:
    """`array`, which nobody can change: it is kept for the next who asks."""
    array.flags.writeable = False
    return array
