"""Clients that misbehave in an election."""

import dataclasses
from collections.abc import Sequence

from tff_hdp.protocols.elections.ballots import (
    Certificate,
    Dealing,
    Reveal,
    Roll,
    sign,
)
from tff_hdp.protocols.elections.election import Elector
from tff_hdp.protocols.elections.pvss import ORDER
from tff_hdp.protocols.elections.transcripts import Transcript


class UnsoundElector(Elector):
    """Signs what it says, but its dealing and its reveal fail their proofs.

    It concludes like everybody else, from the others' reveals.
    """

    def deal(self, roll: Roll) -> Dealing:
        """A dealing whose shares do not lie on one polynomial."""
        dealing = super().deal(roll)
        return sign(
            dataclasses.replace(
                dealing, responses=_spoiled(dealing.responses), signature=b""
            ),
            self.identity,
        )

    def reveal(self, certificate: Certificate) -> Reveal:
        """A share that is not the decryption it claims to be."""
        reveal = super().reveal(certificate)
        (response,) = _spoiled([reveal.response])
        return sign(
            dataclasses.replace(reveal, response=response, signature=b""),
            self.identity,
        )

    def close(self, transcript: Transcript) -> None:
        """Takes any end, since none tells of its unsound words."""
        self._end(transcript, None)


def _spoiled(responses: Sequence[bytes]) -> tuple[bytes, ...]:
    first = (int.from_bytes(responses[0], "little") + 1) % ORDER
    return (first.to_bytes(32, "little"), *responses[1:])
