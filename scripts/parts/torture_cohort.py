"""A cohort in small: what clients of every system bring, with one odd one among them.

Used by `scripts/parts/torture_clients.py`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.clients.batches import make_chunk, make_order

FEATURES, CLASSES, HIDDEN, EXAMPLES, BATCH = 12, 3, 8, 6, 3
TOKENS, VOCABULARY = 5, 20  # of an example; how many there are
CLIENTS, ZONES, ZONE, ODD = 4, 2, 1, 1  # of each zone; where the odd client sits


@dataclasses.dataclass(frozen=True)
class Client:
    """What a client brings.

    Attributes:
      features: [N, FEATURES] float32.
      tokens: [N, TOKENS] int32, which models of text read in place of features.
      labels: [N] int32.
      weight: w.
      zone: Its zone, edge or server.
      user: Its row among the users.
      refused: Whether it has to be; None where either will do.
    """

    features: np.ndarray
    tokens: np.ndarray
    labels: np.ndarray
    weight: float = 1.0
    zone: int = ZONE
    user: int = ZONE * CLIENTS + ODD
    refused: bool | None = False


def honest(seed: int) -> Client:
    """A client with examples of its own."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=[EXAMPLES, FEATURES]).astype(np.float32)
    labels = rng.integers(0, CLASSES, EXAMPLES).astype(np.int32)
    tokens = rng.integers(0, VOCABULARY, [EXAMPLES, TOKENS]).astype(np.int32)
    return Client(features, tokens, labels)


def build_model() -> tf.keras.Sequential:
    """A classifier with a hidden layer."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([FEATURES]),
            tf.keras.layers.Dense(HIDDEN, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


def build_text_model() -> tf.keras.Sequential:
    """A classifier that looks its tokens up."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([TOKENS]),
            tf.keras.layers.Embedding(VOCABULARY, 4),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


@dataclasses.dataclass(frozen=True)
class Reader:
    """A model and what of a client it reads."""

    build_model: Callable[[], tf.keras.Sequential]
    field: str
    width: int
    dtype: Any

    def examples(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """What it reads, and the labels."""
        return getattr(client, self.field), client.labels


NUMBERS = Reader(build_model, "features", FEATURES, np.float32)
TEXT = Reader(build_text_model, "tokens", TOKENS, np.int32)


def cohort(odd: Client | None) -> list[tuple[int, list[Client]]]:
    """Pairs of a zone and clients of it; the odd one is among them, or alone."""
    groups = []
    for zone in range(ZONES):
        members = [
            dataclasses.replace(honest(seed), zone=zone, user=seed)
            for seed in range(zone * CLIENTS, (zone + 1) * CLIENTS)
        ]
        if zone == ZONE:
            members[ODD : ODD + 1] = [odd] if odd and odd.zone == ZONE else []
        groups.append((zone, members))
    if odd and odd.zone != ZONE:
        groups.append((odd.zone, [odd]))
    return groups


def chunk(
    zone: int | list[int],
    clients: list[Client],
    *,
    epochs: int = 1,
    reader: Reader = NUMBERS,
) -> Any:
    """The clients' examples as one chunk, in as many epochs; see `make_chunk`."""
    return make_chunk(
        list(map(reader.examples, clients)),
        [order(epochs) for _ in clients],
        weights=[c.weight for c in clients],
        carries_noise=[False] * len(clients),
        zone=zone,
    )


def order(epochs: int = 1) -> np.ndarray:
    """The batches of a client, the same for all; see `make_order`."""
    rng = np.random.default_rng(0)
    return make_order(EXAMPLES, epochs=epochs, batch_size=BATCH, rng=rng)
