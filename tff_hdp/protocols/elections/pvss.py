"""Publicly verifiable secret sharing over ristretto255.

Schoenmakers (CRYPTO 1999) with the low-degree proof of ALBATROSS (Cascudo and
David, ASIACRYPT 2020, section 4): a dealer draws a polynomial p of degree
t - 1 and publishes p(i) Y_i under every holder's key Y_i = y_i G, with a proof
that one such p exists. The secret is p(0) G; any t holders recover it, fewer
learn nothing (decisional Diffie-Hellman), and anybody can check every step.
Shares of several dealers add up, so a holder decrypts only their sum.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence

from tff_hdp.protocols.elections import group
from tff_hdp.protocols.elections.group import ORDER
from tff_hdp.protocols.interpolation import lagrange_at_zero

RandomScalar = Callable[[], int]
_CHALLENGE_BYTES = 16
_GENERATOR = group.backend.multiply_generator(1)


def hedged_scalars(secret: bytes, *message: bytes, fresh: bytes) -> RandomScalar:
    """A source of uniform scalars for one message alone.

    A nonce must never serve two messages: their two proofs would give away the key.
    So all that a proof is about goes into its source, beside a secret of the prover
    and fresh randomness. Should that fail, or be left out to repeat a simulation,
    other messages still have other nonces.

    Args:
      secret: 32 bytes that nobody but the prover knows.
      message: Everything the scalars are for.
      fresh: Randomness of this one use.
    """
    key = hashlib.sha512(b"tff_hdp scalars")
    for part in (secret, fresh, *message):
        key.update(len(part).to_bytes(8, "little") + part)
    count = itertools.count()

    def scalar() -> int:
        block = key.copy()
        block.update(next(count).to_bytes(8, "little"))
        # 512 bits modulo the 253-bit order: the bias is below 2^-256.
        return group.backend.reduce(block.digest())

    return scalar


def _evaluate(polynomial: Sequence[int], x: int) -> int:
    """p(x) mod the group order for a secret p, from the constant term up."""
    value = 0
    for coefficient in reversed(polynomial):
        value = group.backend.multiply_add(value, x, coefficient)
    return value


def _evaluate_public(polynomial: Sequence[int], x: int) -> int:
    """The same where anybody knows p, so that time may tell of it."""
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % ORDER
    return value


def deal(
    context: bytes,
    keys: Sequence[bytes],
    threshold: int,
    *,
    random: RandomScalar,
) -> tuple[tuple[bytes, ...], bytes, tuple[bytes, ...]]:
    """Shares a fresh secret among the holders of `keys`.

    Args:
      context: Binds the proof to one dealer and one session.
      keys: Holders' public keys; holder i has share number i + 1.
      threshold: t, how many shares recover the secret.
      random: Source of scalars.

    Returns:
      (shares, challenge, responses): the n encrypted shares, 32 bytes each; the
      proof's challenge, 16 bytes, and its t response coefficients, 32 bytes each.
    """
    secret = [random() for _ in range(threshold)]
    blind = [random() for _ in range(threshold)]
    shares, commitments = (
        tuple(
            group.backend.multiply(_evaluate(polynomial, i), key)
            for i, key in enumerate(keys, start=1)
        )
        for polynomial in (secret, blind)
    )
    challenge = _challenge(context, shares, commitments)
    c = int.from_bytes(challenge, "little")
    responses = tuple(
        group.backend.multiply_add(c, p, u).to_bytes(32, "little")
        for p, u in zip(secret, blind, strict=True)
    )
    return shares, challenge, responses


def deal_holds(
    context: bytes,
    keys: Sequence[bytes],
    threshold: int,
    deal: tuple[Sequence[bytes], bytes, Sequence[bytes]],
) -> bool:
    """Whether a `deal` is an honest sharing among the holders of `keys`."""
    shares, challenge, responses = deal
    if (len(shares), len(responses)) != (len(keys), threshold):
        return False
    response = [_scalar(z) for z in responses]
    if None in response:
        return False
    z = [_evaluate_public(response, i) for i in range(1, len(keys) + 1)]
    commitments = _commitments(challenge, z, keys, shares)
    return commitments is not None and challenge == _challenge(
        context, shares, commitments
    )


def aggregate(deals: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Holder by holder, the sum of the encrypted shares of several deals."""
    return [group.backend.total(column) for column in zip(*deals, strict=True)]


def decrypt(
    context: bytes,
    secret_key: int,
    encrypted: bytes,
    *,
    random: RandomScalar,
) -> tuple[bytes, bytes, bytes]:
    """A holder's share p(i) G of the sum, and the proof that it is that.

    The proof is Chaum and Pedersen's: one y with Y = y G and encrypted = y share.

    Returns:
      (share, challenge, response), of 32, 16 and 32 bytes.
    """
    share = group.backend.multiply(group.backend.invert(secret_key), encrypted)
    blind = random()
    commitments = (
        group.backend.multiply_generator(blind),
        group.backend.multiply(blind, share),
    )
    key = group.backend.multiply_generator(secret_key)
    challenge = _challenge(context, (key, encrypted, share), commitments)
    c = int.from_bytes(challenge, "little")
    response = group.backend.multiply_add(c, secret_key, blind)
    return share, challenge, response.to_bytes(32, "little")


def share_holds(
    context: bytes, key: bytes, encrypted: bytes, decrypted: tuple[bytes, bytes, bytes]
) -> bool:
    """Whether what `decrypt` returned is the decryption by the holder of `key`."""
    share, challenge, response = decrypted
    z = _scalar(response)
    if z is None:
        return False
    bases = (_GENERATOR, share)
    commitments = _commitments(challenge, (z, z), bases, (key, encrypted))
    return commitments is not None and challenge == _challenge(
        context, (key, encrypted, share), commitments
    )


def recover(shares: Mapping[int, bytes]) -> bytes:
    """The secret p(0) G from t shares, keyed by share number (Lagrange at 0)."""
    weights = lagrange_at_zero(tuple(shares), ORDER)
    return group.backend.multiply_sum(weights, list(shares.values()))


def _scalar(data: bytes) -> int | None:
    """The scalar of 32 bytes; None if they are not how it is written."""
    scalar = int.from_bytes(data, "little")
    return scalar if len(data) == 32 and scalar < ORDER else None


def _commitments(
    challenge: bytes,
    responses: Sequence[int],
    bases: Sequence[bytes],
    results: Sequence[bytes],
) -> list[bytes] | None:
    """What a prover must have committed to, z B - c R for each; None for no elements.

    It sends the challenge in their place: they are as many elements as the rest.
    """
    c = int.from_bytes(challenge, "little")
    rows = zip(responses, bases, results, strict=True)
    try:
        return [group.backend.multiply_sum((z, -c), (b, r)) for z, b, r in rows]
    except group.DecodingError:
        return None


def _challenge(context: bytes, *parts: Sequence[bytes]) -> bytes:
    digest = hashlib.sha512(b"tff_hdp pvss" + len(context).to_bytes(8, "little"))
    digest.update(context)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        for item in part:
            digest.update(len(item).to_bytes(8, "little"))
            digest.update(item)
    return digest.digest()[:_CHALLENGE_BYTES]
