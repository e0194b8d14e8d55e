"""What elections and secure aggregation cost in a round, measured by running them."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.election_round import run_election
from tff_hdp.protocols.elections.electorate import (
    RELAY,
    RUN_BYTES,
    BeyondThresholdError,
    Identity,
    Registry,
)
from tff_hdp.protocols.elections.setup import Call
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg.errors import BelowThresholdError
from tff_hdp.protocols.secagg.fixed_point import FixedPoint
from tff_hdp.protocols.secagg.real_sums import secure_sum
from tff_hdp.protocols.secagg.rounds import PROTOCOLS as SECURE_SUMS
from tff_hdp.protocols.secagg.rounds import SUPER_NODE, masking_graph

PROTOCOLS = ("election", *SECURE_SUMS)
BITS = 32
# Every client of a zone checks the square of its size in shares, so that all the
# work of an election grows with the cube: of 300, some hours of one core.
LARGEST_ELECTION = 30

GRID_CLIENTS = (10, 30, 100, 300)
GRID_ZONES = (1, 5, 10, 30)
GRID_MODEL_SIZES = (10_000, 100_000, 1_000_000)
GRID_DROPOUTS = (0.0, 0.05, 0.2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement.

    Attributes:
      protocol: `election`, `bonawitz` or `graph`.
      clients: k, all zones together.
      zones: s; sizes differ by at most one.
      model_size: d, coordinates of an update; elections do not depend on it.
      dropout: Share of clients that go silent, spread evenly over the zones:
        after sharing keys, or after confirming the ballot of an election.
      fault_model: Which faults an election withstands.

    Raises:
      ArgumentError: If a field is out of range.
    """

    protocol: str
    clients: int
    zones: int
    model_size: int = 100_000
    dropout: float = 0.0
    fault_model: Literal["crash", "byzantine"] = "byzantine"

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ArgumentError("protocol", self.protocol, ", ".join(PROTOCOLS))
        if self.clients < 1:
            raise ArgumentError("clients", self.clients, "1 or more")
        if not 1 <= self.zones <= self.clients:
            raise ArgumentError("zones", self.zones, f"1..{self.clients}")
        if self.model_size < 1:
            raise ArgumentError("model_size", self.model_size, "1 or more")
        if not 0 <= self.dropout < 1:
            raise ArgumentError("dropout", self.dropout, "[0, 1)")

    @property
    def dropped(self) -> int:
        """How many clients go silent: the share of k, to the nearest."""
        return round(self.dropout * self.clients)

    def zone_kinds(self) -> Counter[tuple[int, int]]:
        """How many zones there are of each (clients, drop-outs)."""
        sizes = [len(part) for part in np.array_split(range(self.clients), self.zones)]
        gone = [len(part) for part in np.array_split(range(self.dropped), self.zones)]
        return Counter(zip(sizes, gone, strict=True))


def grid() -> Iterator[Cell]:
    """The cells of the full benchmark, elections first."""
    for clients, zones, dropout in itertools.product(
        GRID_CLIENTS, GRID_ZONES, GRID_DROPOUTS
    ):
        if zones <= clients and clients / zones <= LARGEST_ELECTION:
            yield Cell(
                protocol="election", clients=clients, zones=zones, dropout=dropout
            )
    for clients, zones, dropout, size, protocol in itertools.product(
        GRID_CLIENTS, GRID_ZONES, GRID_DROPOUTS, GRID_MODEL_SIZES, SECURE_SUMS
    ):
        if zones <= clients:
            yield Cell(
                protocol=protocol,
                clients=clients,
                zones=zones,
                model_size=size,
                dropout=dropout,
            )


def measure(cell: Cell, *, every_zone: bool = True) -> dict[str, Any]:
    """Runs one round of a cell's protocol in its zones.

    Args:
      cell: What to run.
      every_zone: Whether to run zones of equal size and drop-outs one and all,
        or one of each kind and count it for the others.

    Returns:
      The cell's fields and its costs. Processor seconds without a network:
      `critical_path_seconds` is the slowest client's work plus the super-node's
      (or relay's), phase by phase, in the slowest zone, `total_seconds` all
      parties' of all zones; the slowest `client_seconds` and `hub_seconds`.
      Bytes: the most of any one client, of any one super-node, and
      `total_bytes` sent by all.

    Raises:
      BelowThresholdError: If a zone is too small for the protocol.
      BeyondThresholdError: Likewise, for elections.
    """
    summaries: list[dict[str, float]] = []
    for (size, gone), count in cell.zone_kinds().items():
        runs = count if every_zone else 1
        found = [_zone_cost(cell, size, gone) for _ in range(runs)]
        summaries += found * (count // runs)
    row: dict[str, Any] = dataclasses.asdict(cell)
    row["dropped"] = cell.dropped
    row["zone_size"] = max(size for size, _ in cell.zone_kinds())
    row["degree"] = summaries[0].pop("degree")
    for name in summaries[0]:
        values = [summary[name] for summary in summaries]
        summed = name.startswith("total_") or name == "messages"
        row[name] = sum(values) if summed else max(values)
    return row


def measure_all(
    cells: Iterable[Cell],
) -> Iterator[tuple[Cell, dict[str, Any] | None]]:
    """Measures cells one by one; None where a zone falls below its threshold."""
    for cell in cells:
        try:
            yield cell, measure(cell, every_zone=False)
        except (BelowThresholdError, BeyondThresholdError):
            yield cell, None


def _zone_cost(cell: Cell, size: int, gone: int) -> dict[str, float]:
    ids = [f"client{i}" for i in range(size)]
    silent = ids[size - gone :]
    if cell.protocol == "election":
        meter = Meter(RELAY)
        identities = {client: Identity(client) for client in ids}
        relay = Identity(RELAY)
        registry = Registry(
            zone=0,
            voters=tuple(identity.public for identity in identities.values()),
            eligible=tuple(ids),
            fault_model=cell.fault_model,
            policy="persistent",
            call_size=size,
            relay_key=relay.public.verify_key,
            run=bytes(RUN_BYTES),
        )
        run_election(
            registry,
            Call(registry.digest, 0),
            {c: Elector(identity, registry) for c, identity in identities.items()},
            relay=relay,
            stops=dict.fromkeys(silent, "reveal"),
            meter=meter,
        )
        degree = size - 1
    else:
        if size < 2:
            raise BelowThresholdError("a zone of one client has nobody to mask with")
        meter = Meter(SUPER_NODE)
        # One vector for all, so that memory does not limit how many there are.
        update = np.random.default_rng(0).uniform(-1, 1, cell.model_size)
        graph = masking_graph(cell.protocol, size)
        secure_sum(
            dict.fromkeys(ids, update.astype(np.float32)),
            encoding=FixedPoint.for_sum(clip=1.0, bits=BITS, max_clients=size),
            graph=graph,
            drops=dict.fromkeys(silent, "mask"),
            meter=meter,
        )
        degree = size - 1 if graph.degree is None else graph.degree
    summary = meter.summary()
    summary["total_bytes"] = sum(cost.sent_bytes for cost in meter.parties.values())
    summary["degree"] = degree
    return summary
