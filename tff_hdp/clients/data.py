"""What a client brings to a round of `build_hdp`."""

import collections
from typing import Any

import tensorflow as tf

from tff_hdp.clients.batches import client_profile


def client(
    examples: tf.data.Dataset,
    *,
    zone: int = 0,
    weight: float = 1.0,
    carries_noise: bool = True,
) -> collections.OrderedDict[str, Any]:
    """A client's batches with what the aggregator must know of the client.

    Args:
      examples: Batches (features, labels), as the model function's input spec says.
      zone: Index of the client's zone.
      weight: w in (0, 1].
      carries_noise: Whether the client noises its own update, where clients do.

    Returns:
      One entry of the list that `LearningProcess.next` of `build_hdp` takes.
    """
    profile = client_profile(weight=weight, zone=zone, carries_noise=carries_noise)
    return collections.OrderedDict(examples=examples, profile=profile)
