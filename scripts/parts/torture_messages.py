"""Elections and secure sums of which one message is another than was sent."""

import base64
import collections
import dataclasses
import random
from typing import Any

import numpy as np

from scripts.parts.mutations import Counts, mutated, outcome_of
from tff_hdp.protocols import wire
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.election_round import run_election
from tff_hdp.protocols.elections.electorate import (
    RELAY,
    RUN_BYTES,
    Identity,
    Registry,
)
from tff_hdp.protocols.elections.setup import Call
from tff_hdp.protocols.elections.transcripts import Transcript
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg.messages import SUPER_NODE, Round
from tff_hdp.protocols.secagg.rounds import run_round

BOARD = Identity("relay", secret=bytes(32))
_VOTERS = [Identity(f"c{i}", secret=bytes([i] * 32)) for i in range(4)]


def zone() -> tuple[Registry, dict[str, Elector]]:
    """A zone of four voters whose relay is `BOARD`, and their sides of an election."""
    registry = Registry(
        zone=0,
        voters=tuple(voter.public for voter in _VOTERS),
        eligible=tuple(voter.client_id for voter in _VOTERS),
        fault_model="byzantine",
        policy="rotate",
        call_size=len(_VOTERS),
        relay_key=BOARD.public.verify_key,
        run=bytes(RUN_BYTES),
    )
    return registry, {v.client_id: Elector(v, registry) for v in _VOTERS}


class _Tamperer(Meter):
    """Mutates one message on its way, the `wait`-th; none where fewer are sent.

    Its bytes, or a field of it, so that what is said is another but well written.
    """

    def __init__(self, hub: str, rng: random.Random, wait: int) -> None:
        super().__init__(hub)
        self._rng, self._wait = rng, wait

    def deliver(self, sender: str, receiver: str, message: Any) -> Any:
        self._wait -= 1
        if self._wait == 0 and self._rng.random() < 0.5:
            message = _with_another_field(self._rng, message)
        data = wire.encode(message)
        if self._wait == 0 and self._rng.random() < 0.5:
            data = mutated(self._rng, data)
        return wire.decode(type(message), data)


def _with_another_field(rng: random.Random, message: Any) -> Any:
    """A message of which one field says something else, possibly at length."""
    field = rng.choice(dataclasses.fields(message)).name
    name = "x" * rng.choice((0, 1, 300_000))
    match value := getattr(message, field):
        case int():
            other = rng.choice((0, 7, 2**64 - 1))
        case str():
            other = name
        case bytes():
            other = rng.randbytes(rng.choice((0, 1, 32, 64, 100_000)))
        case dict() if value:
            other = {**value, name: next(iter(value.values()))}
        case tuple() if value:
            other = (*value, name if isinstance(value[0], str) else value[0])
        case np.ndarray():
            other = value[: rng.randrange(len(value) + 1)]
        case _:
            return message
    return dataclasses.replace(message, **{field: other})


def fuzz_messages(count: int, seed: int) -> Counts:
    """Runs elections and secure sums in which one message is mutated on its way.

    What comes through must give the right result: a winner by a transcript that
    verifies, the sum of those whose updates were counted.
    """
    rng = random.Random(seed)
    registry, electors = zone()
    call = Call(registry.digest, 1)
    _, held = run_election(registry, call, electors, relay=BOARD)
    text = wire.encode(held)
    inputs = {name: np.full(4, 3 * i + 1, "<u4") for i, name in enumerate("abcd")}

    def transcript() -> None:
        given = mutated(rng, text)
        found = Transcript.from_text(base64.b64encode(given).decode())
        found.verify(registry)
        assert given == text, "a transcript verifies that was never written"

    def election() -> None:
        meter = _Tamperer(RELAY, rng, rng.randrange(1, 50))
        _, parties = zone()
        winner, record = run_election(registry, call, parties, relay=BOARD, meter=meter)
        assert record.verify(registry) == winner

    def secure_sum() -> None:
        meter = _Tamperer(SUPER_NODE, rng, rng.randrange(1, 50))
        # Who does not sign is promised no sum, but to be refused in a line as well.
        signed = rng.random() < 0.5
        terms = Round(5, 4, 32, 3)
        total, counted = run_round(inputs, terms, signed=signed, meter=meter)
        if signed:
            assert np.array_equal(total, sum(inputs[name] for name in counted))

    kinds = {"transcript": transcript, "election": election, "secure sum": secure_sum}
    names = [*kinds, *["transcript"] * 7]
    return collections.Counter(
        outcome_of(name, kinds[name]) for i in range(count) for name in [names[i % 10]]
    )
