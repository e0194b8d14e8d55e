"""Electing a super-node by randomness that nobody can bias.

Three rounds over a relay (the server, or the outgoing super-node):

1. deal: every online client shares a random contribution, verifiably, so that
   any f + 1 clients can open it and f cannot;
2. confirm: the relay proposes f + 1 sound dealings, of which one at least is
   honest; each client checks them and signs that one ballot and no other. k - f
   signatures make it final;
3. reveal: only now do clients decrypt their share of the sum of contributions.
   Any f + 1 give the sum, from which the winner is drawn.

Contributions are fixed before any is known, and a client that stops half-way
takes nothing away, since the others open its contribution. The relay may lose
messages, which ends in a refusal, but it can neither forge them nor have two
ballots confirmed. Faults up to f are withstood as `electorate.max_faulty` says.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections import ristretto as group
from tff_hdp.protocols.elections.ballots import (
    Ballot,
    Certificate,
    Confirmation,
    Dealing,
    Reveal,
    check_signed,
    dealing_context,
    dealings_hold,
    reveal_context,
    sign,
)
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Setup
from tff_hdp.protocols.elections.transcripts import (
    Transcript,
    check_ballot,
    check_certificate,
    check_confirmation,
    check_quorum,
    check_reveal,
    reveals_hold,
    sum_of_shares,
    winner,
)

_M = TypeVar("_M", Dealing, Reveal)


class Elector:
    """One client's part in one election: deal, confirm, reveal, each once."""

    def __init__(
        self,
        setup: Setup,
        identity: Identity,
        *,
        random: pvss.RandomScalar = pvss.random_scalar,
    ) -> None:
        """Joins an election.

        Args:
          setup: What it is about.
          identity: The client's secret keys, of one of the voters.
          random: Source of scalars; for tests.

        Raises:
          ElectionError: If the identity is no voter's.
        """
        if setup.voter(identity.client_id) != identity.public:
            raise ElectionError(f"keys of {identity.client_id!r} are not its voter's")
        self.setup = setup
        self.identity = identity
        self._random = random
        self._dealt = False
        self._ballot: Ballot | None = None
        self._encrypted: list[group.Point] = []
        self._revealed = False

    def deal(self) -> Dealing:
        """Shares this client's contribution.

        Raises:
          ElectionError: If it has dealt before.
        """
        if self._dealt:
            raise ElectionError(f"{self.identity.client_id!r} has dealt already")
        keys = [group.decode(voter.share_key) for voter in self.setup.voters]
        context = dealing_context(self.setup, self.identity.client_id)
        parts = pvss.deal(context, keys, self.setup.threshold, random=self._random)
        dealing = Dealing(self.setup.digest, self.identity.client_id, *parts)
        self._dealt = True
        return sign(dealing, self.identity)

    def confirm(self, ballot: Ballot) -> Confirmation:
        """Checks the relay's ballot and signs it, and never another.

        Raises:
          ElectionError: If the ballot is unsound, or one was confirmed before.
        """
        if self._ballot is not None:
            raise ElectionError(
                f"{self.identity.client_id!r} has confirmed a ballot already"
            )
        check_ballot(self.setup, ballot)
        self._ballot = ballot
        self._encrypted = sum_of_shares(ballot)
        return sign(
            Confirmation(self.setup.digest, self.identity.client_id, ballot.digest),
            self.identity,
        )

    def reveal(self, certificate: Certificate) -> Reveal:
        """Decrypts this client's share, once a quorum confirmed its ballot.

        Raises:
          ElectionError: If the certificate is not of the ballot it confirmed,
            or it has revealed before.
        """
        if self._ballot is None:
            raise ElectionError(f"{self.identity.client_id!r} has confirmed no ballot")
        if self._revealed:
            raise ElectionError(f"{self.identity.client_id!r} has revealed already")
        check_certificate(self.setup, self._ballot, certificate)
        me, digest = self.identity.client_id, self._ballot.digest
        parts = pvss.decrypt(
            reveal_context(self.setup, digest, me),
            self.identity.share_secret,
            self._encrypted[self.setup.share_number(me) - 1],
            random=self._random,
        )
        self._revealed = True
        return sign(Reveal(self.setup.digest, me, digest, *parts), self.identity)

    def conclude(self, reveals: Sequence[Reveal]) -> str:
        """The winner, computed by this client itself from the others' reveals.

        Raises:
          ElectionError: As `transcripts.winner`; or before a ballot is final.
        """
        if not self._revealed or self._ballot is None:
            raise ElectionError(f"{self.identity.client_id!r} has not revealed yet")
        return winner(self.setup, self._ballot.digest, self._encrypted, reveals)


class Relay:
    """The bulletin board: collects, proposes, passes on; trusted with nothing.

    A message that is refused leaves the state as it was. `rejected` names who
    sent unsound proofs and why.
    """

    def __init__(self, setup: Setup) -> None:
        """Opens an election for dealings."""
        self.setup = setup
        self.phase: Literal["deal", "confirm", "reveal", "done"] = "deal"
        self.rejected: dict[str, str] = {}
        self._dealings: dict[str, Dealing] = {}
        self._confirmations: dict[str, Confirmation] = {}
        self._reveals: dict[str, Reveal] = {}
        self._ballot: Ballot | None = None
        self._certificate: Certificate | None = None
        self._encrypted: list[group.Point] = []

    def receive(self, message: Dealing | Confirmation | Reveal) -> None:
        """Takes one client's message of the current phase.

        Raises:
          ElectionError: If it is of another phase or election, forged, sent
            twice, or of another ballot. Proofs are checked when the phase ends.
        """
        expected, held = {
            "deal": (Dealing, self._dealings),
            "confirm": (Confirmation, self._confirmations),
            "reveal": (Reveal, self._reveals),
            "done": (type(None), {}),
        }[self.phase]
        kind = type(message).__name__.lower()
        if not isinstance(message, expected):
            raise ElectionError(
                f"{kind} of {message.sender!r} came in phase {self.phase!r}"
            )
        if message.sender in held:
            raise ElectionError(f"{message.sender!r} sent more than one {kind}")
        if self.phase == "deal":
            check_signed(message, self.setup)
        elif self.phase == "confirm":
            check_confirmation(self.setup, self._ballot.digest, message)
        else:
            check_reveal(self.setup, self._ballot.digest, message)
        held[message.sender] = message

    def propose(self) -> Ballot:
        """Ends the dealing: f + 1 sound dealings, for all to confirm.

        One honest contribution makes the sum uniform, and none is known yet, so it
        does not matter whose are taken.

        Raises:
          BeyondThresholdError: If fewer than k - f clients dealt soundly.
        """
        self._expect("deal")
        dealings = self._sound(
            self._dealings.values(), lambda some: dealings_hold(self.setup, some)
        )
        check_quorum(self.setup, "dealt", len(dealings))
        chosen = dealings[: self.setup.threshold]
        self._ballot = Ballot(self.setup.digest, tuple(chosen))
        self._encrypted = sum_of_shares(self._ballot)
        self.phase = "confirm"
        return self._ballot

    def certify(self) -> Certificate:
        """Ends the confirming: the signatures that make the ballot final.

        Raises:
          BeyondThresholdError: If fewer than k - f clients confirmed.
        """
        self._expect("confirm")
        check_quorum(self.setup, "confirmed", len(self._confirmations))
        self._certificate = Certificate(
            self.setup.digest, tuple(self._confirmations.values())
        )
        self.phase = "reveal"
        return self._certificate

    def finish(self) -> Transcript:
        """Ends the election: its transcript, with the f + 1 reveals it takes.

        Raises:
          BeyondThresholdError: If fewer than k - f clients revealed.
        """
        self._expect("reveal")
        reveals = self._sound(
            self._reveals.values(),
            lambda some: reveals_hold(
                self.setup, self._ballot.digest, self._encrypted, some
            ),
        )
        check_quorum(self.setup, "revealed", len(reveals))
        self.phase = "done"
        enough = tuple(reveals[: self.setup.threshold])
        return Transcript(self.setup, self._ballot, self._certificate, enough)

    def _sound(
        self, messages: Iterable[_M], hold: Callable[[list[_M]], bool]
    ) -> list[_M]:
        """Those messages whose proofs hold; names the senders of the others."""
        messages = list(messages)
        if hold(messages):
            return messages
        sound = [message for message in messages if hold([message])]
        for message in messages:
            if message not in sound:
                kind = type(message).__name__.lower()
                self.rejected[message.sender] = f"the proof of its {kind} fails"
        return sound

    def _expect(self, phase: str) -> None:
        if self.phase != phase:
            raise ElectionError(f"phase is {self.phase!r}; this belongs to {phase!r}")
