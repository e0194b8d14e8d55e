"""What the parties of an election say to each other."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tff_hdp.protocols import wire
from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Voter
from tff_hdp.protocols.elections.setup import Call, Setup


@dataclasses.dataclass(frozen=True)
class Signed:
    """What a client signs.

    Attributes:
      election: The digest of the call or, from the roll on, of the election.
      sender: The client's id.
      signature: 64 bytes; empty before it is there.
    """

    election: bytes
    sender: str
    _: dataclasses.KW_ONLY
    signature: bytes = b""


@dataclasses.dataclass(frozen=True)
class Presence(Signed):
    """A client's word that it is there."""


@dataclasses.dataclass(frozen=True)
class Roll:
    """Who is there, from the relay; from here on the election has its digest."""

    call: Call
    presences: tuple[Presence, ...]


@dataclasses.dataclass(frozen=True)
class Dealing(Signed):
    """A voter's contribution, shared among all voters (`pvss.deal`)."""

    shares: tuple[bytes, ...]
    challenge: bytes
    responses: tuple[bytes, ...]


@dataclasses.dataclass(frozen=True)
class Ballot:
    """The relay's proposal: the f + 1 dealings that count."""

    election: bytes
    dealings: tuple[Dealing, ...]

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for the dealings proposed."""
        return hashlib.sha256(wire.encode(self)).digest()


@dataclasses.dataclass(frozen=True)
class Confirmation(Signed):
    """A voter's one word that it checked a ballot and takes no other."""

    ballot: bytes


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A quorum's confirmations of one ballot."""

    election: bytes
    confirmations: tuple[Confirmation, ...]


@dataclasses.dataclass(frozen=True)
class Reveal(Signed):
    """A voter's decrypted share of the summed contributions (`pvss.decrypt`)."""

    ballot: bytes
    share: bytes
    challenge: bytes
    response: bytes


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The f + 1 reveals that end an election, and the seal of its transcript."""

    election: bytes
    reveals: tuple[Reveal, ...]
    seal: bytes


_S = TypeVar("_S", bound=Signed)


def sign(message: _S, identity: Identity) -> _S:
    """The message with its sender's signature."""
    signature = identity.signing_key.sign(wire.signed_part(message))
    return dataclasses.replace(message, signature=signature)


def check_signed(message: Signed, election: bytes, voter: Voter) -> None:
    """Checks that a message is of this election and by that voter.

    Raises:
      ElectionError: If it is of another election (a replay) or its signature is
        wrong.
    """
    name = _name(message)
    if message.election != election:
        raise ElectionError(f"{name} is of another election")
    check_signature(
        name, voter.verify_key, message.signature, wire.signed_part(message)
    )


def check_signature(name: str, key: bytes, signature: bytes, data: bytes) -> None:
    """Raises ElectionError unless the signature is that key's of the data."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError) as error:
        raise ElectionError(f"{name} bears a wrong signature") from error


def check_all_signed(setup: Setup, messages: Sequence[Signed]) -> None:
    """Checks signatures, and that senders are voters in order, each once.

    One order only, so that who passes messages on has no choice of words.

    Raises:
      ElectionError: If a message is repeated, out of order, of another election or
        forged.
    """
    last = 0
    for message in messages:
        number = setup.share_number(message.sender)
        if number <= last:
            raise ElectionError(f"{_name(message)} is repeated or misplaced")
        check_signed(message, setup.digest, setup.voters[number - 1])
        last = number


def check_ballot_named(ballot: bytes, message: Confirmation | Reveal) -> None:
    """Raises ElectionError unless a message is about the ballot of that digest."""
    if message.ballot != ballot:
        raise ElectionError(f"{_name(message)} is of another ballot")


def dealing_context(setup: Setup, sender: str) -> bytes:
    """What a dealing's proof is bound to."""
    return setup.digest + b"deal" + sender.encode()


def reveal_context(setup: Setup, ballot: bytes, sender: str) -> bytes:
    """What a reveal's proof is bound to."""
    return setup.digest + b"reveal" + ballot + sender.encode()


def dealing_holds(setup: Setup, dealing: Dealing) -> bool:
    """Whether a dealing's proof holds; its signature is checked apart."""
    return pvss.deal_holds(
        dealing_context(setup, dealing.sender),
        setup.share_keys,
        setup.threshold,
        (dealing.shares, dealing.challenge, dealing.responses),
    )


def sum_of_shares(dealings: Iterable[Dealing]) -> list[bytes]:
    """Voter by voter, the encrypted share of the sum of all contributions."""
    return pvss.aggregate([dealing.shares for dealing in dealings])


def reveal_holds(
    setup: Setup, ballot: bytes, encrypted: Sequence[bytes], reveal: Reveal
) -> bool:
    """Whether a reveal's proof holds, given `sum_of_shares` of the ballot."""
    index = setup.share_number(reveal.sender) - 1
    return pvss.share_holds(
        reveal_context(setup, ballot, reveal.sender),
        setup.share_keys[index],
        encrypted[index],
        (reveal.share, reveal.challenge, reveal.response),
    )


def _name(message: Signed) -> str:
    return f"{type(message).__name__.lower()} of {message.sender!r}"
