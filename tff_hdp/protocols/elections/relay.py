"""The bulletin board of an election."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tff_hdp.protocols.elections.ballots import (
    Ballot,
    Certificate,
    Confirmation,
    Dealing,
    Outcome,
    Presence,
    Reveal,
    Roll,
    check_ballot_named,
    check_signed,
    dealing_holds,
    reveal_holds,
    sum_of_shares,
)
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Registry
from tff_hdp.protocols.elections.setup import Call, Setup
from tff_hdp.protocols.elections.transcripts import PHASES, Phase, Transcript

_M = TypeVar("_M", Presence, Dealing, Confirmation, Reveal)
_MESSAGES = {
    "attend": Presence,
    "deal": Dealing,
    "confirm": Confirmation,
    "reveal": Reveal,
}


class Relay:
    """Collects, proposes, passes on; trusted with nothing.

    A message that is refused leaves the state as it was. An election that cannot go
    on is refused by an error that carries its transcript.

    Attributes:
      registry: The zone's.
      call: What clients are called for.
      phase: What is being collected.
      rejected: Who sent unsound proofs, of those it had to check, and why.
    """

    def __init__(self, registry: Registry, call: Call, identity: Identity) -> None:
        """Opens an election for presences.

        Args:
          registry: The zone's.
          call: What clients are called for.
          identity: The relay's own keys, with which it seals the transcript.
        """
        self.registry = registry
        self.call = call
        self._identity = identity
        self.phase: Phase = "attend"
        self._ids = [voter.client_id for voter in registry.voters]
        self._awaited = frozenset(call.awaited(registry))
        self.rejected: dict[str, str] = {}
        self._received: dict[str, dict] = {phase: {} for phase in PHASES}
        self._setup: Setup | None = None
        self._ballot: Ballot | None = None
        self._certificate: Certificate | None = None
        self._encrypted: list[bytes] = []

    def receive(self, message: Presence | Dealing | Confirmation | Reveal) -> None:
        """Takes one client's message of the current phase.

        Raises:
          ElectionError: If it is of another phase or election, forged, sent
            twice, of somebody who is not awaited, or of another ballot. Proofs are
            checked when the phase ends.
        """
        kind, sender = type(message).__name__.lower(), message.sender
        if _MESSAGES.get(self.phase) is not type(message):
            raise ElectionError(f"{kind} of {sender!r} came in phase {self.phase!r}")
        received = self._received[self.phase]
        if sender in received:
            raise ElectionError(f"{sender!r} sent more than one {kind}")
        voter = self.registry.voter(sender)
        if self._setup is None:
            if sender not in self._awaited:
                raise ElectionError(f"{sender!r} is not called, or has failed")
            check_signed(message, self.call.digest, voter)
        else:
            self._setup.share_number(sender)
            check_signed(message, self._setup.digest, voter)
        if isinstance(message, Confirmation | Reveal):
            check_ballot_named(self._ballot.digest, message)
        received[sender] = message

    def roll(self) -> Roll:
        """Ends the attending: who is there.

        Raises:
          ElectionError: As `Setup`; a `BeyondThresholdError` if too many are not.
        """
        self._expect("attend")
        presences = self._ordered(self._ids)
        present = tuple(presence.sender for presence in presences)
        with self._on_record():
            self._setup = Setup(self.registry, self.call, present)
        self.phase = "deal"
        return Roll(self.call, presences)

    def propose(self) -> Ballot:
        """Ends the dealing: f + 1 sound dealings, for all to confirm.

        One honest contribution makes the sum uniform, and none is known yet, so it
        does not matter whose are taken.

        Raises:
          BeyondThresholdError: If fewer than k - f clients dealt soundly.
        """
        self._expect("deal")
        setup = self._setup
        dealings = self._sound(
            lambda dealing: dealing_holds(setup, dealing), setup.quorum
        )
        with self._on_record():
            setup.check_quorum("dealt", len(dealings))
        self._ballot = Ballot(setup.digest, dealings[: setup.threshold])
        self._encrypted = sum_of_shares(self._ballot.dealings)
        self.phase = "confirm"
        return self._ballot

    def certify(self) -> Certificate:
        """Ends the confirming: the signatures that make the ballot final.

        Raises:
          BeyondThresholdError: If fewer than k - f clients confirmed.
        """
        self._expect("confirm")
        setup = self._setup
        confirmations = self._ordered(setup.present)
        with self._on_record():
            setup.check_quorum("confirmed", len(confirmations))
        self._certificate = Certificate(setup.digest, confirmations[: setup.quorum])
        self.phase = "reveal"
        return self._certificate

    def finish(self) -> Transcript:
        """Ends the election: its transcript, with the f + 1 reveals it takes.

        Raises:
          BeyondThresholdError: If fewer than f + 1 clients revealed.
        """
        self._expect("reveal")
        setup = self._setup
        ballot, encrypted = self._ballot.digest, self._encrypted
        reveals = self._sound(
            lambda reveal: reveal_holds(setup, ballot, encrypted, reveal),
            setup.threshold,
        )
        with self._on_record():
            setup.check_threshold("revealed", len(reveals))
        self.phase = "done"
        return self._transcript(reveals)

    def outcome(self, transcript: Transcript) -> Outcome:
        """What to tell everybody of an election that is done."""
        return Outcome(self._setup.digest, transcript.reveals, transcript.seal)

    @contextlib.contextmanager
    def _on_record(self) -> Iterator[None]:
        """Puts the transcript of an election that is refused inside into the error."""
        try:
            yield
        except ElectionError as error:
            last = self._ordered(self._ids)
            error.transcripts = (self._transcript(last),)
            raise

    def _transcript(self, last: tuple) -> Transcript:
        """The election so far; `last` are the messages with which it ends."""
        said = [self._ordered(self._ids, "attend")]
        if self._ballot is not None:
            said.append(self._ballot.dealings)
        if self._certificate is not None:
            said.append(self._certificate.confirmations)
        if self.phase != "attend":
            said.append(last)
        return Transcript(self.call, self.phase, *said).sealed(self._identity)

    def _ordered(self, clients: Iterable[str], phase: Phase | None = None) -> tuple:
        received = self._received[phase or self.phase]
        return tuple(received[client] for client in clients if client in received)

    def _sound(self, holds: Callable[[_M], bool], needed: int) -> tuple[_M, ...]:
        """The first `needed` messages whose proofs hold, if there are so many.

        Those before them whose proofs fail are dropped and their senders named; what
        comes after them is not needed and not checked.
        """
        sound: list[_M] = []
        for message in self._ordered(self._setup.present):
            if len(sound) == needed:
                break
            if holds(message):
                sound.append(message)
                continue
            kind = type(message).__name__.lower()
            self.rejected[message.sender] = f"the proof of its {kind} fails"
            del self._received[self.phase][message.sender]
        return tuple(sound)

    def _expect(self, phase: str) -> None:
        if self.phase != phase:
            raise ElectionError(f"phase is {self.phase!r}; this belongs to {phase!r}")
