"""Who took part, by the test that Gaussian noise makes best.

Membership asks whether a known record is in the sum, identification which of M known
candidates is: the likelihood ratio, and the Bayes rule among equally likely ones, both
of a matched filter, summed over rounds. Against noise that is the same in all
directions all depends on the records' inner products alone, so trials are drawn in
the space these span; that the noise is so, and of this size, is what the tests of
`observation` show.
"""

import dataclasses

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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """Trials in which an observer guesses who took part, each with fresh noise.

    Attributes:
      vantage: Where the attacker stands.
      records: Of possible clients; each trial draws its own.
      stddev: Of every number in what the observer holds.
      trials: How many; of membership, of each kind.
      rounds: T, each with fresh noise; all clients send in each what they sent before.
      others_known: Whether the attacker can subtract the others, which is the worst
        case that a bound speaks of; else it subtracts their mean, and weighs directions
        by how records of its own vary, if it has any.
      rng: Draws clients and noise.

    Raises:
      ArgumentError: If there are no records, or no trials.
    """

    vantage: Vantage
    records: Records
    stddev: float
    trials: int
    rounds: int = 1
    others_known: bool = True
    rng: np.random.Generator

    def __post_init__(self) -> None:
        check_count("trials", self.trials, 1)
        found = len(self.records)
        require(found > 0, "records", found, "1 or more that are finite")

    def membership(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of sums with and without a client whose record the attacker knows.

        The score is the logarithm of the likelihood ratio times the noise's variance,
        which all trials share: <sum, c> - T |c|^2 / 2. Longer records tell more, either
        way.

        Returns:
          Scores [trials] with the client, and without.
        """
        scores = []
        for present in (True, False):
            parts = []
            for count in self._batches():
                who = self.rng.integers(len(self.records), size=count)
                products, squares = self._products(who, present=present)
                own = products[np.arange(count), who]
                parts.append(own - self.rounds * squares[who] / 2)
            scores.append(np.concatenate(parts))
        return scores[0], scores[1]

    def sampled_membership(self) -> tuple[np.ndarray, np.ndarray]:
        """As `membership` where clients are sampled; all others and who came are known.

        The score is the likelihood ratio, which no test beats. Whoever learns that the
        victim takes part adds up those rounds alone; else a round is a mixture. Where
        clients carry noise, it is as much as came: `stddev` does not count.

        Raises:
          ArgumentError: If clients and others noise the same sum.
        """
        vantage, plan, rng = self.vantage, self.vantage.plan, self.rng
        q, own = plan.participation[vantage.zone], plan.client_noise
        others = plan.super_nodes_add_noise or plan.server_noise
        allowed = "ldp, hdp or cdp with sampling"
        require(not (own and others), "privacy", "a mixture", allowed)
        hidden = vantage.view.neighbours == "add_or_remove"
        lengths, scores = self.records.norms / plan.clipping.clip_norm, []
        for present in (True, False):
            c = lengths[rng.integers(len(lengths), size=self.trials)]
            total = np.zeros(self.trials)
            for _ in range(self.rounds):
                takes = rng.random(self.trials) < q
                noise = np.full(self.trials, vantage.noise_multiplier)
                if own:
                    noising = 1 + rng.binomial(
                        vantage.unknown_clients - 1, q, self.trials
                    )
                    came = 1 if vantage.sees_clients else noising
                    noise = own.noise_multiplier * np.sqrt(came)
                noise = np.maximum(noise, _NO_NOISE)
                seen = present * takes * c + noise * rng.normal(size=self.trials)
                ratio = (seen * c - c**2 / 2) / noise**2
                mixed = np.logaddexp(np.log1p(-q), np.log(q) + ratio)
                total += mixed if hidden else takes * ratio
            scores.append(total)
        return scores[0], scores[1]

    def identification(self, candidates: int) -> np.ndarray:
        """Whether the client was found among M equally likely candidates.

        The Bayes rule: the largest <sum, c_i> - T |c_i|^2 / 2, by lot where several
        are.

        Args:
          candidates: M; each trial draws its own.

        Returns:
          bool [trials].

        Raises:
          ArgumentError: If there are fewer records than candidates.
        """
        n, rng = len(self.records), self.rng
        require(1 < candidates <= n, "candidates", candidates, f"2..{n}, the records")
        hits = []
        for count in self._batches():
            order = rng.random([count, n]).argpartition(candidates - 1, axis=1)
            # Which of them is first depends on where it was among all.
            chosen = rng.permuted(order[:, :candidates], axis=1)
            products, squares = self._products(chosen[:, 0], present=True)
            scores = np.take_along_axis(products, chosen, 1)
            scores -= self.rounds * squares[chosen] / 2
            # Lots decide between candidates that are alike; the first is the right one.
            best = scores == scores.max(1, keepdims=True)
            hits.append((best * (1 - rng.random(best.shape))).argmax(1) == 0)
        return np.concatenate(hits)

    def _batches(self) -> list[int]:
        full, rest = divmod(self.trials, _TRIALS_AT_ONCE)
        return [_TRIALS_AT_ONCE] * full + [rest] * (rest > 0)

    def _products(
        self, who: np.ndarray, *, present: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is seen over all rounds times every client's record, [trials, N].

        And the records' squares, [N]: in the metric in which what is unknown is white.

        Args:
          who: int [trials], each trial's victim.
          present: Whether its record is in the sum.
        """
        records, rounds, rng = self.records, self.rounds, self.rng
        # In the sum, beside the victim, and not to be subtracted.
        others = 0 if self.others_known else self.vantage.unknown_clients - 1
        gram, (trials, n) = records.gram, (len(who), len(records))
        products = rounds * gram[who] if present else np.zeros([trials, len(gram)])
        mean = gram[n if records.own else 0 :].mean(0)
        for _ in range(others):
            products += rounds * (gram[rng.integers(n, size=trials)] - mean)
        if self.stddev:
            noise = rng.normal(size=products.shape) @ _root(records).T
            products += np.sqrt(rounds) * self.stddev * noise
        squares = np.diag(gram)[:n]
        if not (others and records.own):
            return products[:, :n], squares
        # A round's share of the covariance is others / K X^T X + rest, X the centred
        # own records; inverted by Woodbury's formula, but for a factor 1 / rest.
        centred = gram[n:] - mean
        inner = centred[:, n:] - centred[:, n:].mean(1, keepdims=True)
        rest = self.stddev**2 / rounds + _REST * squares.mean()
        ridge = records.own * rest / others * np.eye(records.own)
        known, seen = centred[:, :n], products[:, n:]
        weighed = np.linalg.solve(inner + ridge, known)
        seen = seen - seen.mean(1, keepdims=True)
        return products[:, :n] - seen @ weighed, squares - np.sum(known * weighed, 0)


def _root(records: Records) -> np.ndarray:
    """A with A A^T the Gram matrix."""
    values, vectors = np.linalg.eigh(records.gram)
    return vectors * np.sqrt(np.maximum(values, 0.0))
