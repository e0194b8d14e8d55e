"""Electing a super-node by randomness that nobody can bias.

Four rounds over a relay (the server, or the outgoing super-node):

1. attend: the relay calls the zone's clients, who sign that they are there;
2. deal: every client there shares a random contribution, verifiably, so that any
   f + 1 clients can open it and f cannot;
3. confirm: the relay proposes f + 1 sound dealings, of which one at least is
   honest; each client checks them and signs that one ballot and no other. k - f
   signatures make it final;
4. reveal: only now do clients decrypt their share of the sum of contributions.
   Any f + 1 give the sum, from which the winner is drawn.

Contributions are fixed before any is known, and a client that stops half-way
takes nothing away, since the others open its contribution. The relay may lose
messages, but it can neither forge them nor have two ballots confirmed, and who has
confirmed a ballot takes part in no further election before it has seen how that
one ended. Faults up to f are withstood as `electorate.max_faulty` says. Who comes is
the relay's to say within f: that many of those called it may keep from being elected.
"""

import os

from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections.ballots import (
    Ballot,
    Certificate,
    Confirmation,
    Dealing,
    Outcome,
    Presence,
    Reveal,
    Roll,
    dealing_context,
    reveal_context,
    sign,
    sum_of_shares,
)
from tff_hdp.protocols.elections.chain import Standing
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Registry
from tff_hdp.protocols.elections.pvss import RandomScalar
from tff_hdp.protocols.elections.setup import Call, Setup
from tff_hdp.protocols.elections.transcripts import (
    PHASES,
    Transcript,
    check_ballot,
    check_certified,
    check_election,
    check_presences,
    winner,
)


class Elector:
    """One client's part in its zone's elections, one after the other.

    In each: attend, deal, confirm, reveal, conclude, each once and in order; or
    `close`, if the relay says that it was refused. Elections to which this client is
    not called it is shown afterwards, to `follow`.

    Attributes:
      identity: The client's secret keys.
      registry: The zone's clients, as this client knows them.
      standing: Where the zone's elections stand, as this client knows; None if it
        was in no election yet and takes the relay's word for it.
    """

    def __init__(
        self,
        identity: Identity,
        registry: Registry,
        *,
        standing: Standing | None = None,
        fresh: bytes | None = None,
    ) -> None:
        """Joins a zone.

        Args:
          identity: The client's secret keys.
          registry: The zone's clients, as this client knows them.
          standing: As the attribute.
          fresh: Randomness that goes into contributions and proofs; None draws it
            from the system each time. Fixed, the same election has the same
            messages whenever it is held again.

        Raises:
          ElectionError: If the identity is not registered.
        """
        if registry.voter(identity.client_id) != identity.public:
            raise ElectionError(f"keys of {identity.client_id!r} are not those known")
        self.identity = identity
        self.registry = registry
        self.standing = standing
        self._fresh = fresh
        self._start(None)

    def attend(self, call: Call, round_number: int) -> Presence:
        """Signs that this client is there.

        Args:
          call: The relay's.
          round_number: The round that it is, as this client knows from elsewhere than
            the relay: who is called follows from it, and how often one is owed.

        Raises:
          ElectionError: If the call is of another registry or round or not for this
            client, says that this client has failed, may not come after the elections
            that it knows of, or if it confirmed a ballot whose end it has not seen.
        """
        if self._ballot is not None:
            raise ElectionError(
                f"{self._me} has confirmed a ballot of {self._setup.name} and has "
                "not seen how it ended"
            )
        check_presences(self.registry, call, ())
        if call.round_number != round_number:
            raise ElectionError(
                f"{call.name(self.registry.zone)} is called in round {round_number}"
            )
        if self.standing is not None:
            self.standing.check(self.registry, call)
        if self._me in call.failed:
            raise ElectionError(f"{self._me!r} is said to have failed, and has not")
        if self._me not in self.registry.called(call.round_number):
            raise ElectionError(f"{self._me!r} is not called")
        self._start(call)
        return sign(Presence(call.digest, self._me), self.identity)

    def deal(self, roll: Roll) -> Dealing:
        """Shares this client's contribution among those who are there.

        Raises:
          ElectionError: If the roll is of another call, lacks this client or too
            many others, or holds a forged presence.
        """
        if self._call is None or self._setup is not None:
            raise ElectionError(f"{self._me!r} has attended no call, or has dealt")
        if roll.call != self._call:
            raise ElectionError(f"{self._me!r} attended another call")
        check_presences(self.registry, roll.call, roll.presences)
        present = tuple(presence.sender for presence in roll.presences)
        setup = Setup(self.registry, roll.call, present)
        setup.share_number(self._me)
        parts = pvss.deal(
            dealing_context(setup, self._me),
            setup.share_keys,
            setup.threshold,
            random=self._scalars(b"deal", setup.digest),
        )
        self._setup, self._presences = setup, roll.presences
        self._dealing = sign(Dealing(setup.digest, self._me, *parts), self.identity)
        return self._dealing

    def confirm(self, ballot: Ballot) -> Confirmation:
        """Checks the relay's ballot and signs it, and never another.

        Raises:
          ElectionError: If the ballot is unsound, or one was confirmed before.
        """
        if self._setup is None:
            raise ElectionError(f"{self._me!r} has not dealt yet")
        if self._ballot is not None:
            raise ElectionError(f"{self._me!r} has confirmed a ballot already")
        check_ballot(self._setup, ballot, self._dealing)
        self._ballot = ballot
        return sign(
            Confirmation(self._setup.digest, self._me, ballot.digest), self.identity
        )

    def reveal(self, certificate: Certificate) -> Reveal:
        """Decrypts this client's share, once a quorum confirmed its ballot.

        Raises:
          ElectionError: If the certificate is of another election or not of the
            ballot it confirmed, or it has revealed before.
        """
        if self._ballot is None:
            raise ElectionError(f"{self._me!r} has confirmed no ballot")
        if self._certificate is not None:
            raise ElectionError(f"{self._me!r} has revealed already")
        setup, digest = self._setup, self._ballot.digest
        check_election(setup, certificate)
        check_certified(setup, self._ballot, certificate.confirmations)
        self._encrypted = sum_of_shares(self._ballot.dealings)
        parts = pvss.decrypt(
            reveal_context(setup, digest, self._me),
            self.identity.share_secret,
            self._encrypted[setup.share_number(self._me) - 1],
            random=self._scalars(b"reveal", setup.digest, digest),
        )
        self._certificate = certificate
        return sign(Reveal(setup.digest, self._me, digest, *parts), self.identity)

    def conclude(self, outcome: Outcome) -> str:
        """The winner, computed by this client itself from the others' reveals.

        Raises:
          ElectionError: As `transcripts.winner`; if the outcome is of another election
            or its seal wrong, or before a ballot is final.
        """
        if self._certificate is None:
            raise ElectionError(f"{self._me!r} has not revealed yet")
        check_election(self._setup, outcome)
        elected = winner(
            self._setup, self._ballot.digest, self._encrypted, outcome.reveals
        )
        transcript = Transcript(
            self._call,
            "done",
            self._presences,
            self._ballot.dealings,
            self._certificate.confirmations,
            outcome.reveals,
            outcome.seal,
        )
        transcript.check_seal(self.registry)
        self._end(transcript, elected)
        return elected

    def follow(self, transcript: Transcript, round_number: int) -> str | None:
        """Takes note of the zone's next election, which this client did not attend.

        Args:
          transcript: The election's.
          round_number: The round that it is, as this client knows from elsewhere than
            the relay; the election may be of an earlier one, if the client was away.

        Returns:
          The winner; None if it was refused.

        Raises:
          ElectionError: If this client confirmed one that is not closed, or the
            transcript is of a round to come, does not verify or does not follow the
            last that it knows of.
        """
        # A call in which it confirmed nothing may have died with its relay.
        if self._ballot is not None:
            raise ElectionError(f"{self._me!r} attends an election: it is closed first")
        if transcript.call.round_number > round_number:
            named = transcript.call.name(self.registry.zone)
            raise ElectionError(f"{named} is told of in round {round_number}")
        if self.standing is not None:
            self.standing.check(self.registry, transcript.call)
        elected = transcript.verify(self.registry)
        self._end(transcript, elected)
        return elected

    def close(self, transcript: Transcript) -> str | None:
        """Takes note of how an election ended that this client did not conclude.

        Returns:
          The winner; None if it was refused.

        Raises:
          ElectionError: If the transcript does not verify or is of another call, or
            if it says that too few confirmed or revealed and leaves this client's
            confirmation or reveal out.
        """
        if transcript.call != self._call:
            raise ElectionError(f"{self._me!r} attended another call")
        elected = transcript.verify(self.registry)
        reached = PHASES.index(transcript.phase)
        for phase, own, told in (
            ("confirm", self._ballot, transcript.confirmations),
            ("reveal", self._certificate, transcript.reveals),
        ):
            named = self._me in {message.sender for message in told}
            if own is not None and reached <= PHASES.index(phase) and not named:
                raise ElectionError(
                    f"the transcript leaves out what {self._me!r} said at {phase!r}"
                )
        self._end(transcript, elected)
        return elected

    @property
    def _me(self) -> str:
        return self.identity.client_id

    def _start(self, call: Call | None) -> None:
        self._call = call
        self._setup: Setup | None = None
        self._presences: tuple[Presence, ...] = ()
        self._dealing: Dealing | None = None
        self._ballot: Ballot | None = None
        self._certificate: Certificate | None = None
        self._encrypted: list[bytes] = []

    def _end(self, transcript: Transcript, elected: str | None) -> None:
        self.standing = Standing.after(transcript.call, transcript.digest, elected)
        self._start(None)

    def _scalars(self, *message: bytes) -> RandomScalar:
        fresh = os.urandom(32) if self._fresh is None else self._fresh
        return pvss.hedged_scalars(self.identity.nonce_secret, *message, fresh=fresh)
