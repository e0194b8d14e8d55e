"""What the clients of a round work on, in the form the learning process takes."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.clients.batches import client_batches, make_chunk, make_order
from tff_hdp.clients.client_work import client_profile
from tff_hdp.systems.hdp.attendance import Attendance
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import Federation

# A weight that no client has: an update that comes with it is rejected.
OUT_OF_RANGE = 2.0

RoundData = Callable[[Attendance, np.random.Generator], list[Any]]


def build_round_data(
    *, config: HdpConfig, federation: Federation, chunk_size: int
) -> RoundData:
    """Returns a function from who takes part to the TFF clients' data of a round.

    Every client's batches depend on the cohort and the generator alone, not on how
    many clients are trained at once. A Byzantine client claims a weight out of
    range and leaves its noise out.

    Args:
      config: Local epochs and batch size.
      federation: Whose data.
      chunk_size: Clients of a zone per TFF client; 0 for one TFF client each.
    """
    train = federation.task.train
    zone_of = np.asarray(federation.zoning.zone_of)
    whole = int(train.sizes.max())
    full_batch = config.algorithm == "fedsgd"
    batch_size = whole if full_batch else min(config.batch_size, whole)

    def data(present: Attendance, rng: np.random.Generator) -> list[Any]:
        cohort, bad = present.cohort, present.byzantine
        clients = [
            _Client(
                examples=train.examples(client),
                order=make_order(
                    int(train.sizes[client]),
                    epochs=config.local_epochs,
                    batch_size=batch_size,
                    rng=rng,
                ),
                weight=OUT_OF_RANGE if misbehaves else federation.weights[client],
                carries_noise=bool(federation.carries_noise[client] and not misbehaves),
                zone=int(zone_of[client]),
            )
            for client, misbehaves in zip(cohort, bad, strict=True)
        ]
        return _chunks(clients, chunk_size) if chunk_size else _alone(clients)

    return data


@dataclasses.dataclass(frozen=True)
class _Client:
    """What one client brings to a round."""

    examples: tuple[np.ndarray, np.ndarray]
    order: np.ndarray
    weight: float
    carries_noise: bool
    zone: int


def _alone(clients: Sequence[_Client]) -> list[Any]:
    """One TFF client for each."""
    return [
        {
            "examples": client_batches(*client.examples, client.order),
            "profile": client_profile(
                weight=client.weight,
                zone=client.zone,
                carries_noise=client.carries_noise,
            ),
        }
        for client in clients
    ]


def _chunks(clients: Sequence[_Client], chunk_size: int) -> list[Any]:
    """One TFF client for up to `chunk_size` clients of a zone."""
    # Clients of like size share a chunk, so that little of it is padding.
    ordered = sorted(clients, key=lambda c: (c.zone, len(c.examples[1])))
    chunks = []
    for zone, members in itertools.groupby(ordered, key=lambda c: c.zone):
        members = list(members)
        for start in range(0, len(members), chunk_size):
            part = members[start : start + chunk_size]
            chunk = make_chunk(
                [client.examples for client in part],
                [client.order for client in part],
                weights=[client.weight for client in part],
                carries_noise=[client.carries_noise for client in part],
                zone=zone,
            )
            chunks.append(tf.data.Dataset.from_tensors(chunk))
    return chunks
