"""What a protocol costs: seconds, messages and bytes of every party."""

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from tff_hdp.protocols import wire

_T = TypeVar("_T")


@dataclasses.dataclass
class PartyCost:
    """One party's cost.

    Attributes:
      seconds: Processor time spent computing, per phase.
      sent_bytes: Bytes of the encoded messages sent.
      received_bytes: Likewise received.
      sent_messages: How many messages were sent.
    """

    seconds: dict[str, float] = dataclasses.field(
        default_factory=lambda: defaultdict(float)
    )
    sent_bytes: int = 0
    received_bytes: int = 0
    sent_messages: int = 0


class Meter:
    """Carries messages between simulated parties and counts what they cost.

    Every message is encoded, its real size counted, and handed over decoded, so
    parties share no objects. Times are processor seconds of the thread that does a
    party's work, without the network and without what else goes on, in this process or
    in others.

    Attributes:
      hub: The party every client talks to.
      parties: The cost of each, by name.
    """

    def __init__(self, hub: str) -> None:
        """Starts at nothing spent.

        Args:
          hub: The party every client talks to: super-node, relay or server.
        """
        self.hub = hub
        self.parties: dict[str, PartyCost] = defaultdict(PartyCost)
        self._phases: dict[str, None] = {}

    @contextlib.contextmanager
    def time(self, party: str, phase: str) -> Iterator[None]:
        """Adds the time spent inside to `party`'s `phase`."""
        self._phases[phase] = None
        start = time.thread_time()
        try:
            yield
        finally:
            self.parties[party].seconds[phase] += time.thread_time() - start

    def deliver(self, sender: str, receiver: str, message: _T) -> _T:
        """Sends one message; encoding and decoding count as neither's time."""
        data = wire.encode(message)
        self.parties[sender].sent_bytes += len(data)
        self.parties[sender].sent_messages += 1
        self.parties[receiver].received_bytes += len(data)
        return wire.decode(type(message), data)

    @property
    def clients(self) -> dict[str, PartyCost]:
        """Every party but the hub."""
        return {name: cost for name, cost in self.parties.items() if name != self.hub}

    @property
    def total_seconds(self) -> float:
        """All parties' work on one core."""
        return sum(sum(cost.seconds.values()) for cost in self.parties.values())

    @property
    def critical_path_seconds(self) -> float:
        """Phase by phase, the slowest client's work plus the hub's."""
        clients = self.clients.values()
        hub = self.parties[self.hub].seconds
        return sum(
            max((cost.seconds.get(phase, 0.0) for cost in clients), default=0.0)
            + hub.get(phase, 0.0)
            for phase in self._phases
        )

    def summary(self) -> dict[str, float]:
        """The figures of one run, for a table row: seconds and bytes."""
        clients = self.clients.values()
        hub = self.parties[self.hub]
        return {
            "critical_path_seconds": self.critical_path_seconds,
            "total_seconds": self.total_seconds,
            "client_seconds": max(
                (sum(cost.seconds.values()) for cost in clients), default=0.0
            ),
            "hub_seconds": sum(hub.seconds.values()),
            "client_sent_bytes": max((c.sent_bytes for c in clients), default=0),
            "client_received_bytes": max(
                (c.received_bytes for c in clients), default=0
            ),
            "hub_sent_bytes": hub.sent_bytes,
            "hub_received_bytes": hub.received_bytes,
            "messages": sum(cost.sent_messages for cost in self.parties.values()),
        }
