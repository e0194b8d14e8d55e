"""The ristretto255 group by libsodium, in constant time.

The library is looked for on the system and in installed packages that bring it; no
compiler is needed. Each call takes and gives canonical 32-byte encodings.
"""

import contextlib
import ctypes
import ctypes.util
import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence

from tff_hdp.protocols.elections.ristretto import ORDER, DecodingError

_BYTES = 32
_IDENTITY = bytes(_BYTES)
_NAMES = ("libsodium.so.26", "libsodium.so.23", "libsodium.dylib", "libsodium.dll")
_POINTS = "crypto_core_ristretto255_"
_FUNCTIONS = {
    "add": (_POINTS + "add", 3),
    "valid": (_POINTS + "is_valid_point", 1),
    "scale": ("crypto_scalarmult_ristretto255", 3),
    "scale_base": ("crypto_scalarmult_ristretto255_base", 2),
    "scalar_reduce": (_POINTS + "scalar_reduce", 2),
    "scalar_add": (_POINTS + "scalar_add", 3),
    "scalar_mul": (_POINTS + "scalar_mul", 3),
    "scalar_invert": (_POINTS + "scalar_invert", 2),
}


class Sodium:
    """The group's operations by a loaded libsodium."""

    name = "libsodium"
    constant_time = True

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the functions out of a library.

        Raises:
          AttributeError: If it was built without ristretto255.
          OSError: If it cannot be initialised.
        """
        self._calls = {}
        for short, (symbol, arguments) in _FUNCTIONS.items():
            function = getattr(library, symbol)
            function.argtypes = [ctypes.c_char_p] * arguments
            function.restype = ctypes.c_int
            self._calls[short] = function
        if library.sodium_init() < 0:
            raise OSError("libsodium cannot be initialised")
        self._generator = self.multiply_generator(1)

    def check(self, element: bytes) -> None:
        """Raises DecodingError unless `element` is a canonical encoding."""
        if len(element) != _BYTES or not self._calls["valid"](element):
            raise DecodingError(f"{element.hex()} is no canonical ristretto255 element")

    def multiply(self, scalar: int, element: bytes) -> bytes:
        """The multiple scalar * element."""
        if len(element) != _BYTES:
            self.check(element)
        if element == self._generator:
            # It has a table, which takes a third of the time.
            return self.multiply_generator(scalar)
        out = ctypes.create_string_buffer(_BYTES)
        if self._calls["scale"](out, self._encoded(scalar), element):
            # So it ends for the identity as a result, too.
            self.check(element)
            return _IDENTITY
        return out.raw

    def multiply_generator(self, scalar: int) -> bytes:
        """The multiple scalar * generator."""
        out = ctypes.create_string_buffer(_BYTES)
        failed = self._calls["scale_base"](out, self._encoded(scalar))
        return _IDENTITY if failed else out.raw

    def multiply_sum(self, scalars: Sequence[int], elements: Sequence[bytes]) -> bytes:
        """The sum of scalar * element."""
        pairs = zip(scalars, elements, strict=True)
        return self.total(self.multiply(k, element) for k, element in pairs)

    def total(self, elements: Iterable[bytes]) -> bytes:
        """The sum of elements."""
        first, *others = elements = [*elements] or [_IDENTITY]
        if not others or any(len(element) != _BYTES for element in elements):
            for element in elements:
                self.check(element)
        out = ctypes.create_string_buffer(first, _BYTES)
        for element in others:
            if self._calls["add"](out, out, element):
                self.check(first)
                self.check(element)
        return out.raw

    def reduce(self, data: bytes) -> int:
        """The scalar that 64 bytes, little-endian, are modulo the order."""
        if len(data) != 2 * _BYTES:
            # Of fewer, C would read on.
            raise ValueError(f"data has {len(data)} bytes; allowed: {2 * _BYTES}")
        return int.from_bytes(self._reduced(data), "little")

    def multiply_add(self, a: int, b: int, c: int) -> int:
        """The scalar a b + c."""
        out = ctypes.create_string_buffer(_BYTES)
        self._calls["scalar_mul"](out, self._encoded(a), self._encoded(b))
        self._calls["scalar_add"](out, out.raw, self._encoded(c))
        return int.from_bytes(out.raw, "little")

    def invert(self, scalar: int) -> int:
        """The scalar 1 / scalar.

        Raises:
          ZeroDivisionError: If it is 0.
        """
        out = ctypes.create_string_buffer(_BYTES)
        if self._calls["scalar_invert"](out, self._encoded(scalar)):
            raise ZeroDivisionError("0 has no inverse")
        return int.from_bytes(out.raw, "little")

    def _encoded(self, scalar: int) -> bytes:
        if scalar < 0:
            scalar %= ORDER  # Of public scalars alone, as this takes its time.
        return self._reduced(scalar.to_bytes(2 * _BYTES, "little"))

    def _reduced(self, data: bytes) -> bytes:
        out = ctypes.create_string_buffer(_BYTES)
        self._calls["scalar_reduce"](out, data)
        return out.raw


def load() -> Sodium | None:
    """The first libsodium with ristretto255 that is found, if any."""
    for library in _libraries():
        with contextlib.suppress(AttributeError, OSError):
            return Sodium(library)
    return None


def _libraries() -> Iterator[ctypes.CDLL]:
    for name in _NAMES:
        with contextlib.suppress(OSError):
            yield ctypes.CDLL(name)
    found = ctypes.util.find_library("sodium")
    if found is not None:
        with contextlib.suppress(OSError):
            yield ctypes.CDLL(found)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError):
        for file in importlib.metadata.files("pyzmq") or ():
            if file.name.startswith("libsodium"):
                yield ctypes.CDLL(str(file.locate()))
    with contextlib.suppress(ImportError, OSError):
        # Last, since it writes the library to a new temporary file each time.
        from rbcl._sodium import _sodium

        yield _sodium
