"""Key agreement and encryption between two clients of a round.

All that is derived is bound to a `session`, bytes that name the sum and the attempt at
it: `Round.digest`.
"""

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_hdp.protocols.secagg.errors import BadKeyError, BadShareError

SHARE_DIGEST_BYTES = 16

# Of the curve's field. X25519 takes numbers modulo it, without the top bit.
_PRIME = 2**255 - 19
# No party's: only to see whether a key is one.
_NOBODY = X25519PrivateKey.generate()


def agree(own: X25519PrivateKey, peer: bytes, peer_id: str) -> bytes:
    """The X25519 secret shared with a peer's public key.

    Raises:
      BadKeyError: If `peer` is no public key, of low order, or a number that keys are
        not written as. Another's key, moved by a point of low order, is other bytes
        and has the other's secrets; all that is derived of them names both parties.
    """
    if int.from_bytes(peer, "little") >= _PRIME:
        raise BadKeyError(f"key of {peer_id!r} is written otherwise than keys are")
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise BadKeyError(f"key of {peer_id!r} is unusable: {error}") from error


def check_usable(key: bytes, client: str) -> None:
    """Raises BadKeyError unless others can agree on secrets with this public key."""
    agree(_NOBODY, key, client)


def mask_seed(secret: bytes, session: bytes, one: str, other: str) -> bytes:
    """The seed of the mask of a pair of clients, 32 bytes, the same for both."""
    return _derive(secret, "mask", session, *sorted((one, other)))


def seal(
    secret: bytes, session: bytes, sender: str, receiver: str, text: bytes
) -> bytes:
    """Encrypts one message from `sender` to `receiver`, for one session."""
    key = _derive(secret, "shares", session, sender, receiver)
    # The key serves this one message, so a constant nonce is never reused.
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, None)


def unseal(
    secret: bytes, session: bytes, sender: str, receiver: str, data: bytes
) -> bytes:
    """Decrypts what `seal` encrypted.

    Raises:
      BadShareError: If it was encrypted otherwise or changed on its way.
    """
    key = _derive(secret, "shares", session, sender, receiver)
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), data, None)
    except InvalidTag as error:
        raise BadShareError(
            f"shares of {sender!r} for {receiver!r} cannot be opened: wrong key, "
            "round or content"
        ) from error


def share_digest(session: bytes, dealer: str, holder: str, share: bytes) -> bytes:
    """16 bytes that bind a holder to its share of one secret.

    Shares are uniform, so their digests tell nothing of them; 16 bytes withstand
    second preimages.
    """
    context = _context("share", session, dealer, holder)
    return hashlib.sha256(context + share).digest()[:SHARE_DIGEST_BYTES]


def seed_digest(session: bytes, dealer: str, seed: bytes) -> bytes:
    """32 bytes that bind a client to its self-mask's seed."""
    return hashlib.sha256(_context("seed", session, dealer) + seed).digest()


def _derive(secret: bytes, purpose: str, session: bytes, *names: str) -> bytes:
    info = _context(purpose, session, *names)
    return HKDF(hashes.SHA256(), 32, None, info).derive(secret)


def _context(purpose: str, session: bytes, *names: str) -> bytes:
    parts = [purpose.encode(), session, *map(str.encode, names)]
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
