"""What the parties of an election say: public, signed values."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tff_hdp.protocols import wire
from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections import ristretto as group
from tff_hdp.protocols.elections.electorate import ElectionError, Identity, Setup


@dataclasses.dataclass(frozen=True)
class Dealing:
    """A voter's contribution, shared among all voters (`pvss.deal`)."""

    setup: bytes
    sender: str
    shares: tuple[bytes, ...]
    commitments: tuple[bytes, ...]
    responses: tuple[bytes, ...]
    signature: bytes = b""


@dataclasses.dataclass(frozen=True)
class Ballot:
    """The relay's proposal: the dealings that count."""

    setup: bytes
    dealings: tuple[Dealing, ...]

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for the dealings proposed."""
        return hashlib.sha256(wire.encode(self)).digest()


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """A voter's one word that it checked a ballot and takes no other."""

    setup: bytes
    sender: str
    ballot: bytes
    signature: bytes = b""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A quorum's confirmations of one ballot."""

    setup: bytes
    confirmations: tuple[Confirmation, ...]


@dataclasses.dataclass(frozen=True)
class Reveal:
    """A voter's decrypted share of the summed contributions (`pvss.decrypt`)."""

    setup: bytes
    sender: str
    ballot: bytes
    share: bytes
    commitments: tuple[bytes, ...]
    response: bytes
    signature: bytes = b""


Signed = Dealing | Confirmation | Reveal


def sign(message: Signed, identity: Identity) -> Signed:
    """The message with its sender's signature."""
    signature = identity.signing_key.sign(_signed_bytes(message))
    return dataclasses.replace(message, signature=signature)


def check_signed(message: Signed, setup: Setup) -> None:
    """Checks that a message is of this election and by who it says.

    Raises:
      ElectionError: If it is of another election (a replay), by no voter, or
        its signature is wrong.
    """
    kind = type(message).__name__.lower()
    if message.setup != setup.digest:
        raise ElectionError(
            f"{kind} of {message.sender!r} belongs to another election than "
            f"{setup.session!r}"
        )
    voter = setup.voter(message.sender)
    key = Ed25519PublicKey.from_public_bytes(voter.verify_key)
    try:
        key.verify(message.signature, _signed_bytes(message))
    except InvalidSignature as error:
        raise ElectionError(
            f"{kind} of {message.sender!r} bears a wrong signature"
        ) from error


def dealing_context(setup: Setup, sender: str) -> bytes:
    """What a dealing's proof is bound to."""
    return setup.digest + b"deal" + sender.encode()


def reveal_context(setup: Setup, ballot: bytes, sender: str) -> bytes:
    """What a reveal's proof is bound to."""
    return setup.digest + b"reveal" + ballot + sender.encode()


def dealings_hold(setup: Setup, dealings: Iterable[Dealing]) -> bool:
    """Whether every dealing's proof holds; signatures are checked apart."""
    return pvss.deals_hold(
        [group.decode(voter.share_key) for voter in setup.voters],
        setup.threshold,
        [
            (dealing_context(setup, d.sender), d.shares, d.commitments, d.responses)
            for d in dealings
        ],
    )


def _signed_bytes(message: Signed) -> bytes:
    unsigned = dataclasses.replace(message, signature=b"")
    return type(message).__name__.encode() + b"\0" + wire.encode(unsigned)
