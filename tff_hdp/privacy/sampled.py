"""The Gaussian mechanism on a sum in which a client takes part only sometimes."""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from tff_hdp.privacy.divergences import (
    log_mean_exp,
    log_moments,
    sampled_delta,
    without_replacement_moments,
)
from tff_hdp.privacy.mechanisms import (
    LOG_TAIL,
    Gaussian,
    Mechanism,
    connected_dots,
    frozen,
    pld_of,
)
from tff_hdp.privacy.spectrum import Spectrum

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import (
        PrivacyLossDistribution as Pld,
    )


# Beyond so many an account is of bins of them.
_MOST_VARIANCES = 300
# Of a draw; what is less likely is accounted as the worst.
_NEGLIGIBLE = 1e-20
# Of a grid for each of whose points and variances a divergence is computed.
_MOST_POINTS = 5e5


@dataclasses.dataclass(frozen=True)
class SampledGaussian(Mechanism):
    """Gaussian noise on a sum in which the client takes part with probability q.

    Attributes:
      q: Probability that the client takes part in a round.
      spectrum: Noise variance in units of the squared sensitivity, given that
        the client takes part. The observer knows the realised variance.
      hidden: Whether the observer does not learn if the client took part; the
        variance must then not depend on it.
      slack: See base class.
    """

    q: float
    spectrum: Spectrum
    hidden: bool
    slack: float = 0.0

    @property
    def noise_multiplier(self) -> float | None:
        """The noise multiplier if it is the same every round, else None."""
        variance = self.spectrum.variances[0]
        certain = self.spectrum.is_certain and variance > 0
        return math.sqrt(variance) if certain else None

    @property
    def loss_span(self) -> float:
        """See base class."""
        span = 0.0
        s = self.spectrum.compact()
        for v, log_p in zip(s.variances, s.log_probabilities, strict=True):
            if v > 0:
                # A Gaussian tail, with the variance's own probability spent.
                sigmas = math.sqrt(2 * max(0.0, LOG_TAIL + log_p))
                span = max(span, 0.5 / v + sigmas / math.sqrt(v))
        return span

    @property
    def most_points(self) -> float:
        """See base class."""
        return super().most_points if self.spectrum.is_certain else _MOST_POINTS

    def given_noise(self, more: int = 0) -> tuple["SampledGaussian", float]:
        """See base class; the largest variance is always noise."""
        s = self.spectrum
        least = min(int(s.variances[0] == 0.0) + more, len(s.variances) - 1)
        if least == 0:
            return self, 0.0
        bare = float(np.exp(special.logsumexp(s.log_probabilities[:least])))
        # 1 - bare would lose its digits, or all of it, where there is hardly any noise.
        noisy = float(special.logsumexp(s.log_probabilities[least:]))
        rest = Spectrum(
            s.variances[least:], tuple(p - noisy for p in s.log_probabilities[least:])
        )
        bare *= 1.0 if self.hidden else self.q
        return dataclasses.replace(self, spectrum=rest), bare

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class."""
        return _sampled_gaussian_rdp(self, orders)

    def pld(self, rounds: int, discretisation: float) -> "Pld":
        """See base class."""
        z = self.noise_multiplier
        if z is not None and self.q == 1.0:
            return Gaussian(z).pld(rounds, discretisation)
        return _sampled_pld(self, discretisation).self_compose(rounds)


@dataclasses.dataclass(frozen=True)
class FixedSizeGaussian(Mechanism):
    """Gaussian noise on the sum of exactly k of n clients, replace-one neighbours.

    Attributes:
      n: Clients to draw from.
      k: Clients drawn, uniformly without replacement.
      noise_multiplier: Noise standard deviation over the replace-one sensitivity.
      colluders: How many of the n, none of them the client, tell the observer whether
        they were drawn. How many were depends on chance alone, so that divergences are
        means over it.
      slack: See base class.
      revealed: Noise variance given who takes part; None where it is always that of
        the noise multiplier, which is of the least.
    """

    n: int
    k: int
    noise_multiplier: float
    colluders: int = 0
    slack: float = 0.0
    revealed: Spectrum | None = None

    @property
    def most_points(self) -> float:
        """See base class."""
        return _MOST_POINTS

    def rdp(self, orders: tuple[float, ...]) -> np.ndarray:
        """See base class; the less of two bounds.

        One is for sampling without replacement (Wang, Balle, Kasiviswanathan
        2019), the other gives participation away; it is the less for little
        noise.
        """
        return np.fmin(_fixed_size_rdp(self, orders), self._shown.rdp(orders))

    @property
    def if_more_is_seen(self) -> Mechanism:
        """See base class; of no use where how much noise there is is certain."""
        return self if self.revealed is None else self._shown

    @property
    def loss_span(self) -> float:
        """See base class."""
        return Gaussian(self.noise_multiplier).loss_span

    def pld(self, rounds: int, discretisation: float) -> "Pld":
        """See base class.

        Where P and Q dominate the mechanism, (1-q) Q + q P and Q dominate it under
        sampling without replacement at losses from 0 on, P and (1-q) P + q Q below
        (Zhu, Dong and Wang 2022, Theorem 11).
        """
        rates, chances = self.rates

        def deltas(epsilon: np.ndarray) -> np.ndarray:
            seen = epsilon >= 0.0
            # Where all who were drawn collude.
            total = max(0.0, 1.0 - chances.sum()) * -np.expm1(np.minimum(epsilon, 0.0))
            for q, chance in zip(rates, chances, strict=True):
                of = functools.partial(
                    sampled_delta, q=q, spectrum=self._spectrum, hidden=True
                )
                total[seen] += chance * of(epsilon[seen], remove=True)
                total[~seen] += chance * of(epsilon[~seen], remove=False)
            return total

        most = float(_sampled_loss(rates[0], self.loss_span))
        pmf = connected_dots(deltas, -most, most, discretisation)
        return pld_of(pmf).self_compose(rounds)

    @property
    def rates(self) -> tuple[np.ndarray, np.ndarray]:
        """The client's chances to be drawn, given how many colluders were.

        Returns:
          The chances, the largest first and none 0, and how likely each is; what is
          missing from 1 there is that all who were drawn collude.
        """
        from scipy import stats

        n, k, c = self.n, self.k, self.colluders
        drawn = np.arange(max(0, k - (n - c)), min(c, k - 1) + 1)
        likely = stats.hypergeom.pmf(drawn, n, c, k)
        kept = likely >= _NEGLIGIBLE
        kept[0] = True
        # To leave them out would be to promise more.
        likely[0] += likely[~kept].sum()
        return (k - drawn[kept]) / (n - c), likely[kept]

    @property
    def _spectrum(self) -> Spectrum:
        return Spectrum((self.noise_multiplier**2,), (0.0,))

    @property
    def _shown(self) -> SampledGaussian:
        """Who takes part is seen, and so how much noise there is."""
        spectrum = self._spectrum if self.revealed is None else self.revealed
        q = self.k / self.n
        return SampledGaussian(q, spectrum, hidden=False, slack=self.slack)


# Renyi divergences, kept -------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _sampled_gaussian_rdp(m: SampledGaussian, orders: tuple[float, ...]) -> np.ndarray:
    if m.hidden and m.q < 1.0:
        rdp = _hidden_rdp(m, orders)
        if rdp is not None:
            return frozen(np.fmin(rdp, _revealed_rdp(m, orders)))
    return frozen(_revealed_rdp(m, orders))


@functools.lru_cache(maxsize=1024)
def _fixed_size_rdp(m: FixedSizeGaussian, orders: tuple[float, ...]) -> np.ndarray:
    z = m.noise_multiplier
    if z == 0.0:
        return frozen(np.full(len(orders), np.inf))
    moments = without_replacement_moments(*m.rates, z, orders)
    return frozen(moments / (np.asarray(orders) - 1))


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
    spectrum = m.spectrum.compact().binned(_MOST_VARIANCES)
    moments = np.stack(
        [log_moments(m.q, math.sqrt(v), orders) for v in spectrum.variances], axis=-1
    )
    log_p = np.asarray(spectrum.log_probabilities)
    return log_mean_exp(moments, log_p, 1.0) / (np.asarray(orders) - 1)


# Privacy loss distributions ----------------------------------------------------


# For every account of a run that goes on.
@functools.lru_cache(maxsize=32)
def _sampled_pld(m: SampledGaussian, discretisation: float) -> "Pld":
    """The PLD of one round.

    The hockey-stick divergence of the pair (variance, output) is the mean of
    the divergences given the variance, so it is exact at the grid's points and
    pessimistic between them. With one variance it is dp_accounting's PLD of a sampled
    Gaussian, which goes through the points one by one in Python.
    """
    spectrum = m.spectrum.compact().binned(_MOST_VARIANCES)
    losses = np.array([-m.loss_span, m.loss_span])
    if m.hidden:
        losses = _sampled_loss(m.q, losses)

    def pmf(remove: bool) -> "PLDPmf":
        deltas = functools.partial(
            sampled_delta, q=m.q, spectrum=spectrum, hidden=m.hidden, remove=remove
        )
        least, most = losses if remove else -losses[::-1]
        return connected_dots(deltas, least, most, discretisation)

    return pld_of(pmf(True), pmf(False)) if m.hidden else pld_of(pmf(True))


def _sampled_loss(q: float, loss: np.ndarray | float) -> np.ndarray | float:
    """The loss of (1-q) Q + q P against Q where that of P against Q is `loss`."""
    return loss if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + loss)
