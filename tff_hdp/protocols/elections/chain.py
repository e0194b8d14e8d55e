"""A zone's elections one after the other, each bound to the one before."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.elections.electorate import ElectionError, Registry
from tff_hdp.protocols.elections.setup import NO_RECORD, Call
from tff_hdp.protocols.elections.transcripts import Transcript


@dataclasses.dataclass(frozen=True)
class Standing:
    """A zone's elections so far, as clients, verifiers and the relay each keep it.

    Were an election to be had for nothing, a relay could call for one until its
    friend wins. So whom a call names as failed is not the relay's choice: within a
    round those who led before, one after the other, and under `persistent` in a new
    round the super-node in power. Under `rotate` every round has one election for
    nothing, whose winner leads that round only.

    Attributes:
      head: The digest of the last transcript; `NO_RECORD` before the first.
      round_number: The round of the last election; -1 before the first.
      failed: Who was said to have failed in that round before it, in order.
      leader: Whom it elected; None before the first and after a refusal.
    """

    head: bytes = NO_RECORD
    round_number: int = -1
    failed: tuple[str, ...] = ()
    leader: str | None = None

    def failed_by(self, round_number: int, policy: str) -> tuple[str, ...]:
        """Whom a call in that round has to name as failed, in order."""
        anew = round_number > self.round_number
        if anew and policy == "rotate":
            return ()
        before = () if anew else self.failed
        return before if self.leader is None else (*before, self.leader)

    def check(self, registry: Registry, call: Call) -> None:
        """Raises ElectionError unless the call is one that may come next."""
        name = call.name(registry.zone)
        if call.previous != self.head:
            raise ElectionError(f"{name} does not follow the election before")
        refused = self.leader is None and call.round_number == self.round_number
        if call.round_number < self.round_number or refused:
            raise ElectionError(f"{name} comes after the round it belongs to")
        failed = self.failed_by(call.round_number, registry.policy)
        if call.failed != failed:
            raise ElectionError(
                f"{name} names {list(call.failed)} as failed; under "
                f"{registry.policy!r} it has to name {list(failed)}"
            )

    @staticmethod
    def after(call: Call, digest: bytes, elected: str | None) -> "Standing":
        """Where they stand after an election.

        Args:
          call: What the relay called for.
          digest: The transcript's.
          elected: The winner; None if the election was refused.
        """
        return Standing(digest, call.round_number, call.failed, elected)

    def to_fields(self) -> dict[str, Any]:
        """The standing as JSON types."""
        return {**dataclasses.asdict(self), "head": self.head.hex()}

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> "Standing":
        """Reads what `to_fields` made.

        Raises:
          ArgumentError: If it is something else.
        """
        try:
            head, failed = bytes.fromhex(fields["head"]), tuple(fields["failed"])
            return Standing(**{**fields, "head": head, "failed": failed})
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError("standing", fields, "what to_fields made") from error


class Chain:
    """Follows the transcripts of a zone and checks how each came after the other.

    A further election within a round, and under `persistent` any while somebody
    leads, must name the super-node elected before as failed, for all to see, and
    there is none in a round after a refusal. So a relay that does not like a winner
    cannot hold the election again as if nothing had been: but for the one that
    `rotate` owes every round, each further draw is counted here. Whether a round was
    one, and comes in its place, whoever follows has to know from elsewhere.

    Attributes:
      standing: Where the zone's elections stand.
      transcripts: How many there were.
      refused: How many elections were refused.
      unfinished: How many of these the relay may have refused knowing the winner: it
        need not tell of messages that it has. Those at `confirm` and `reveal`, of
        which clients were shown a ballot; and where not all are called, or some are
        said to have failed, every one: who confirmed a ballot waits to see how it
        ended, but others may be called.
      failures: How many super-nodes were said to have failed.
    """

    def __init__(self, registry: Registry) -> None:
        """Starts before the first election of a zone."""
        self.registry = registry
        self.standing = Standing()
        self.transcripts = self.refused = self.unfinished = self.failures = 0

    @property
    def leader(self) -> str | None:
        """Who was elected last; None after a refusal."""
        return self.standing.leader

    def follow(self, transcript: Transcript) -> str | None:
        """Checks the next transcript; one that is refused changes nothing.

        Returns:
          The winner; None if the election was refused.

        Raises:
          ElectionError: If it does not verify or does not follow the last.
        """
        call, last = transcript.call, self.standing
        last.check(self.registry, call)
        elected = transcript.verify(self.registry)
        again = call.round_number == last.round_number
        self.transcripts += 1
        self.failures += len(call.failed) - (len(last.failed) if again else 0)
        self.refused += elected is None
        all_called = len(call.awaited(self.registry)) == len(self.registry.voters)
        shown = transcript.phase in ("confirm", "reveal")
        self.unfinished += elected is None and (shown or not all_called)
        self.standing = Standing.after(call, transcript.digest, elected)
        return elected
