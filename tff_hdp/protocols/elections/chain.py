"""A zone's elections one after the other, each bound to the one before."""

from tff_hdp.protocols.elections.electorate import Registry
from tff_hdp.protocols.elections.standing import Standing
from tff_hdp.protocols.elections.transcripts import Transcript


class Chain:
    """Follows the transcripts of a zone and checks how each came after the other.

    A further election within a round, and under `persistent` any while somebody
    leads, must name the super-node elected before as failed, for all to see, and
    there is none in a round after a refusal. So a relay that does not like a winner
    cannot hold the election again as if nothing had been: but for the one that
    `rotate` owes every round, each further draw is counted here.

    Attributes:
      standing: Where the zone's elections stand.
      transcripts: How many there were.
      refused: How many elections were refused.
      unfinished: How many of these the relay may have refused knowing the winner: it
        need not tell of messages that it has. Those at `confirm` and `reveal`, of
        which clients were shown a ballot; and where not all are called, every one:
        who confirmed a ballot waits to see how it ended, but others may be called.
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
        all_called = self.registry.call_size == len(self.registry.voters)
        shown = transcript.phase in ("confirm", "reveal")
        self.unfinished += elected is None and (shown or not all_called)
        self.standing = Standing.after(call, transcript.digest, elected)
        return elected
