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
import secrets
from collections.abc import Callable, Mapping, Sequence

from tff_hdp.protocols.elections import group
from tff_hdp.protocols.elections.group import ORDER

RandomScalar = Callable[[], int]
_CHALLENGE_BITS = 128


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
        return int.from_bytes(block.digest(), "little") % ORDER

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
) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]:
    """Shares a fresh secret among the holders of `keys`.

    Args:
      context: Binds the proof to one dealer and one session.
      keys: Holders' public keys; holder i has share number i + 1.
      threshold: t, how many shares recover the secret.
      random: Source of scalars.

    Returns:
      (shares, commitments, responses): the n encrypted shares, the proof's n
      commitments and its t response coefficients, each 32 bytes.
    """
    secret = [random() for _ in range(threshold)]
    blind = [random() for _ in range(threshold)]
    pairs = [
        group.backend.multiply_many((_evaluate(secret, i), _evaluate(blind, i)), key)
        for i, key in enumerate(keys, start=1)
    ]
    shares, commitments = zip(*pairs, strict=True)
    c = _challenge(context, shares, commitments)
    responses = tuple(
        group.backend.multiply_add(c, p, u).to_bytes(32, "little")
        for p, u in zip(secret, blind, strict=True)
    )
    return shares, commitments, responses


def deals_hold(
    keys: Sequence[bytes],
    threshold: int,
    deals: Sequence[tuple[bytes, Sequence[bytes], Sequence[bytes], Sequence[bytes]]],
) -> bool:
    """Whether all of `deals`, as (context, *deal(...)), are honest sharings.

    All are checked in one random linear combination: a wrong one passes with
    probability 2^-128.
    """
    size = len(keys)
    on_keys = [0] * size
    scalars: list[int] = []
    points: list[bytes] = []
    for context, shares, commitments, responses in deals:
        if (len(shares), len(commitments), len(responses)) != (size, size, threshold):
            return False
        response = [int.from_bytes(z, "little") for z in responses]
        if any(len(z) != 32 for z in responses) or any(z >= ORDER for z in response):
            return False
        c = _challenge(context, shares, commitments)
        points += (*shares, *commitments)
        weights = [secrets.randbits(_CHALLENGE_BITS) for _ in range(size)]
        scalars += [-c * weight for weight in weights]
        scalars += [-weight for weight in weights]
        for i, weight in enumerate(weights):
            on_keys[i] += weight * _evaluate_public(response, i + 1)
    return _is_nothing([*on_keys, *scalars], [*keys, *points])


def aggregate(deals: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Holder by holder, the sum of the encrypted shares of several deals."""
    return [group.backend.total(column) for column in zip(*deals, strict=True)]


def decrypt(
    context: bytes,
    secret_key: int,
    encrypted: bytes,
    *,
    random: RandomScalar,
) -> tuple[bytes, tuple[bytes, bytes], bytes]:
    """A holder's share p(i) G of the sum, and the proof that it is that.

    The proof is Chaum and Pedersen's: one y with Y = y G and encrypted = y share.

    Returns:
      (share, commitments, response), of 32, 2 x 32 and 32 bytes.
    """
    share = group.backend.multiply(group.backend.invert(secret_key), encrypted)
    blind = random()
    commitments = (
        group.backend.multiply_generator(blind),
        group.backend.multiply(blind, share),
    )
    key = group.backend.multiply_generator(secret_key)
    c = _challenge(context, (key, encrypted, share), commitments)
    response = group.backend.multiply_add(c, secret_key, blind)
    return share, commitments, response.to_bytes(32, "little")


def shares_hold(
    reveals: Sequence[tuple[bytes, bytes, bytes, bytes, Sequence[bytes], bytes]],
) -> bool:
    """Whether all shares are the decryptions they claim to be.

    Args:
      reveals: (context, key, encrypted, *decrypt(...)) of every holder. All are
        checked in one random linear combination, as in `deals_hold`.
    """
    on_generator = 0
    scalars: list[int] = []
    points: list[bytes] = []
    for context, key, encrypted, share, commitments, response in reveals:
        z = int.from_bytes(response, "little")
        if len(commitments) != 2 or len(response) != 32 or z >= ORDER:
            return False
        c = _challenge(context, (key, encrypted, share), commitments)
        v, w = (secrets.randbits(_CHALLENGE_BITS) for _ in range(2))
        on_generator += v * z
        scalars += [w * z, -v * c, -w * c, -v, -w]
        points += [share, key, encrypted, *commitments]
    generator = group.backend.multiply_generator(1)
    return _is_nothing([on_generator, *scalars], [generator, *points])


def recover(shares: Mapping[int, bytes]) -> bytes:
    """The secret p(0) G from t shares, keyed by share number (Lagrange at 0)."""
    numbers = list(shares)
    return group.backend.multiply_sum(
        [_lagrange_at_zero(numbers, i) for i in numbers], [shares[i] for i in numbers]
    )


def _is_nothing(scalars: Sequence[int], elements: Sequence[bytes]) -> bool:
    try:
        return group.backend.multiply_sum(scalars, elements) == group.IDENTITY
    except group.DecodingError:
        return False


def _lagrange_at_zero(numbers: Sequence[int], i: int) -> int:
    above = below = 1
    for j in numbers:
        if j != i:
            above = above * j % ORDER
            below = below * (j - i) % ORDER
    return above * pow(below, -1, ORDER) % ORDER


def _challenge(context: bytes, *parts: Sequence[bytes]) -> int:
    digest = hashlib.sha512(b"tff_hdp pvss" + len(context).to_bytes(8, "little"))
    digest.update(context)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        for item in part:
            digest.update(len(item).to_bytes(8, "little"))
            digest.update(item)
    return int.from_bytes(digest.digest()[: _CHALLENGE_BITS // 8], "little")
