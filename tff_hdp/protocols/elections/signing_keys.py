"""Which bytes are a key to sign by: a point of edwards25519, and of large order.

A library that verifies signatures takes 32 bytes of any kind for a key. Of those that
are no point none can sign; with one of small order, a signature holds for messages
that nobody has signed.
"""

from tff_hdp.errors import require

# -x^2 + y^2 = 1 + D x^2 y^2 modulo P (RFC 8032, section 5.1).
_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P


def check_signing_key(name: str, key: bytes) -> None:
    """Raises ArgumentError unless `key` is a key of Ed25519.

    Args:
      name: Whose it is, for the error.
      key: 32 bytes, y with the sign of x in the top bit.
    """
    ok = isinstance(key, bytes) and len(key) == 32 and _is_sound(key)
    shown = f"{key.hex()!r}" if isinstance(key, bytes) else key
    require(ok, name, shown, "a key of Ed25519, of large order")


def _is_sound(key: bytes) -> bool:
    y = int.from_bytes(key, "little") & (2**255 - 1)
    if y >= _P or pow(_x_squared(y), (_P - 1) // 2, _P) != 1:
        return False
    # The order of a point is 1, 2, 4 or 8 where eight times it is (0, 1).
    for _ in range(3):
        y = _y_doubled(y)
    return y != 1


def _x_squared(y: int) -> int:
    return (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P


def _y_doubled(y: int) -> int:
    """The y of twice a point, which its x decides by its square alone."""
    xx, yy = _x_squared(y), y * y % _P
    return (yy + xx) * pow(1 - _D * xx * yy, -1, _P) % _P
