"""Signatures of the parties of a round, for channels and peers that may lie."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from tff_hdp.protocols import wire
from tff_hdp.protocols.secagg.errors import BadSignatureError
from tff_hdp.protocols.secagg.messages import SUPER_NODE, Message

_M = TypeVar("_M", bound=Message)


@dataclasses.dataclass(frozen=True)
class Signer:
    """One party's signing key and everybody's public ones, known beforehand.

    Attributes:
      name: Whose key it is: a client's id or `SUPER_NODE`.
      key: Its Ed25519 key.
      public: 32 bytes for each party of the round.
    """

    name: str
    key: Ed25519PrivateKey
    public: Mapping[str, bytes]

    @property
    def quorum(self) -> int:
        """How many clients must sign a list: `quorum` of all."""
        return quorum(len(self.public) - 1)

    def sign(self, message: _M, session: bytes) -> _M:
        """The message with this party's signature, for one session alone.

        Args:
          message: What it says.
          session: `Round.digest`. Keys outlive rounds; without it, what was said in
            one attempt could be passed on in the next.
        """
        signature = self.key.sign(_digest(message, session))
        return dataclasses.replace(message, signature=signature)

    def check(self, message: Message, sender: str, session: bytes) -> None:
        """Checks that `sender` signed exactly this in that session.

        Raises:
          BadSignatureError: If it did not, or is no party of the round.
        """
        kind = type(message).__name__
        if sender not in self.public:
            raise BadSignatureError(f"{kind} of {sender!r}, whose key is not known")
        key = Ed25519PublicKey.from_public_bytes(self.public[sender])
        try:
            key.verify(message.signature, _digest(message, session))
        except InvalidSignature as error:
            raise BadSignatureError(
                f"{kind} of {sender!r} bears a wrong signature"
            ) from error


def quorum(clients: int) -> int:
    """How many of n clients have somebody honest in common with as many others.

    With at most c = floor((n - 1) / 3) of them corrupt, two lists cannot both have more
    than (n + c) / 2 signatures, nor two attempts at one sum that many shares.
    """
    return (clients + (clients - 1) // 3) // 2 + 1


def make_signers(clients: Iterable[str]) -> dict[str, Signer]:
    """Fresh keys for simulated clients and their super-node, by name."""
    keys = {name: Ed25519PrivateKey.generate() for name in (*clients, SUPER_NODE)}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    return {name: Signer(name, key, public) for name, key in keys.items()}


def _digest(message: Message, session: bytes) -> bytes:
    # Ed25519 reads what it signs twice; updates are large.
    said = b"tff_hdp secagg " + session + wire.signed_part(message)
    return hashlib.sha256(said).digest()
