"""How much noise variance is there when the participants carry the noise."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import special

_EXACT_SUPPORT = 20_000
# Of pairs of variances that are added up at once.
_MOST_PAIRS = 2 * 10**6
_BIN = 5e-4
_LOG_TAIL_OF_BINS = -100.0
# Of a large binomial, counts are exact so many standard deviations about the mean,
# beyond which the probability is below e^-700; lower ones are taken in segments.
_WINDOW = 40
_SEGMENT = 1 / 64
# Variance, in squared steps, of the Gaussian that blurs a grid in `as_continuous`.
_BLUR = 3.0


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Distribution of the noise variance seen by an observer in one round.

    Attributes:
      variances: Increasing, in units of the squared sensitivity.
      log_probabilities: Natural logs; their exponentials sum to 1.
    """

    variances: tuple[float, ...]
    log_probabilities: tuple[float, ...]

    @property
    def is_certain(self) -> bool:
        """Whether there is only one possible variance."""
        return len(self.variances) == 1

    def compact(self, log_tail: float = -60.0) -> "Spectrum":
        """Rounds tails down in variance, which only raises epsilon.

        Args:
          log_tail: Natural log of the probability of either tail.
        """
        v = np.asarray(self.variances)
        log_p = np.asarray(self.log_probabilities)
        low = int(np.searchsorted(np.logaddexp.accumulate(log_p), log_tail))
        upper = np.logaddexp.accumulate(log_p[::-1])[::-1]
        high = max(int(np.searchsorted(-upper, -log_tail)), low + 1)
        log_p = np.append(log_p[low : high - 1], upper[high - 1])
        v = v[low:high]
        if low > 0:
            head = special.logsumexp(self.log_probabilities[:low])
            v = np.insert(v, 0, self.variances[0])
            log_p = np.insert(log_p, 0, head)
        return Spectrum(tuple(v.tolist()), tuple(log_p.tolist()))

    def binned(self, most: int) -> "Spectrum":
        """Rounds variances down to a geometric grid where there are more than `most`.

        By up to 0.2 %, or what it takes for so many: 0.8 % for 300 that span a factor
        of ten.
        """
        if len(self.variances) <= most:
            return self
        v, log_p = np.asarray(self.variances), np.asarray(self.log_probabilities)
        positive = v[v > 0]
        width = math.expm1(math.log(positive[-1] / positive[0]) / most)
        return _binned(v, log_p, max(width, 2e-3))

    def changed(self, increasing: Callable[[float], float]) -> "Spectrum":
        """The same distribution of what an increasing function makes of variances."""
        return Spectrum(tuple(map(increasing, self.variances)), self.log_probabilities)

    def as_continuous(self, step: float) -> tuple["Spectrum", float]:
        """Continuous noise and a slack that discrete noise is no worse than.

        A discrete Gaussian K of variance s^2 has the same losses as a continuous one as
        a function of its value, (2<k, m> - |m|^2) / 2s^2 for a shift m, and e^loss -
        e^eps, where positive, is convex in k. So a hockey-stick divergence can only
        grow when independent noise of mean 0 is added to K: take a Gaussian of variance
        b = `_BLUR` in every coordinate. From 10 steps on that sum's density is within 1
        +- 3e-25 of the Gaussian's of variance s^2 + b (Poisson summation), and the
        divergence over it is e^slack times that of continuous noise of variance s^4 /
        (s^2 + b) at eps - slack, with slack = b |m|^2 / 2s^4. The argument does not
        need masses to be 1, so it passes through sampling and composition.

        Args:
          step: The grid's step, in sensitivities.

        Returns:
          The variance of the continuous noise, and the slack; see `Mechanism.slack`.
        """
        blur = _BLUR * step**2
        least = min((v for v in self.variances if v > 0), default=math.inf)
        blurred = self.changed(lambda v: v * v / (v + blur) if v else 0.0)
        return blurred, blur / (2.0 * least * least)

    def with_skips(
        self,
        *,
        least: int,
        others: int,
        rates: tuple[float, float],
        colluders: int = 0,
    ) -> "Spectrum":
        """With those rounds in which the client tips the balance for its zone.

        A zone with fewer than `least` = m participants is left out. With m - 1
        others there, the client's coming decides whether the zone's sum, of norm up
        to m S, is in the output: the noise is worth 1/m^2 of its variance. With more
        others, its coming moves the output by S; with fewer, not at all. How many
        others there are does not depend on the client.

        Args:
          least: m.
          others: The zone's other clients.
          rates: The least and the largest probability that any of them takes part,
            independently; the one between them that tips most often is taken.
          colluders: How many of them stay away whenever that makes it likelier, each
            drawn with the largest probability.

        Returns:
          The distribution, if this one is that where the zone is not left out.
        """
        from scipy import stats

        # With so many colluders there the others have to be so many fewer.
        missing = least - 1 - np.arange(min(colluders, least - 1) + 1)
        honest = others - colluders
        # The likelihood of so many out of all has one maximum.
        rate = np.clip(missing / max(honest, 1), *rates)
        log_tips = np.maximum.accumulate(stats.binom.logpmf(missing, honest, rate))
        drawn = np.arange(colluders + 1)
        log_drawn = stats.binom.logpmf(drawn, colluders, rates[1])
        there = np.minimum(drawn, len(missing) - 1)
        log_tips = min(float(special.logsumexp(log_drawn + log_tips[there])), 0.0)
        log_rest = math.log(-math.expm1(log_tips)) if log_tips < 0.0 else -math.inf
        v, log_p = np.asarray(self.variances), np.asarray(self.log_probabilities)
        log_p = np.concatenate([log_p + log_rest, log_p + log_tips])
        keep = np.isfinite(log_p)
        # Where there is no noise both variances are 0, and one entry is their sum.
        return _joined(np.concatenate([v, v / least**2])[keep], log_p[keep])


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """Noising clients of one zone, other than the one whose privacy is asked.

    Attributes:
      weight: Variance that each participant adds.
      counts: Increasing from 0, how many of them may take part, at least.
      log_pmf: Natural logs of the counts' probabilities.
      binomial: (trials, probability) where the count is binomial, so that equal
        pools can be merged exactly; else None.
    """

    weight: float
    counts: np.ndarray
    log_pmf: np.ndarray
    binomial: tuple[int, float] | None = None

    def left_out_below(self, least: int) -> "Pool":
        """The pool of a zone that is left out if fewer than `least` take part."""
        enough = self.counts >= least
        log_pmf = np.where(enough, self.log_pmf, -np.inf)
        log_pmf[0] = special.logsumexp(self.log_pmf[~enough])
        return Pool(self.weight, self.counts, log_pmf)


def binomial_pool(weight: float, trials: int, probability: float) -> Pool:
    """A pool of which each client takes part independently.

    Of a large one counts far from the mean are rounded down, which can only raise
    epsilon.
    """
    from scipy import stats

    mean = trials * probability
    reach = _WINDOW * math.sqrt(mean * (1.0 - probability)) + _WINDOW
    low, high = max(0, int(mean - reach)), min(trials, math.ceil(mean + reach))
    if trials <= _EXACT_SUPPORT or high - low > trials // 2:
        low, high = 0, trials
    counts = np.arange(low, high + 1)
    log_pmf = stats.binom.logpmf(counts, trials, probability)
    if high < trials:
        rest = stats.binom.logpmf(high + 1, trials, probability)
        log_pmf[-1] = np.logaddexp(log_pmf[-1], rest + math.log(trials - high))
    if low > 0:
        # Below the mean the last count of a segment is its likeliest.
        ratios = np.arange(0.0, math.log(low), _SEGMENT)
        starts = np.unique([0, *np.exp(ratios).astype(int)])
        ends = np.append(starts[1:], low)
        heads = stats.binom.logpmf(ends - 1, trials, probability)
        log_pmf = np.concatenate([heads + np.log(ends - starts), log_pmf])
        counts = np.concatenate([starts, counts])
    return Pool(weight, counts, log_pmf, (trials, probability))


def hypergeometric_pool(
    weight: float, *, others: int, noising: int, drawn: int, arrival: float
) -> Pool:
    """A pool in a zone of which exactly so many clients are drawn.

    Args:
      weight: Variance that each participant adds.
      others: Clients that can be drawn.
      noising: How many of them carry noise that counts.
      drawn: How many are drawn, uniformly without replacement.
      arrival: Probability that a drawn client delivers.

    Returns:
      The pool, with drop-outs thinning the draw.
    """
    from scipy import stats

    counts = np.arange(min(noising, drawn) + 1)
    pmf = stats.hypergeom.pmf(counts, others, noising, drawn)
    if others == 0:  # of which SciPy says NaN
        pmf = np.ones(1)
    if arrival < 1.0:
        likely = np.flatnonzero(pmf)
        thinned = np.zeros(len(counts))
        for count in likely:
            thinned += pmf[count] * stats.binom.pmf(counts, count, arrival)
        pmf = thinned
    # `Pool.counts` begin at 0; what cannot happen is no variance in the end.
    likely = np.flatnonzero((pmf > 0) | (counts == 0))
    with np.errstate(divide="ignore"):
        return Pool(weight, likely, np.log(pmf[likely]))


def noise_spectrum(base: float, pools: Iterable[Pool]) -> Spectrum:
    """Distribution of `base` plus what the pools' participants add.

    Exact for pools that merge into one binomial and for small supports. Otherwise
    every sum of two distributions rounds variances down to bins of relative width
    5e-4 and tails below e^-100, which can only raise epsilon.
    """
    spectrum = Spectrum((base,), (0.0,))
    alike: dict[tuple[float, bytes, bytes], list[Pool]] = {}
    for pool in _merge([p for p in pools if p.weight > 0]):
        key = (pool.weight, pool.counts.tobytes(), pool.log_pmf.tobytes())
        alike.setdefault(key, []).append(pool)
    for pools_alike in alike.values():
        pool, times = pools_alike[0], len(pools_alike)
        power = Spectrum(tuple(pool.weight * pool.counts), tuple(pool.log_pmf))
        # By squares: 999 zones alike are added up in 17 sums.
        while times:
            if times % 2:
                spectrum = _sum(spectrum, power)
            times //= 2
            if times:
                power = _sum(power, power)
    return spectrum


def _sum(a: Spectrum, b: Spectrum) -> Spectrum:
    """Distribution of the sum of two independent variances."""
    if len(a.variances) * len(b.variances) > _EXACT_SUPPORT:
        a, b = a.compact(_LOG_TAIL_OF_BINS), b.compact(_LOG_TAIL_OF_BINS)
    if len(a.variances) * len(b.variances) > _MOST_PAIRS:
        a, b = (
            _binned(np.asarray(each.variances), np.asarray(each.log_probabilities))
            for each in (a, b)
        )
    v = np.add.outer(a.variances, b.variances).ravel()
    log_p = np.add.outer(a.log_probabilities, b.log_probabilities).ravel()
    keep = np.isfinite(log_p)
    return _joined(v[keep], log_p[keep])


def _merge(pools: Sequence[Pool]) -> list[Pool]:
    """Adds up binomial pools of equal weight and probability."""

    def key(pool: Pool) -> tuple[float, float]:
        return (pool.weight, -1.0 if pool.binomial is None else pool.binomial[1])

    merged = []
    for (weight, probability), group in itertools.groupby(sorted(pools, key=key), key):
        members = list(group)
        if probability < 0.0 or len(members) == 1:
            merged += members
        else:
            trials = sum(p.binomial[0] for p in members)
            merged.append(binomial_pool(weight, trials, probability))
    return merged


def _joined(v: np.ndarray, log_p: np.ndarray) -> Spectrum:
    """Joins equal variances; beyond a size, also those in one relative bin."""
    if len(v) > _EXACT_SUPPORT:
        return _binned(v, log_p).compact(_LOG_TAIL_OF_BINS)
    order = np.argsort(v, kind="stable")
    v, log_p = v[order], log_p[order]
    # Sums of the same terms in another order differ by rounding only.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(v) > 1e-12 * v[1:]]))
    log_p = np.logaddexp.reduceat(log_p, starts)
    return Spectrum(tuple(v[starts].tolist()), tuple(log_p.tolist()))


def _binned(v: np.ndarray, log_p: np.ndarray, width: float = _BIN) -> Spectrum:
    """Rounds positive variances down to a geometric grid."""
    positive = v > 0
    least = v[positive].min()
    bins = np.zeros(len(v), dtype=np.int64)
    bins[positive] = 1 + np.log(v[positive] / least) / math.log1p(width)
    # Probabilities below e^-700 would underflow; they go to the lowest variance.
    bins[log_p < -700.0] = 0 if not positive.all() else 1
    mass = np.bincount(bins, weights=np.exp(np.maximum(log_p, -700.0)))
    values = least * (1 + width) ** (np.arange(len(mass)) - 1)
    values[0] = 0.0
    used = mass > 0
    return Spectrum(tuple(values[used].tolist()), tuple(np.log(mass[used]).tolist()))
