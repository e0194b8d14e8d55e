"""A zone's elections one after the other, each bound to the one before."""

from tff_hdp.protocols.elections.electorate import ElectionError, Registry
from tff_hdp.protocols.elections.setup import NO_RECORD
from tff_hdp.protocols.elections.transcripts import Transcript


class Chain:
    """Follows the transcripts of a zone and checks how each came after the other.

    A further election within a round must name the super-node elected before as
    failed, for all to see, and there is none after a refusal. So a relay that does
    not like a winner cannot hold the election again as if nothing had been.

    Attributes:
      head: The digest of the last transcript.
      leader: Who was elected or in power last; None after a refusal.
      transcripts: How many there were.
      refused: How many elections were refused.
      unfinished: How many of these had their ballot confirmed by a quorum, so that
        the relay may have known the winner when it said that too few revealed.
      failures: How many super-nodes were said to have failed.
    """

    def __init__(self, registry: Registry) -> None:
        """Starts before the first election of a zone."""
        self.registry = registry
        self.head = NO_RECORD
        self.leader: str | None = None
        self.transcripts = self.refused = self.unfinished = self.failures = 0
        self._round = -1
        self._failed: tuple[str, ...] = ()

    def follow(self, transcript: Transcript) -> str | None:
        """Checks the next transcript; one that is refused changes nothing.

        Returns:
          The winner; None if the election was refused.

        Raises:
          ElectionError: If it does not verify or does not follow the last.
        """
        call = transcript.call
        name = call.name(self.registry.zone)
        if call.previous != self.head:
            raise ElectionError(f"{name} does not follow the election before")
        anew = call.round_number > self._round
        if call.round_number < self._round or (not anew and self.leader is None):
            raise ElectionError(f"{name} comes after the round it belongs to")
        before = () if anew else self._failed
        replaced = () if self.leader is None else (self.leader,)
        if call.failed != (*before, *replaced) and not (anew and call.failed == ()):
            raise ElectionError(
                f"{name} says that {list(call.failed)} failed; before it led "
                f"{[*before, *replaced]}"
            )
        elected = transcript.verify(self.registry)
        self.transcripts += 1
        self.failures += len(call.failed) - len(before)
        self.refused += elected is None
        self.unfinished += transcript.phase == "reveal"
        self.head, self.leader = transcript.digest, elected
        self._round, self._failed = call.round_number, call.failed
        return elected
