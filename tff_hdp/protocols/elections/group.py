"""The group of elections: ristretto255 (RFC 9496), by the best means there is.

Elements are their canonical 32-byte encodings, scalars integers modulo `ORDER`.
`backend` does the arithmetic: libsodium's, in constant time, where that is found,
else Python's.
"""

import logging
from collections.abc import Iterable, Sequence

from tff_hdp.protocols.elections import ristretto, sodium
from tff_hdp.protocols.elections.ristretto import ORDER, DecodingError

__all__ = ["IDENTITY", "ORDER", "DecodingError", "PythonGroup", "backend"]

_LOG = logging.getLogger("tff_hdp.protocols.elections")
IDENTITY = bytes(32)


class PythonGroup:
    """The operations on Python's integers: right, but slower and not in constant time.

    Their time depends on their operands, secret ones too.
    """

    name = "python"
    constant_time = False

    def check(self, element: bytes) -> None:
        """Raises DecodingError unless `element` is a canonical encoding."""
        ristretto.decode(element)

    def multiply(self, scalar: int, element: bytes) -> bytes:
        """The multiple scalar * element."""
        return ristretto.encode(ristretto.multiply(scalar, ristretto.decode(element)))

    def multiply_generator(self, scalar: int) -> bytes:
        """The multiple scalar * generator."""
        return ristretto.encode(ristretto.multiply(scalar, ristretto.GENERATOR))

    def multiply_sum(self, scalars: Sequence[int], elements: Sequence[bytes]) -> bytes:
        """The sum of scalar * element."""
        points = map(ristretto.decode, elements)
        multiples = map(ristretto.multiply, scalars, points)
        return ristretto.encode(ristretto.total(multiples))

    def total(self, elements: Iterable[bytes]) -> bytes:
        """The sum of elements."""
        return ristretto.encode(ristretto.total(map(ristretto.decode, elements)))

    def reduce(self, data: bytes) -> int:
        """The scalar that 64 bytes, little-endian, are modulo the order."""
        if len(data) != 64:
            raise ValueError(f"data has {len(data)} bytes; allowed: 64")
        return int.from_bytes(data, "little") % ORDER

    def multiply_add(self, a: int, b: int, c: int) -> int:
        """The scalar a b + c."""
        return (a * b + c) % ORDER

    def invert(self, scalar: int) -> int:
        """The scalar 1 / scalar."""
        if scalar % ORDER == 0:
            raise ZeroDivisionError("0 has no inverse")
        return pow(scalar, -1, ORDER)


backend: PythonGroup | sodium.Sodium = sodium.load() or PythonGroup()
if not backend.constant_time:
    _LOG.warning(
        "no libsodium was found: elections compute in Python, some fifteen times "
        "slower and in time that depends on secrets"
    )
