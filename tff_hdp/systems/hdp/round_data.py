"""What the clients of a round work on, in the form the learning process takes."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tff_hdp.clients import training
from tff_hdp.clients.batches import (
    Participant,
    chunks,
    client_batches,
    dataset_of_one,
    make_order,
    most_examples,
)
from tff_hdp.clients.client_work import SGD_MOMENTUM, client_profile
from tff_hdp.clients.stacked_model import StackedModel, is_supported
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.system import RngOf
from tff_hdp.systems.hdp.attendance import Attendance
from tff_hdp.systems.hdp.clients import chunks_span_zones
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import Federation

# A weight that no client has: an update that comes with it is rejected.
OUT_OF_RANGE = 2.0


@dataclasses.dataclass(frozen=True)
class Chunking:
    """Which clients of a round one TFF client trains.

    Attributes:
      clients: How many; 0 has each alone, None as many as suit who is there.
      across_zones: Whether they may be of several zones.
      model: What they train, unless alone.
    """

    clients: int | None
    across_zones: bool = False
    model: StackedModel | None = None

    def size(self, participants: Sequence[Participant]) -> int:
        """Clients a chunk.

        By who is there, not by what is expected: one client more would be a chunk of
        its own, for which the rest wait.
        """
        if self.clients is None:
            most = most_examples(participants)
            return training.chunk_size(self.model, len(participants), most)
        return self.clients


def chunking(config: HdpConfig, federation: Federation) -> Chunking:
    """Which clients one TFF client trains.

    Raises:
      ArgumentError: If clients cannot be trained together and are to be.
    """
    model = federation.task.model
    can_stack = config.client_optimizer in SGD_MOMENTUM and is_supported(model)
    if config.cohort_chunk and not can_stack:
        raise ArgumentError(
            "cohort_chunk",
            config.cohort_chunk,
            f"0 with model={federation.task.model_name} and "
            f"client_optimizer={config.client_optimizer}",
        )
    if not can_stack:
        return Chunking(0)
    stacked = StackedModel(model)
    across = chunks_span_zones(federation.plan, stacked)
    return Chunking(config.cohort_chunk, across, stacked)


def round_data(
    config: HdpConfig,
    federation: Federation,
    present: Attendance,
    *,
    chunking: Chunking,
    rng_of: RngOf,
) -> list[Any]:
    """The TFF clients' data of a round.

    A client's batches depend on its own generator alone, not on who else is there or
    how many are trained at once. A Byzantine client claims a weight out of
    range and leaves its noise out.

    Args:
      config: Local epochs and batch size.
      federation: Whose data.
      present: Who takes part.
      chunking: Who shares a TFF client.
      rng_of: From a client's index to what decides the order of its examples.
    """
    train, zone_of = federation.task.train, federation.zoning.zone_of
    whole = int(train.sizes.max())
    full_batch = config.algorithm == "fedsgd"
    batch_size = whole if full_batch else min(config.batch_size, whole)
    participants = [
        Participant(
            examples=train.examples(client),
            order=make_order(
                int(train.sizes[client]),
                epochs=config.local_epochs,
                batch_size=batch_size,
                rng=rng_of(client),
            ),
            weight=OUT_OF_RANGE if misbehaves else federation.weights[client],
            carries_noise=bool(federation.carries_noise[client] and not misbehaves),
            zone=int(zone_of[client]),
        )
        for client, misbehaves in zip(present.cohort, present.byzantine, strict=True)
    ]
    if chunking.clients == 0:
        return _alone(participants)
    # Clients of like size share a chunk, so that little of it is padding.
    across = chunking.across_zones
    participants.sort(key=lambda p: (0 if across else p.zone, len(p.examples[1])))
    size = chunking.size(participants)
    made = chunks(participants, size, across_zones=across)
    return list(map(dataset_of_one, made))


def _alone(participants: Sequence[Participant]) -> list[Any]:
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
        for client in participants
    ]
