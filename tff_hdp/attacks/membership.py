"""Who took part, by the test that Gaussian noise makes best.

Membership asks whether a known record is in the sum, identification which of M known
candidates is: the likelihood ratio, and the Bayes rule among equally likely ones, both
of a matched filter, summed over rounds. Against noise that is the same in all
directions all depends on the records' inner products alone, so trials are drawn in
the space these span; that the noise is so, and of this size, is what the tests of
`observation` show.
"""

import dataclasses
import functools

import numpy as np

from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import check_count, require

_TRIALS_AT_ONCE = 20_000
# In place of no noise at all, in units of the clip norm.
_NO_NOISE = 1e-6
# What of others is in no direction that is known, as a share of the mean square norm.
_REST = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """Clipped records by their inner products.

    Attributes:
      gram: [N + K, N + K] float64, of N possible clients and then of the attacker.
      own: K, records of the attacker's own examples, which show how others vary.
    """

    gram: np.ndarray
    own: int = 0

    @classmethod
    def of(cls, records: np.ndarray, own: np.ndarray | None = None) -> "Records":
        """Of clients' [N, d] and the attacker's [K, d], those not finite left out."""
        kept = [
            part[np.all(np.isfinite(part), axis=1)].astype(np.float64)
            for part in (records, records[:0] if own is None else own)
        ]
        every = np.concatenate(kept)
        return cls(every @ every.T, len(kept[1]))

    def __len__(self) -> int:
        return len(self.gram) - self.own

    @property
    def norms(self) -> np.ndarray:
        """[N]."""
        return np.sqrt(np.diag(self.gram)[: len(self)])


def clipped(records: np.ndarray, clip_norm: float | None) -> np.ndarray:
    """Rows [N, d], shortened to norm S where they are longer; None clips nothing."""
    if clip_norm is None:
        return records
    # The squares of a record that float32 holds are more than it holds.
    norms = np.linalg.norm(records.astype(np.float64), axis=1, keepdims=True)
    factors = np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))
    return (records * factors).astype(records.dtype)


def membership(
    vantage: Vantage,
    records: Records,
    *,
    stddev: float,
    trials: int,
    rounds: int = 1,
    others_known: bool = True,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of sums with and without a client whose record the attacker knows.

    The score is the logarithm of the likelihood ratio times the noise's variance, which
    all trials share: <sum, c> - T |c|^2 / 2. Longer records tell more, either way.

    Args:
      vantage: Where the attacker stands.
      records: Of possible clients; each trial draws its own.
      stddev: Of every number in what the observer holds.
      trials: Of each kind.
      rounds: T, each with fresh noise; all clients send in each what they sent before.
      others_known: Whether the attacker can subtract the others, which is the worst
        case that a bound speaks of; else it subtracts their mean, and weighs directions
        by how records of its own vary, if it has any.
      rng: Draws clients and noise.

    Returns:
      Scores [trials] with the client, and without.

    Raises:
      ArgumentError: If there are no records, or no trials.
    """
    _check(records, trials)
    others = _unknown_others(vantage, others_known)
    products_of = functools.partial(
        _products, records, others=others, stddev=stddev, rounds=rounds, rng=rng
    )
    scores = []
    for present in (True, False):
        parts = []
        for count in _batches(trials):
            who = rng.integers(len(records), size=count)
            products, squares = products_of(who, present=present)
            own = products[np.arange(count), who]
            parts.append(own - rounds * squares[who] / 2)
        scores.append(np.concatenate(parts))
    return scores[0], scores[1]


def sampled_membership(
    vantage: Vantage,
    records: Records,
    *,
    clip_norm: float,
    trials: int,
    rounds: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """As `membership` where clients are sampled; all others and who came are known.

    The score is the likelihood ratio, which no test beats. Whoever learns that the
    victim takes part adds up those rounds alone; else a round is a mixture. Where
    clients carry noise, it is as much as came.

    Args:
      vantage: Where the attacker stands.
      records: Of possible clients; each trial draws its own.
      clip_norm: S.
      trials: Of each kind.
      rounds: T.
      rng: Draws clients, who takes part, and noise.

    Raises:
      ArgumentError: If clients and others noise the same sum, or there are no records,
        or no trials.
    """
    _check(records, trials)
    plan, scores = vantage.plan, []
    q, z = plan.participation[vantage.zone], plan.client_noise_multiplier
    others = any(plan.zone_noise_multipliers) or plan.server_noise_multiplier
    require(not (z and others), "privacy", "a mixture", "ldp, hdp or cdp with sampling")
    hidden = vantage.view.neighbours == "add_or_remove"
    lengths = records.norms / clip_norm
    for present in (True, False):
        c = lengths[rng.integers(len(lengths), size=trials)]
        total = np.zeros(trials)
        for _ in range(rounds):
            takes = rng.random(trials) < q
            noise = np.full(trials, vantage.noise_multiplier)
            if z:
                noising = 1 + rng.binomial(vantage.unknown_clients - 1, q, trials)
                noise = z * np.sqrt(1 if vantage.sees_clients else noising)
            noise = np.maximum(noise, _NO_NOISE)
            seen = present * takes * c + noise * rng.normal(size=trials)
            ratio = (seen * c - c**2 / 2) / noise**2
            mixed = np.logaddexp(np.log1p(-q), np.log(q) + ratio)
            total += mixed if hidden else takes * ratio
        scores.append(total)
    return scores[0], scores[1]


def identification(
    vantage: Vantage,
    records: Records,
    *,
    stddev: float,
    candidates: int,
    trials: int,
    rounds: int = 1,
    others_known: bool = True,
    rng: np.random.Generator,
) -> np.ndarray:
    """Whether the client was found among M equally likely candidates.

    The Bayes rule: the largest <sum, c_i> - T |c_i|^2 / 2, by lot where several are.

    Args:
      vantage: Where the attacker stands.
      records: Of possible clients; each trial draws its candidates.
      stddev: Of every number in what the observer holds.
      candidates: M.
      trials: How many.
      rounds: T.
      others_known: As for `membership`.
      rng: Draws clients and noise.

    Returns:
      bool [trials].

    Raises:
      ArgumentError: If there are fewer records than candidates, or no trials.
    """
    _check(records, trials)
    ok = 1 < candidates <= len(records)
    require(ok, "candidates", candidates, f"2..{len(records)}, the records")
    others = _unknown_others(vantage, others_known)
    products_of = functools.partial(
        _products, records, others=others, stddev=stddev, rounds=rounds, rng=rng
    )
    hits = []
    for count in _batches(trials):
        order = rng.random([count, len(records)]).argpartition(candidates - 1, axis=1)
        # Which of them is first depends on where it was among all.
        chosen = rng.permuted(order[:, :candidates], axis=1)
        products, squares = products_of(chosen[:, 0], present=True)
        scores = np.take_along_axis(products, chosen, 1)
        scores -= rounds * squares[chosen] / 2
        # Lots decide between candidates that are alike; the first is the right one.
        best = scores == scores.max(1, keepdims=True)
        hits.append((best * (1 - rng.random(best.shape))).argmax(1) == 0)
    return np.concatenate(hits)


def _check(records: Records, trials: int) -> None:
    check_count("trials", trials, 1)
    require(len(records) > 0, "records", len(records), "1 or more that are finite")


def _unknown_others(vantage: Vantage, others_known: bool) -> int:
    """Clients in the sum, beside the victim, that the attacker cannot subtract."""
    return 0 if others_known else vantage.unknown_clients - 1


def _products(
    records: Records,
    who: np.ndarray,
    *,
    present: bool,
    others: int,
    stddev: float,
    rounds: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """What is seen over all rounds times every client's record, [trials, N].

    And the records' squares, [N]: in the metric in which what is unknown is white.

    Args:
      records: Of possible clients.
      who: int [trials], each trial's victim.
      present: Whether its record is in the sum.
      others: How many more are that cannot be subtracted, of the same records.
      stddev: As for `membership`.
      rounds: Likewise.
      rng: Draws the others, then noise.
    """
    gram, (trials, n) = records.gram, (len(who), len(records))
    products = rounds * gram[who] if present else np.zeros([trials, len(gram)])
    mean = gram[n if records.own else 0 :].mean(0)
    for _ in range(others):
        products += rounds * (gram[rng.integers(n, size=trials)] - mean)
    if stddev:
        noise = rng.normal(size=products.shape) @ _root(records).T
        products += np.sqrt(rounds) * stddev * noise
    squares = np.diag(gram)[:n]
    if not (others and records.own):
        return products[:, :n], squares
    # A round's share of the covariance is others / K X^T X + rest, X the centred own
    # records; inverted by Woodbury's formula, but for a factor 1 / rest.
    centred = gram[n:] - mean
    inner = centred[:, n:] - centred[:, n:].mean(1, keepdims=True)
    rest = stddev**2 / rounds + _REST * squares.mean()
    ridge = records.own * rest / others * np.eye(records.own)
    known, seen = centred[:, :n], products[:, n:]
    weighed = np.linalg.solve(inner + ridge, known)
    seen = seen - seen.mean(1, keepdims=True)
    return products[:, :n] - seen @ weighed, squares - np.sum(known * weighed, 0)


def _root(records: Records) -> np.ndarray:
    """A with A A^T the Gram matrix."""
    values, vectors = np.linalg.eigh(records.gram)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _batches(trials: int) -> list[int]:
    full, rest = divmod(trials, _TRIALS_AT_ONCE)
    return [_TRIALS_AT_ONCE] * full + [rest] * (rest > 0)
