"""The record of an election, and its check by anyone afterwards."""

import base64
import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_hdp.protocols import wire
from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections import ristretto as group
from tff_hdp.protocols.elections.ballots import (
    Ballot,
    Certificate,
    Confirmation,
    Reveal,
    check_signed,
    dealings_hold,
    reveal_context,
)
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Setup,
)
from tff_hdp.protocols.elections.ristretto import Point


@dataclasses.dataclass(frozen=True)
class Transcript:
    """All that was said in an election that reached its end.

    Attributes:
      setup: What the election was about.
      ballot: The dealings that count.
      certificate: The quorum that confirmed them before anything was revealed.
      reveals: The decrypted shares.
    """

    setup: Setup
    ballot: Ballot
    certificate: Certificate
    reveals: tuple[Reveal, ...]

    def verify(self) -> str:
        """Checks every signature and proof and draws the winner again.

        Returns:
          The id of the elected client.

        Raises:
          ElectionError: If anything does not hold, naming it.
        """
        check_ballot(self.setup, self.ballot)
        check_certificate(self.setup, self.ballot, self.certificate)
        return winner(
            self.setup, self.ballot.digest, sum_of_shares(self.ballot), self.reveals
        )

    def to_json(self) -> str:
        """The transcript as JSON, the bytes of its wire format within."""
        return json.dumps(
            {
                "session": self.setup.session,
                "voters": [voter.client_id for voter in self.setup.voters],
                "winner": self.verify(),
                "transcript": base64.b64encode(wire.encode(self)).decode(),
            }
        )

    @staticmethod
    def from_json(text: str) -> "Transcript":
        """Reads what `to_json` wrote; `verify` it before believing it.

        Raises:
          ElectionError: If the text holds no transcript.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            data = base64.b64decode(fields["transcript"], validate=True)
            return wire.decode(Transcript, data)
        except ElectionError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise ElectionError(f"no transcript: {error}") from error


def check_ballot(setup: Setup, ballot: Ballot) -> None:
    """Checks that a ballot holds f + 1 sound dealings, one of them honest.

    Raises:
      BeyondThresholdError: If it holds fewer.
      ElectionError: If a dealing is another election's, repeated, or unsound.
    """
    _check_setup("ballot", ballot, setup)
    _check_distinct("dealing", ballot.dealings)
    for dealing in ballot.dealings:
        check_signed(dealing, setup)
    if not dealings_hold(setup, ballot.dealings):
        bad = [d.sender for d in ballot.dealings if not dealings_hold(setup, [d])]
        raise ElectionError(f"dealings of {bad} are no sound sharings")
    _check_threshold(setup, "dealings", len(ballot.dealings))


def check_certificate(setup: Setup, ballot: Ballot, certificate: Certificate) -> None:
    """Checks that a quorum confirmed exactly this ballot.

    Raises:
      BeyondThresholdError: If fewer than k - f confirmed.
      ElectionError: If a confirmation is repeated, forged, or of another ballot.
    """
    _check_setup("certificate", certificate, setup)
    _check_distinct("confirmation", certificate.confirmations)
    for confirmation in certificate.confirmations:
        check_confirmation(setup, ballot.digest, confirmation)
    check_quorum(setup, "confirmed", len(certificate.confirmations))


def check_confirmation(setup: Setup, digest: bytes, confirmation: Confirmation) -> None:
    """Checks one confirmation of the ballot of that digest.

    Raises:
      ElectionError: If it is forged or of another ballot.
    """
    check_signed(confirmation, setup)
    if confirmation.ballot != digest:
        raise ElectionError(f"{confirmation.sender!r} confirmed another ballot")


def sum_of_shares(ballot: Ballot) -> list[Point]:
    """Voter by voter, the encrypted share of the sum of all contributions."""
    return pvss.aggregate([dealing.shares for dealing in ballot.dealings])


def check_reveal(setup: Setup, digest: bytes, reveal: Reveal) -> None:
    """Checks who sent a reveal and for which ballot; not yet its proof.

    Raises:
      ElectionError: If it is forged or of another ballot.
    """
    check_signed(reveal, setup)
    if reveal.ballot != digest:
        raise ElectionError(f"{reveal.sender!r} revealed for another ballot")


def reveals_hold(
    setup: Setup, digest: bytes, encrypted: Sequence[Point], reveals: Iterable[Reveal]
) -> bool:
    """Whether every reveal's proof holds, given `sum_of_shares` of the ballot."""
    rows = []
    for reveal in reveals:
        index = setup.share_number(reveal.sender) - 1
        rows.append(
            (
                reveal_context(setup, digest, reveal.sender),
                group.decode(setup.voters[index].share_key),
                encrypted[index],
                reveal.share,
                reveal.commitments,
                reveal.response,
            )
        )
    return pvss.shares_hold(rows)


def winner(
    setup: Setup, digest: bytes, encrypted: Sequence[Point], reveals: Sequence[Reveal]
) -> str:
    """Draws the winner from the recovered sum of contributions.

    Whichever reveals are present, the sum is the same: withholding one changes
    nothing.

    Args:
      setup: What the election is about.
      digest: The digest of the ballot that was certified.
      encrypted: `sum_of_shares` of that ballot.
      reveals: At least f + 1 sound ones.

    Raises:
      BeyondThresholdError: If there are fewer.
      ElectionError: If a reveal is repeated, forged or wrong.
    """
    _check_distinct("reveal", reveals)
    for reveal in reveals:
        check_reveal(setup, digest, reveal)
    if not reveals_hold(setup, digest, encrypted, reveals):
        bad = [
            reveal.sender
            for reveal in reveals
            if not reveals_hold(setup, digest, encrypted, [reveal])
        ]
        raise ElectionError(f"{bad} revealed wrong shares")
    _check_threshold(setup, "reveals", len(reveals))
    secret = pvss.recover(
        {setup.share_number(r.sender): r.share for r in reveals[: setup.threshold]}
    )
    return draw(setup, digest, secret)


def draw(setup: Setup, digest: bytes, secret: Point) -> str:
    """The candidate that a recovered secret elects, each equally likely."""
    # 512 bits modulo at most a few thousand candidates: the bias is below 2^-490.
    stream = HKDF(hashes.SHA256(), 64, setup.digest, b"winner" + digest)
    number = int.from_bytes(stream.derive(group.encode(secret)), "little")
    return setup.candidates[number % len(setup.candidates)]


def check_quorum(setup: Setup, verb: str, count: int) -> None:
    """Raises BeyondThresholdError if fewer than k - f voters did their part."""
    if count < setup.quorum:
        raise BeyondThresholdError(
            f"{setup.session!r}: {count} of {len(setup.voters)} voters {verb}; with "
            f"at most {setup.faulty} {setup.fault_model} faults {setup.quorum} must"
        )


def _check_threshold(setup: Setup, what: str, count: int) -> None:
    if count < setup.threshold:
        raise BeyondThresholdError(
            f"{setup.session!r}: {count} {what}; with up to {setup.faulty} "
            f"{setup.fault_model} faults {setup.threshold} are needed"
        )


def _check_setup(kind: str, message: Ballot | Certificate, setup: Setup) -> None:
    if message.setup != setup.digest:
        raise ElectionError(
            f"{kind} belongs to another election than {setup.session!r}"
        )


def _check_distinct(kind: str, messages: Sequence[Any]) -> None:
    seen: set[str] = set()
    for message in messages:
        if message.sender in seen:
            raise ElectionError(f"{message.sender!r} sent more than one {kind}")
        seen.add(message.sender)
