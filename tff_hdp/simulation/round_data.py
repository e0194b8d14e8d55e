"""What the clients of a round work on, in the form the learning process takes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.learning.client_work import client_batches, client_profile, make_order
from tff_hdp.learning.stacked_work import make_chunk
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.federation import Federation
from tff_hdp.simulation.systems.hdp_config import HdpConfig

RoundData = Callable[[int], list[Any]]


def build_round_data(
    *,
    config: HdpConfig,
    federation: Federation,
    sampler: CohortSampler,
    chunk_size: int,
) -> RoundData:
    """Returns a function from a round's number to its TFF clients' data.

    The cohort and every client's batches depend on the sampler's secret and the
    round alone, not on how many clients are trained at once.

    Args:
      config: Local epochs and batch size.
      federation: Whose data.
      sampler: Draws cohorts and orders.
      chunk_size: Clients of a zone per TFF client; 0 for one TFF client each.
    """
    train = federation.task.train
    zone_of = np.asarray(federation.zoning.zone_of)
    whole = int(train.sizes.max())
    full_batch = config.algorithm == "fedsgd"
    batch_size = whole if full_batch else min(config.batch_size, whole)

    def orders(number: int, cohort: np.ndarray) -> list[np.ndarray]:
        rng = sampler.generator(number, stream=1)
        return [
            make_order(
                int(train.sizes[client]),
                epochs=config.local_epochs,
                batch_size=batch_size,
                rng=rng,
            )
            for client in cohort
        ]

    def alone(number: int) -> list[Any]:
        cohort = sampler.draw(number)
        return [
            {
                "examples": client_batches(*train.examples(client), order),
                "profile": client_profile(
                    weight=federation.weights[client],
                    zone=zone_of[client],
                    carries_noise=bool(federation.carries_noise[client]),
                ),
            }
            for client, order in zip(cohort, orders(number, cohort), strict=True)
        ]

    def stacked(number: int) -> list[Any]:
        cohort = sampler.draw(number)
        order_of = dict(zip(cohort, orders(number, cohort), strict=True))
        chunks = []
        for zone in np.unique(zone_of[cohort]):
            members = cohort[zone_of[cohort] == zone]
            # Clients of like size share a chunk, so that little of it is padding.
            members = members[np.argsort(train.sizes[members], kind="stable")]
            for start in range(0, len(members), chunk_size):
                clients = members[start : start + chunk_size]
                chunk = make_chunk(
                    [train.examples(client) for client in clients],
                    [order_of[client] for client in clients],
                    weights=federation.weights[clients],
                    carries_noise=federation.carries_noise[clients],
                    zone=zone,
                )
                chunks.append(tf.data.Dataset.from_tensors(chunk))
        return chunks

    return stacked if chunk_size else alone
