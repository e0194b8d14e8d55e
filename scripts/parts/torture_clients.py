"""Rounds of every system with one client that sends what no honest one would.

Used by `scripts/torture_inputs.py`. A round must end, the client be rejected where
it must, and everybody else's part of the result be what it is without it.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from scripts.parts.torture_cohort import (
    CLASSES,
    CLIENTS,
    EXAMPLES,
    FEATURES,
    ODD,
    TOKENS,
    VOCABULARY,
    ZONE,
    ZONES,
    Client,
    honest,
)
from scripts.parts.torture_systems import System

BIG = 2**31 - 1
OUT_OF_RANGE = (-1, -2, -BIG - 1, BIG)
NOT_A_WEIGHT = (0.0, -0.0, -1.0, 2.0, 1.0000001, 1e38, np.nan, np.inf, -np.inf)
NOT_FINITE = (np.nan, np.inf, -np.inf)
FAR_OFF = (3e38, -3e38, 1e30, 1e19, -1e19, 1e6, 1e-45, -0.0)


def spoilt(client: Client, kind: str, rng: np.random.Generator) -> Client:
    """`client` with something of a kind about it that nobody should send."""
    features, labels = client.features.copy(), client.labels.copy()
    where = rng.random(EXAMPLES) < rng.choice([0.2, 1.0])
    where[rng.integers(EXAMPLES)] = True
    if kind == "labels":
        labels[where] = rng.choice([*OUT_OF_RANGE, CLASSES])
        return dataclasses.replace(client, labels=labels, refused=True)
    if kind == "weight":
        weight = rng.choice(NOT_A_WEIGHT)
        return dataclasses.replace(client, weight=float(weight), refused=True)
    if kind == "tokens":
        tokens = client.tokens.copy()
        columns = slice(None) if rng.random() < 0.5 else rng.integers(TOKENS)
        tokens[where, columns] = rng.choice([*OUT_OF_RANGE, VOCABULARY])
        return dataclasses.replace(client, tokens=tokens, refused=True)
    if kind in ("zone", "user"):
        size = ZONES if kind == "zone" else ZONES * CLIENTS
        value = int(rng.choice([*OUT_OF_RANGE, size]))
        return dataclasses.replace(client, **{kind: value}, refused=True)
    hard = rng.random() < 0.5
    value = rng.choice(NOT_FINITE if hard else FAR_OFF)
    columns = slice(None) if rng.random() < 0.5 else rng.integers(FEATURES)
    features[where, columns] = value
    return dataclasses.replace(
        client, features=features, refused=True if hard else None
    )


def torture(system: System, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Runs `count` rounds with an odd client.

    Yields:
      `refused`, `accepted` or `crashed`, and what the client was or what went wrong.
    """
    rng = np.random.default_rng(seed)
    state, own = system.process.initialize(), honest(ZONE * CLIENTS + ODD)

    def round_of(client: Client | None) -> tuple[np.ndarray, int]:
        output = system.process.next(state, system.data(client))
        return system.model(output.state), int(system.rejected(output.metrics))

    unknown = np.full_like(own.labels, -1)
    expected = {
        zone: round_of(dataclasses.replace(own, labels=unknown, zone=zone))[0]
        for zone in {0, ZONE}
    }
    if system.as_if_absent:
        without, _ = round_of(None)
        for model in expected.values():
            np.testing.assert_allclose(model, without, rtol=0, atol=1e-6)
    kinds = ("labels", *system.kinds)
    for i in range(count):
        kind = kinds[i % len(kinds)]
        client = spoilt(own, kind, rng)
        try:
            model, rejected = round_of(client)
        except Exception as e:
            yield "crashed", f"{kind}: {type(e).__name__}: {str(e)[:100]}"
            continue
        seat = ZONE if 0 <= client.zone < ZONES else 0
        away = np.linalg.norm(model - expected[seat])
        if rejected == 1 and client.refused is not False:
            right, answer = away <= 1e-5, "refused"
        else:
            right = rejected == 0 and not client.refused
            right, answer = right and away <= system.limit, "accepted"
        yield (
            (answer, kind)
            if right
            else (
                "crashed",
                f"{kind}: {rejected} rejected, the model {away:.3g} away",
            )
        )
