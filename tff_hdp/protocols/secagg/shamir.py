"""Shamir's t-of-n secret sharing of 32-byte secrets."""

import secrets
from collections.abc import Callable, Mapping

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.interpolation import lagrange_at_zero

# The smallest prime above 2^256, so that every 32-byte secret is a residue.
PRIME = 2**256 + 297
SHARE_BYTES = 33


def split(
    secret: bytes,
    *,
    threshold: int,
    holders: int,
    below: Callable[[int], int] = secrets.randbelow,
) -> list[bytes]:
    """Shares of a secret, for holders numbered 1..n in this order.

    Args:
      secret: 32 bytes.
      threshold: t; any t shares give the secret, fewer nothing about it.
      holders: n.
      below: Uniform random integers below a bound.

    Returns:
      n shares of 33 bytes each.

    Raises:
      ArgumentError: If the secret has another length or t is not in 1..n.
    """
    if len(secret) != 32:
        raise ArgumentError("secret", f"of {len(secret)} bytes", "32 bytes")
    if not 1 <= threshold <= holders:
        raise ArgumentError("threshold", threshold, f"1..{holders}")
    coefficients = [below(PRIME) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret, "big"))
    shares = []
    for x in range(1, holders + 1):
        value = 0
        for coefficient in coefficients:
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def join(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret from t shares, keyed by holder number.

    Returns:
      32 bytes; None if the shares fit no 32-byte secret.
    """
    weights = lagrange_at_zero(tuple(shares), PRIME)
    secret = 0
    for weight, share in zip(weights, shares.values(), strict=True):
        secret += weight * int.from_bytes(share, "big")
    secret %= PRIME
    return secret.to_bytes(32, "big") if secret < 2**256 else None
