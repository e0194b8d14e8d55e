"""What one election is about: whom the relay calls, and who came."""

import dataclasses
import functools
import hashlib

from tff_hdp.protocols import wire
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Registry,
    Voter,
    max_faulty,
)

NO_RECORD = bytes(32)


@dataclasses.dataclass(frozen=True)
class Call:
    """The relay's call to vote.

    Attributes:
      registry: `Registry.digest` of the zone.
      round_number: The round.
      previous: The digest of the transcript of the zone's election before, however
        it ended; `NO_RECORD` if there was none.
      failed: The super-nodes that failed in this round so far, in order. They are
        out of it, as voters too.
    """

    registry: bytes
    round_number: int
    previous: bytes = NO_RECORD
    failed: tuple[str, ...] = ()

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that name this call in every presence."""
        return hashlib.sha256(b"tff_hdp call" + wire.encode(self)).digest()

    def awaited(self, registry: Registry) -> tuple[str, ...]:
        """Who is to come: those called but for super-nodes that failed."""
        called = registry.called(self.round_number)
        return tuple(client for client in called if client not in self.failed)

    def name(self, zone: int) -> str:
        """The election in words."""
        return f"zone {zone}, round {self.round_number}, attempt {len(self.failed)}"


@dataclasses.dataclass(frozen=True)
class Setup:
    """An election of those who came; all else follows from the registry.

    Attributes:
      registry: The zone's.
      call: The relay's.
      present: Who attested to be there, in the order of the registry.

    Raises:
      BeyondThresholdError: If, besides failed super-nodes, more of those called are
        missing than may be faulty, or nobody who is eligible came.
      ElectionError: If the call is of another registry, or somebody came who was not
        called, has failed or stands twice or out of order.
    """

    registry: Registry
    call: Call
    present: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.call.registry != self.registry.digest:
            raise ElectionError(f"{self.name} is called by another registry")
        came, awaited = set(self.present), self.call.awaited(self.registry)
        if self.present != tuple(client for client in awaited if client in came):
            raise ElectionError(
                f"{self.name}: {list(self.present)} are not some of those called, "
                f"each once and in order: {list(awaited)}"
            )
        if not self.present:
            raise BeyondThresholdError(f"{self.name} has no client online")
        if not self.candidates:
            raise BeyondThresholdError(f"{self.name}: no online client is eligible")
        absent = len(awaited) - len(self.present)
        if absent > self.faulty:
            raise BeyondThresholdError(
                f"{self.name}: {absent} of {len(self._called)} called are absent; "
                f"allowed are {self.faulty}"
            )

    @property
    def name(self) -> str:
        """The election in words, "zone 3, round 17, attempt 0"."""
        return self.call.name(self.registry.zone)

    @functools.cached_property
    def voters(self) -> tuple[Voter, ...]:
        """Who makes the randomness."""
        return tuple(map(self.registry.voter, self.present))

    @functools.cached_property
    def candidates(self) -> tuple[str, ...]:
        """Who may be elected: those present and eligible."""
        eligible = set(self.registry.eligible)
        return tuple(client for client in self.present if client in eligible)

    @property
    def faulty(self) -> int:
        """How many of those called may be faulty: f, the most the fault model allows.

        Not of those who came: a relay that loses the presences of f honest clients
        would be left with f accomplices among 2f + 1, who could open and so choose
        the contributions that count. As many it may leave out, in every election: they
        are no candidates, and the others' chance is 1/(k - f).
        """
        return max_faulty(len(self._called), self.registry.fault_model)

    @property
    def threshold(self) -> int:
        """How many shares recover a contribution: t = f + 1."""
        return self.faulty + 1

    @property
    def quorum(self) -> int:
        """How many voters must act, k - f: two such sets share an honest one.

        k counts those called without super-nodes that failed. Where these make k
        small, so many that two sets still have more in common than f liars.
        """
        k = len(self.call.awaited(self.registry))
        liars = self.faulty if self.registry.fault_model == "byzantine" else 0
        return max(k - self.faulty, (k + liars) // 2 + 1)

    @functools.cached_property
    def _called(self) -> tuple[str, ...]:
        return self.registry.called(self.call.round_number)

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that name this election in every signature and proof."""
        present = b"".join(
            hashlib.sha256(client.encode()).digest() for client in self.present
        )
        return hashlib.sha256(b"tff_hdp election" + self.call.digest + present).digest()

    @functools.cached_property
    def share_keys(self) -> tuple[bytes, ...]:
        """The voters' ristretto255 keys."""
        return tuple(voter.share_key for voter in self.voters)

    def share_number(self, client_id: str) -> int:
        """The number of that voter's share, from 1 in the order of `present`.

        Raises:
          ElectionError: If there is no such voter.
        """
        if client_id not in self.present:
            raise ElectionError(f"{client_id!r} is no voter of {self.name}")
        return self.present.index(client_id) + 1

    def check_quorum(self, verb: str, count: int) -> None:
        """Raises BeyondThresholdError if fewer than k - f voters did their part."""
        self._check(verb, count, self.quorum)

    def check_threshold(self, verb: str, count: int) -> None:
        """Raises BeyondThresholdError if fewer than f + 1 voters did their part."""
        self._check(verb, count, self.threshold)

    def _check(self, verb: str, count: int, least: int) -> None:
        if count < least:
            raise BeyondThresholdError(
                f"{self.name}: {count} of {len(self.present)} voters {verb}; with at "
                f"most {self.faulty} {self.registry.fault_model} faults {least} must"
            )
