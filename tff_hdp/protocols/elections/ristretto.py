"""The ristretto255 group (RFC 9496) in Python integers.

A group of prime order with 32-byte canonical encodings; elements are tuples
(X, Y, Z, T) of extended coordinates on edwards25519. Python's arithmetic takes
time that depends on its operands: right, but not hardened against someone who times
it. `group` takes libsodium's where that is found.
"""

from collections.abc import Iterable

Point = tuple[int, int, int, int]

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, P) % P
_2D = 2 * _D % P
_SQRT_M1 = pow(2, (P - 1) // 4, P)

IDENTITY_POINT: Point = (0, 1, 1, 0)


class DecodingError(ValueError):
    """Bytes that encode no group element."""


def add(a: Point, b: Point) -> Point:
    """The sum a + b (Hisil et al. 2008, complete for this curve)."""
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    p = (y1 - x1) * (y2 - x2) % P
    q = (y1 + x1) * (y2 + x2) % P
    r = t1 * t2 % P * _2D % P
    s = 2 * z1 * z2 % P
    e, f, g, h = q - p, s - r, s + r, q + p
    return e * f % P, g * h % P, f * g % P, e * h % P


def double(a: Point) -> Point:
    """The sum a + a."""
    x, y, z, _ = a
    xx, yy = x * x % P, y * y % P
    h = xx + yy
    e = h - (x + y) ** 2 % P
    g = xx - yy
    f = 2 * z * z % P + g
    return e * f % P, g * h % P, f * g % P, e * h % P


def total(points: Iterable[Point]) -> Point:
    """The sum of points."""
    result = IDENTITY_POINT
    for point in points:
        result = add(result, point)
    return result


def multiply(scalar: int, point: Point) -> Point:
    """The multiple scalar * point, by 4-bit windows."""
    table = [IDENTITY_POINT, point]
    for _ in range(14):
        table.append(add(table[-1], point))
    scalar %= ORDER
    result = IDENTITY_POINT
    for shift in range(scalar.bit_length() // 4 * 4, -1, -4):
        result = double(double(double(double(result))))
        digit = scalar >> shift & 15
        if digit:
            result = add(result, table[digit])
    return result


def encode(point: Point) -> bytes:
    """The element's 32 canonical bytes (RFC 9496, 4.3.2)."""
    x, y, z, t = point
    u1 = (z + y) * (z - y) % P
    u2 = x * y % P
    _, inverse = _sqrt_ratio(1, u1 * u2 * u2)
    den1, den2 = inverse * u1 % P, inverse * u2 % P
    z_inverse = den1 * den2 % P * t % P
    if t * z_inverse % P & 1:
        x, y = y * _SQRT_M1 % P, x * _SQRT_M1 % P
        den_inverse = den1 * _INVSQRT_A_MINUS_D % P
    else:
        den_inverse = den2
    if x * z_inverse % P & 1:
        y = -y
    return _absolute(den_inverse * (z - y)).to_bytes(32, "little")


def decode(data: bytes) -> Point:
    """The element that `encode` turned into `data` (RFC 9496, 4.3.1).

    Raises:
      DecodingError: If `data` is not 32 bytes or no canonical encoding.
    """
    s = int.from_bytes(data, "little")
    if len(data) != 32 or s >= P or s & 1:
        raise DecodingError(f"{data.hex()} is no canonical ristretto255 element")
    u1, u2 = (1 - s * s) % P, (1 + s * s) % P
    v = (-_D * u1 * u1 - u2 * u2) % P
    was_square, inverse = _sqrt_ratio(1, v * u2 * u2)
    x = _absolute(2 * s * inverse * u2)
    y = u1 * inverse % P * inverse % P * u2 % P * v % P
    t = x * y % P
    if not was_square or t & 1 or y == 0:
        raise DecodingError(f"{data.hex()} is no canonical ristretto255 element")
    return x, y, 1, t


def is_signing_key(data: bytes) -> bool:
    """Whether bytes are a point of edwards25519 (RFC 8032, 5.1.3) of large order.

    By what is no point nobody can sign; by one of order 8 or less, which whoever only
    verifies takes, a signature holds for messages that nobody has signed.
    """
    y = int.from_bytes(data, "little") & (2**255 - 1)
    if len(data) != 32 or y >= P:
        return False
    is_point, x = _sqrt_ratio(y * y - 1, _D * y * y + 1)
    x, y, z, _ = double(double(double((x, y, 1, x * y % P))))
    return is_point and not (x == 0 and y == z)


def _absolute(x: int) -> int:
    x %= P
    return P - x if x & 1 else x


def _sqrt_ratio(u: int, v: int) -> tuple[bool, int]:
    """Whether u/v is a square, and |sqrt(u/v)| or |sqrt(i u/v)| (4.2)."""
    u, v = u % P, v % P
    v3 = v * v % P * v % P
    r = u * v3 % P * pow(u * v3 % P * v3 % P * v % P, (P - 5) // 8, P) % P
    check = v * r % P * r % P
    correct, flipped = check == u, check == P - u
    if flipped or check == -u * _SQRT_M1 % P:
        r = r * _SQRT_M1 % P
    return correct or flipped, _absolute(r)


_INVSQRT_A_MINUS_D = _sqrt_ratio(1, -1 - _D)[1]

# The generator is that of edwards25519: y = 4/5, x even.
_Y = 4 * pow(5, -1, P) % P
_X = _absolute(_sqrt_ratio(_Y * _Y - 1, _D * _Y * _Y + 1)[1])
GENERATOR: Point = (_X, _Y, 1, _X * _Y % P)
