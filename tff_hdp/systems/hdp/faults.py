"""What goes wrong in a round, drawn from the run's secret. Imports no TensorFlow."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_hdp.errors import ArgumentError
from tff_hdp.topology import Zoning


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults:
    """Which faults occur, and how often.

    Attributes:
      drop_rate: Probability that a drawn client never delivers its update, and
        that a voter falls silent during an election; independent of everything.
      online_rate: Probability that a client is online in a round, independent of
        everything. Who is not has no part in it: it delivers nothing, does not vote,
        and is super-node no more.
      supernode_failure_rate: Probability that a zone's super-node is gone before
        it has the round's sum.
      byzantine: (round, share) in the order of rounds: from that round on the
        share of every zone's clients that is Byzantine.

    Raises:
      ArgumentError: If a rate or share is not in [0, 1), `online_rate` not in
        (0, 1] or so near 0 that nobody delivers, or rounds do not increase.
    """

    drop_rate: float = 0.0
    online_rate: float = 1.0
    supernode_failure_rate: float = 0.0
    byzantine: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("drop_rate", "supernode_failure_rate"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ArgumentError(name, getattr(self, name), "[0, 1)")
        if not 0.0 < self.online_rate <= 1.0:
            raise ArgumentError("online_rate", self.online_rate, "(0, 1]")
        if not self.loss_rate < 1.0:
            allowed = f"more, so that with drop_rate={self.drop_rate} some deliver"
            raise ArgumentError("online_rate", self.online_rate, allowed)
        words = [f"{number}:{share:g}" for number, share in self.byzantine]
        rounds = [number for number, _ in self.byzantine]
        if rounds != sorted(set(rounds)) or any(number < 1 for number in rounds):
            raise ArgumentError("byzantine", words, "increasing rounds from 1 on")
        if not all(0.0 <= share < 1.0 for _, share in self.byzantine):
            raise ArgumentError("byzantine", words, "shares in [0, 1)")

    @property
    def loss_rate(self) -> float:
        """Probability that a drawn client delivers nothing."""
        return self.drop_rate + (1.0 - self.online_rate) * (1.0 - self.drop_rate)

    def byzantine_share(self, round_number: int) -> float:
        """The share of Byzantine clients in a round."""
        shares = [share for start, share in self.byzantine if start <= round_number]
        return shares[-1] if shares else 0.0

    @property
    def largest_byzantine_share(self) -> float:
        """The largest share of any round."""
        return max((share for _, share in self.byzantine), default=0.0)


def parse_schedule(words: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Reads `0.1` (from round 1 on) or `1:0`, `20:0.1`, `40:0.3`.

    Raises:
      ArgumentError: If a word is neither.
    """
    schedule = []
    for word in words:
        start, _, share = word.rpartition(":")
        try:
            schedule.append((int(start) if start else 1, float(share)))
        except ValueError as error:
            raise ArgumentError(
                "byzantine", word, "SHARE, or ROUND:SHARE,..."
            ) from error
    return tuple(schedule)


def byzantine_counts(zone_sizes: Sequence[int], share: float) -> tuple[int, ...]:
    """How many clients of every zone are Byzantine: the share, rounded down."""
    # The small term keeps 0.3 * 10 at 3.
    return tuple(int(share * size + 1e-9) for size in zone_sizes)


def byzantine_clients(
    zoning: Zoning, share: float, *, rng: np.random.Generator
) -> np.ndarray:
    """Who is Byzantine: [n] bool in the order of `zoning.client_ids`.

    A larger share with an equal generator adds clients to those of a smaller one.
    """
    bad = np.zeros(zoning.num_clients, bool)
    counts = byzantine_counts(zoning.zone_sizes, share)
    if any(counts):
        for members, count in zip(zoning.members, counts, strict=True):
            bad[rng.permutation(members)[:count]] = True
    return bad


class CountingSkips:
    """A process whose rounds also tell how many zones faults left out.

    The account needs that number, and so it is public: it must not be one that hangs
    on the cohort, such as how many zones delivered nothing.

    Args:
      process: Whose `next` takes the data of a pair (data, zones left out).
    """

    def __init__(self, process: Any) -> None:
        self._process = process

    def next(self, state: Any, data: tuple[Any, int]) -> Any:
        """One round; its metrics have `skipped_zones` besides the process's."""
        given, skipped = data
        output = self._process.next(state, given)
        metrics = {**output.metrics, "skipped_zones": skipped}
        return type(output)(output.state, metrics)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)
