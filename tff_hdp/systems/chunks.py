"""What clients bring to a round, and many of them in one piece."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tff_hdp.clients.batches import make_chunk


@dataclasses.dataclass(frozen=True)
class Participant:
    """A client in one round.

    Attributes:
      examples: Its features [n_k, ...] and labels [n_k].
      order: Its batches; see `make_order`.
      weight: w_k.
      carries_noise: Whether it noises its own update.
      zone: Its zone.
    """

    examples: tuple[np.ndarray, np.ndarray]
    order: np.ndarray
    weight: float = 1.0
    carries_noise: bool = True
    zone: int = 0


def chunks(participants: Sequence[Participant], size: int) -> Iterator[Any]:
    """Makes a `make_chunk` of up to `size` clients of a zone at a time.

    Args:
      participants: Zone by zone.
      size: C.
    """
    for zone, members in itertools.groupby(participants, key=lambda p: p.zone):
        members = list(members)
        for start in range(0, len(members), size):
            part = members[start : start + size]
            yield make_chunk(
                [p.examples for p in part],
                [p.order for p in part],
                weights=[p.weight for p in part],
                carries_noise=[p.carries_noise for p in part],
                zone=zone,
            )
