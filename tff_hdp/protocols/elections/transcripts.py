"""The record of an election, and its check by anyone afterwards."""

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_hdp.protocols import wire
from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections.ballots import (
    Ballot,
    Certificate,
    Confirmation,
    Dealing,
    Outcome,
    Presence,
    Reveal,
    check_all_signed,
    check_ballot_named,
    check_signature,
    check_signed,
    dealing_holds,
    reveal_holds,
    sum_of_shares,
)
from tff_hdp.protocols.elections.electorate import (
    BeyondThresholdError,
    ElectionError,
    Identity,
    Registry,
)
from tff_hdp.protocols.elections.setup import Call, Setup

Phase = Literal["attend", "deal", "confirm", "reveal", "done"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclasses.dataclass(frozen=True)
class Transcript:
    """What was said in an election, whether it reached its end or was refused.

    It holds no keys: who checks it brings the registry. The relay seals it, and so
    answers for what it says of an election that was refused. Everything is in the order
    of the registry and nothing is there that need not be, so an election that
    ended has as many messages as it takes: f + 1 dealings, k - f confirmations,
    f + 1 reveals.

    Attributes:
      call: What the relay called for.
      phase: `done`, or the phase of which too few messages came.
      presences: Who was there.
      dealings: Those of the ballot; all that came, if too few did.
      confirmations: The quorum's; likewise.
      reveals: The decrypted shares; likewise.
      seal: The relay's Ed25519 signature of all this.
    """

    call: Call
    phase: str
    presences: tuple[Presence, ...]
    dealings: tuple[Dealing, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    reveals: tuple[Reveal, ...] = ()
    seal: bytes = b""

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes by which the zone's next election refers to this one."""
        return hashlib.sha256(b"tff_hdp transcript" + wire.encode(self)).digest()

    def sealed(self, relay: Identity) -> "Transcript":
        """The transcript with the relay's seal."""
        signature = relay.signing_key.sign(self._sealed_bytes())
        return dataclasses.replace(self, seal=signature)

    def check_seal(self, registry: Registry) -> None:
        """Raises ElectionError unless the zone's relay sealed exactly this."""
        name = f"transcript of {self.call.name(registry.zone)}"
        check_signature(name, registry.relay_key, self.seal, self._sealed_bytes())

    def verify(self, registry: Registry) -> str | None:
        """Checks every signature and proof and draws the winner again.

        Args:
          registry: The zone's, from elsewhere than whoever brings the transcript.

        Returns:
          The id of the elected client; None if the election was refused.

        Raises:
          ElectionError: If anything does not hold, naming it.
        """
        check_presences(registry, self.call, self.presences)
        self.check_seal(registry)
        present = tuple(presence.sender for presence in self.presences)
        self._check_phase()
        if self.phase == "attend":
            return _refused(lambda: Setup(registry, self.call, present))
        setup = Setup(registry, self.call, present)
        if self.phase == "deal":
            check_dealings(setup, self.dealings)
            return _refused(lambda: setup.check_quorum("dealt", len(self.dealings)))
        ballot = Ballot(setup.digest, self.dealings)
        check_ballot(setup, ballot)
        if self.phase == "confirm":
            check_confirmations(setup, ballot, self.confirmations)
            count = len(self.confirmations)
            return _refused(lambda: setup.check_quorum("confirmed", count))
        check_certified(setup, ballot, self.confirmations)
        encrypted = sum_of_shares(self.dealings)
        if self.phase == "reveal":
            check_reveals(setup, ballot.digest, encrypted, self.reveals)
            count = len(self.reveals)
            return _refused(lambda: setup.check_threshold("revealed", count))
        return winner(setup, ballot.digest, encrypted, self.reveals)

    def to_text(self) -> str:
        """The transcript as one word of base64."""
        return base64.b64encode(wire.encode(self)).decode()

    @staticmethod
    def from_text(text: str) -> "Transcript":
        """Reads what `to_text` wrote, and no other spelling of it.

        `verify` it before believing it.

        Raises:
          ElectionError: If the text is no transcript's.
        """
        try:
            transcript = wire.decode(Transcript, base64.b64decode(text, validate=True))
        except (ValueError, TypeError) as error:
            raise ElectionError(f"no transcript: {error}") from error
        if transcript.to_text() != text:
            raise ElectionError("no transcript: not spelt as one is")
        return transcript

    def _sealed_bytes(self) -> bytes:
        return b"transcript\0" + wire.encode(dataclasses.replace(self, seal=b""))

    def _check_phase(self) -> None:
        """Raises ElectionError unless it ends in a phase, with nothing beyond it."""
        if self.phase not in PHASES:
            raise ElectionError(f"phase is {self.phase!r}; allowed: {PHASES}")
        said = (self.dealings, self.confirmations, self.reveals)
        if any(said[PHASES.index(self.phase) :]):
            raise ElectionError(f"refused at {self.phase!r}, but holds more than that")


def check_presences(
    registry: Registry, call: Call, presences: Sequence[Presence]
) -> None:
    """Checks that those who are there say so themselves.

    Raises:
      ElectionError: If the call is of another registry, or a presence is forged or
        of another call.
    """
    if call.registry != registry.digest:
        raise ElectionError(f"{call.name(registry.zone)} is called by another registry")
    for presence in presences:
        check_signed(presence, call.digest, registry.voter(presence.sender))


def check_dealings(
    setup: Setup, dealings: Sequence[Dealing], own: Dealing | None = None
) -> None:
    """Raises ElectionError if a dealing is repeated, forged or unsound.

    Args:
      setup: What the election is about.
      dealings: Those to check.
      own: What the caller dealt itself, if it did, whose proof it need not check.
    """
    check_all_signed(setup, dealings)
    others = [dealing for dealing in dealings if dealing != own]
    bad = [dealing.sender for dealing in others if not dealing_holds(setup, dealing)]
    if bad:
        raise ElectionError(f"dealings of {bad} are no sound sharings")


def check_election(setup: Setup, message: Ballot | Certificate | Outcome) -> None:
    """Raises ElectionError if what the relay sent is of another election."""
    if message.election != setup.digest:
        kind = type(message).__name__.lower()
        raise ElectionError(f"{kind} is of another election than {setup.name}")


def check_ballot(setup: Setup, ballot: Ballot, own: Dealing | None = None) -> None:
    """Checks that a ballot holds f + 1 sound dealings, one of them honest.

    Args:
      setup: What the election is about.
      ballot: The relay's.
      own: As in `check_dealings`.

    Raises:
      BeyondThresholdError: If it holds fewer.
      ElectionError: If it holds more, or a dealing is another election's, repeated,
        or unsound.
    """
    check_election(setup, ballot)
    check_dealings(setup, ballot.dealings, own)
    setup.check_threshold("dealt", len(ballot.dealings))
    _check_no_more("dealings", len(ballot.dealings), setup.threshold)


def check_confirmations(
    setup: Setup, ballot: Ballot, confirmations: Sequence[Confirmation]
) -> None:
    """Raises ElectionError if one is repeated, forged, or of another ballot."""
    check_all_signed(setup, confirmations)
    for confirmation in confirmations:
        check_ballot_named(ballot.digest, confirmation)


def check_certified(
    setup: Setup, ballot: Ballot, confirmations: Sequence[Confirmation]
) -> None:
    """Checks that a quorum confirmed exactly this ballot.

    Raises:
      BeyondThresholdError: If fewer than k - f confirmed.
      ElectionError: As `check_confirmations`; or if there are more.
    """
    check_confirmations(setup, ballot, confirmations)
    setup.check_quorum("confirmed", len(confirmations))
    _check_no_more("confirmations", len(confirmations), setup.quorum)


def check_reveals(
    setup: Setup, ballot: bytes, encrypted: Sequence[bytes], reveals: Sequence[Reveal]
) -> None:
    """Raises ElectionError if one is repeated, forged, wrong or of another ballot."""
    check_all_signed(setup, reveals)
    for reveal in reveals:
        check_ballot_named(ballot, reveal)
    bad = [
        reveal.sender
        for reveal in reveals
        if not reveal_holds(setup, ballot, encrypted, reveal)
    ]
    if bad:
        raise ElectionError(f"{bad} revealed wrong shares")


def winner(
    setup: Setup, ballot: bytes, encrypted: Sequence[bytes], reveals: Sequence[Reveal]
) -> str:
    """Draws the winner from the recovered sum of contributions.

    Whichever reveals are present, the sum is the same: withholding one changes
    nothing.

    Args:
      setup: What the election is about.
      ballot: The digest of the ballot that was certified.
      encrypted: `sum_of_shares` of that ballot.
      reveals: f + 1 sound ones.

    Raises:
      BeyondThresholdError: If there are fewer.
      ElectionError: If there are more, or one is repeated, forged or wrong.
    """
    check_reveals(setup, ballot, encrypted, reveals)
    setup.check_threshold("revealed", len(reveals))
    _check_no_more("reveals", len(reveals), setup.threshold)
    secret = pvss.recover({setup.share_number(r.sender): r.share for r in reveals})
    return draw(setup, ballot, secret)


def draw(setup: Setup, ballot: bytes, secret: bytes) -> str:
    """The candidate that a recovered secret elects, each equally likely."""
    # 512 bits modulo at most a few thousand candidates: the bias is below 2^-490.
    stream = HKDF(hashes.SHA256(), 64, setup.digest, b"winner" + ballot)
    number = int.from_bytes(stream.derive(secret), "little")
    return setup.candidates[number % len(setup.candidates)]


def _refused(check: Callable[[], object]) -> None:
    """Confirms a recorded refusal: raises ElectionError if `check` finds enough."""
    try:
        check()
    except BeyondThresholdError:
        return
    raise ElectionError("refused, though there were enough")


def _check_no_more(kind: str, count: int, needed: int) -> None:
    if count > needed:
        raise ElectionError(f"{count} {kind}; allowed are {needed}")
