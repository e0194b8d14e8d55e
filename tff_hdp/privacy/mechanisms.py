"""One round as one observer sees it: a sampled Gaussian mechanism.

Two kinds cover every observer of a noise plan. Both give the Renyi divergence
of a round and, where there is one, its privacy loss distribution (PLD).
"""

import dataclasses
import functools
import math

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from tff_hdp.privacy import gaussian
from tff_hdp.privacy.renyi import log_mean_exp, log_moments
from tff_hdp.privacy.spectrum import Spectrum

_DEFAULT = tuple(RdpAccountant().orders.tolist())
_LOW = (1.011, 1.015, 1.02, 1.03, 1.05, 1.07, *(1.15 + 0.1 * k for k in range(8)))
_HIGH = (72, 80, 96, 112, 160, 192, 224, 320, 384, 448, 640, 768, 896)
# dp_accounting's default orders, with more for very large epsilons and in the
# gaps above 63.
ORDERS = tuple(sorted({*_LOW, *_DEFAULT, *_HIGH}))
# Used where the best of ORDERS is the largest, that is for tiny epsilons.
LARGE_ORDERS = tuple(float(round(2 ** (k / 2))) for k in range(21, 35))


@dataclasses.dataclass(frozen=True)
class SampledGaussian:
    """Gaussian noise on a sum in which the client takes part with probability q.

    Attributes:
      q: Probability that the client takes part in a round.
      spectrum: Noise variance in units of the squared sensitivity, given that
        the client takes part. The observer knows the realised variance.
      hidden: Whether the observer does not learn if the client took part; the
        variance must then not depend on it.
    """

    q: float
    spectrum: Spectrum
    hidden: bool

    @property
    def multiplier(self) -> float | None:
        """The noise multiplier if it is the same every round, else None."""
        return math.sqrt(self.spectrum.variances[0]) if self._is_single else None

    @property
    def _is_single(self) -> bool:
        return self.spectrum.is_certain and self.spectrum.variances[0] > 0

    @property
    def event(self) -> dp_accounting.DpEvent | None:
        """The round as a dp_accounting event, or None where it has none."""
        if self.multiplier is None or (self.q < 1.0 and not self.hidden):
            return None
        event = dp_accounting.GaussianDpEvent(self.multiplier)
        if self.q == 1.0:
            return event
        return dp_accounting.PoissonSampledDpEvent(self.q, event)

    @property
    def loss_span(self) -> float:
        """Privacy loss that a round exceeds with probability below 1e-17."""
        span = 0.0
        s = self.spectrum.compact()
        for v, log_p in zip(s.variances, s.log_probabilities, strict=True):
            if v > 0:
                # A Gaussian tail, with the variance's own probability spent.
                sigmas = math.sqrt(2 * max(0.0, 40.0 + log_p))
                span = max(span, 0.5 / v + sigmas / math.sqrt(v))
        return span

    def given_noise(self) -> tuple["SampledGaussian", float]:
        """The mechanism given that there is noise, and how likely there is none.

        Whether there is any does not depend on the data, so that probability
        can be paid for with delta.
        """
        s = self.spectrum
        if s.variances[0] > 0 or s.is_certain:
            return self, 0.0
        bare = math.exp(s.log_probabilities[0])
        rest = Spectrum(
            s.variances[1:],
            tuple(p - math.log1p(-bare) for p in s.log_probabilities[1:]),
        )
        bare *= 1.0 if self.hidden else self.q
        return dataclasses.replace(self, spectrum=rest), bare

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """Renyi divergence of one round at each order, both directions."""
        return _sampled_gaussian_rdp(self, orders)

    def pld(
        self, rounds: int, discretisation: float
    ) -> privacy_loss_distribution.PrivacyLossDistribution:
        """Pessimistic privacy loss distribution of `rounds` rounds."""
        if self._is_single and self.q == 1.0:
            return privacy_loss_distribution.from_gaussian_mechanism(
                self.multiplier / math.sqrt(rounds),
                value_discretization_interval=discretisation,
            )
        if self._is_single and self.hidden:
            one = privacy_loss_distribution.from_gaussian_mechanism(
                self.multiplier,
                value_discretization_interval=discretisation,
                sampling_prob=self.q,
            )
        else:
            one = _mixture_pld(self, discretisation)
        return one.self_compose(rounds)


@dataclasses.dataclass(frozen=True)
class FixedSizeGaussian:
    """Gaussian noise on the sum of exactly k of n clients, replace-one neighbours.

    Attributes:
      n: Clients to draw from.
      k: Clients drawn, uniformly without replacement.
      multiplier: Noise standard deviation over the replace-one sensitivity.
    """

    n: int
    k: int
    multiplier: float

    @property
    def event(self) -> dp_accounting.DpEvent:
        """The round as a dp_accounting event."""
        return dp_accounting.SampledWithoutReplacementDpEvent(
            self.n, self.k, dp_accounting.GaussianDpEvent(self.multiplier)
        )

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """Renyi divergence of one round, the less of two bounds.

        One is for sampling without replacement (Wang, Balle, Kasiviswanathan
        2019), the other gives participation away; it is the less for little
        noise.
        """
        spectrum = Spectrum((self.multiplier**2,), (0.0,))
        revealed = SampledGaussian(self.k / self.n, spectrum, hidden=False)
        return np.fmin(_fixed_size_rdp(self, orders), revealed.rdp(orders))


Mechanism = SampledGaussian | FixedSizeGaussian


@functools.lru_cache(maxsize=4096)
def _sampled_gaussian_rdp(m: SampledGaussian, orders: tuple[float, ...]) -> np.ndarray:
    if m.hidden and m.q < 1.0:
        rdp = _hidden_rdp(m, orders)
        if rdp is not None:
            return _frozen(np.fmin(rdp, _revealed_rdp(m, orders)))
    return _frozen(_revealed_rdp(m, orders))


@functools.lru_cache(maxsize=1024)
def _fixed_size_rdp(m: FixedSizeGaussian, orders: tuple[float, ...]) -> np.ndarray:
    # Beyond 1024 the bound's quadratic book-keeping costs more than it saves.
    served = tuple(a for a in orders if a <= 1024)
    accountant = RdpAccountant(
        served, dp_accounting.NeighboringRelation.REPLACE_ONE
    ).compose(m.event)
    rdp = np.full(len(orders), np.inf)
    rdp[: len(served)] = accountant.rdp
    return _frozen(rdp)


def _revealed_rdp(m: SampledGaussian, orders: tuple[float, ...]) -> np.ndarray:
    """ln(1 - q + q E[exp(a(a-1) / 2V)]) / (a-1), V the variance.

    This holds whether or not participation is revealed: hiding it is
    post-processing.
    """
    a = np.asarray(orders)
    with np.errstate(divide="ignore"):
        exponent = (a * (a - 1))[:, None] / (2 * np.asarray(m.spectrum.variances))
    log_p = np.asarray(m.spectrum.log_probabilities)
    return log_mean_exp(exponent, log_p, m.q) / (a - 1)


def _hidden_rdp(m: SampledGaussian, orders: tuple[float, ...]) -> np.ndarray | None:
    """Renyi divergence when participation is hidden; None where it cannot help.

    With the variance known and independent of the client's participation the
    moments average: exp((a-1) rdp_a) = E_V[exp((a-1) rdp_a(q, V))].
    """
    # Below this noise participation shows in the output anyway.
    if m.spectrum.variances[0] < 1e-4:
        return None
    spectrum = m.spectrum.compact()
    moments = np.stack(
        [log_moments(m.q, math.sqrt(v), orders) for v in spectrum.variances], axis=-1
    )
    log_p = np.asarray(spectrum.log_probabilities)
    return log_mean_exp(moments, log_p, 1.0) / (np.asarray(orders) - 1)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


# Privacy loss distributions of mixtures --------------------------------------


def _mixture_pld(
    m: SampledGaussian, discretisation: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Connect-the-dots PLD of a mixture of Gaussians over known variances.

    The hockey-stick divergence of the pair (variance, output) is the mean of
    the divergences given the variance, so it is exact at the grid's points and
    pessimistic between them.
    """
    spectrum = m.spectrum.compact()
    deltas_of = _hidden_deltas if m.hidden else _revealed_deltas
    top = max(1, math.ceil(m.loss_span / discretisation))
    grid = np.arange(-top, top + 1) * discretisation
    remove = deltas_of(grid, m.q, spectrum, True)
    pmf_remove = _connect_dots(remove, top, discretisation)
    if not m.hidden:
        return privacy_loss_distribution.PrivacyLossDistribution(pmf_remove)
    add = deltas_of(grid, m.q, spectrum, False)
    return privacy_loss_distribution.PrivacyLossDistribution(
        pmf_remove, _connect_dots(add, top, discretisation)
    )


def _connect_dots(
    deltas: np.ndarray, top: int, discretisation: float
) -> pld_pmf.PLDPmf:
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        discretisation, -top, top, deltas
    )


def _mean_gaussian_delta(epsilon: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    total = np.zeros_like(epsilon)
    for v, log_p in zip(spectrum.variances, spectrum.log_probabilities, strict=True):
        total += math.exp(log_p) * gaussian.delta(epsilon, math.sqrt(v))
    return total


def _revealed_deltas(
    epsilon: np.ndarray, q: float, spectrum: Spectrum, remove: bool
) -> np.ndarray:
    del remove  # The Gaussian pair is symmetric.
    absent = (1 - q) * np.maximum(-np.expm1(epsilon), 0.0)
    return absent + q * _mean_gaussian_delta(epsilon, spectrum)


def _hidden_deltas(
    epsilon: np.ndarray, q: float, spectrum: Spectrum, remove: bool
) -> np.ndarray:
    """Amplification by subsampling, exact: Balle, Barthe and Gaboardi (2018)."""
    if remove:  # (1-q) N(0) + q N(1) against N(0)
        ratio = 1 + np.expm1(epsilon) / q
        scale, offset = q, -np.expm1(epsilon)
    else:  # N(0) against (1-q) N(0) + q N(1)
        scale = 1 - (1 - q) * np.exp(epsilon)
        ratio = q * np.exp(epsilon) / np.where(scale > 0, scale, 1.0)
        offset = np.zeros_like(epsilon)
    inside = (ratio > 0) & (np.asarray(scale) > 0)
    shifted = np.log(np.where(inside, ratio, 1.0))
    return np.where(inside, scale * _mean_gaussian_delta(shifted, spectrum), offset)
