"""Messages as bytes: a compact, canonical encoding of frozen dataclasses.

Fields are written in order, a `signature` last, without names: non-negative integers
as LEB128 varints, everything of variable length with its length before it. Equal
messages have equal bytes, so they can be signed and their real sizes counted; other
bytes than those are refused, so that nobody can write one message in two ways.
"""

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

import numpy as np

from tff_hdp.errors import ShortError

_T = TypeVar("_T")
_DTYPES = ("|u1", "<u2", "<u4", "<u8")
_LARGEST = 2**64 - 1


class WireError(ShortError):
    """Bytes that are no encoding of the message expected."""


def encode(message: Any) -> bytes:
    """The bytes of a dataclass instance.

    Fields may be int (0..2^64 - 1), str, bytes, a 1-D array of unsigned integers,
    a dataclass of such, or a homogeneous tuple or dict of these.

    Raises:
      TypeError: If a field's annotation is none of these.
      WireError: If an integer is out of range, an array of something else, or text
        not to be had in UTF-8.
    """
    parts: list[bytes] = []
    _write(parts, type(message), message)
    return b"".join(parts)


def decode(message_type: type[_T], data: bytes) -> _T:
    """The message that `encode` turned into `data`. Arrays are read-only views.

    Raises:
      WireError: If the bytes are cut short, too long, or not what `encode` makes.
    """
    reader = _Reader(data)
    message = _read(reader, message_type)
    if reader.position != len(data):
        raise WireError(
            f"{message_type.__name__} ends at byte {reader.position} of {len(data)}"
        )
    return message


def signed_part(message: Any) -> bytes:
    """What the `signature` of a message signs: its kind, and all the rest of it."""
    unsigned = dataclasses.replace(message, signature=b"")
    return type(message).__name__.encode() + b"\0" + encode(unsigned)


@functools.cache
def _fields(message_type: type) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(message_type)
    names = [field.name for field in dataclasses.fields(message_type)]
    names.sort(key=lambda name: name == "signature")
    return tuple((name, hints[name]) for name in names)


def _write(parts: list[bytes], kind: Any, value: Any) -> None:
    if kind is int:
        parts.append(_varint(value))
    elif kind is bytes:
        parts += (_varint(len(value)), value)
    elif kind is str:
        try:
            _write(parts, bytes, value.encode())
        except UnicodeEncodeError as error:
            raise WireError(f"text is not UTF-8: {error}") from error
    elif kind is np.ndarray:
        if value.dtype.str not in _DTYPES:
            raise WireError(f"an array of {value.dtype} has no wire format")
        parts.append(bytes([_DTYPES.index(value.dtype.str)]))
        _write(parts, bytes, value.tobytes())
    elif dataclasses.is_dataclass(kind):
        for name, field in _fields(kind):
            _write(parts, field, getattr(value, name))
    else:
        origin, items = _container(kind)
        parts.append(_varint(len(value)))
        if origin is tuple and items[0] is bytes:
            # Most of what is written; a call for each would take twice as long.
            for item in value:
                parts += (_varint(len(item)), item)
        elif origin is tuple:
            for item in value:
                _write(parts, items[0], item)
        else:
            for key in sorted(value):
                _write(parts, items[0], key)
                _write(parts, items[1], value[key])


def _read(reader: "_Reader", kind: Any) -> Any:
    if kind is int:
        return reader.varint()
    if kind is bytes:
        return bytes(reader.take(reader.varint()))
    if kind is str:
        try:
            return _read(reader, bytes).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"text is not UTF-8: {error}") from error
    if kind is np.ndarray:
        return reader.array()
    if dataclasses.is_dataclass(kind):
        return kind(**{name: _read(reader, field) for name, field in _fields(kind)})
    origin, items = _container(kind)
    count = reader.varint()
    if origin is tuple:
        return tuple(_read(reader, items[0]) for _ in range(count))
    table: dict[Any, Any] = {}
    last = None
    for _ in range(count):
        key = _read(reader, items[0])
        if last is not None and key <= last:
            raise WireError(f"key {key!r} comes after {last!r}; keys must ascend")
        table[key] = _read(reader, items[1])
        last = key
    return table


@functools.cache
def _container(kind: Any) -> tuple[type, tuple[Any, ...]]:
    if isinstance(kind, types.GenericAlias):
        origin, items = typing.get_origin(kind), typing.get_args(kind)
        if origin is dict or (origin is tuple and items[1:] == (...,)):
            return origin, items
    raise TypeError(f"no wire format for {kind}")


def _varint(value: int) -> bytes:
    if 0 <= value <= 0x7F:
        return bytes((value,))
    if not 0 <= value <= _LARGEST:
        raise WireError(f"integer is {value}; allowed is 0..2^64 - 1")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.position = 0

    def take(self, count: int) -> memoryview:
        end = self.position + count
        if end > len(self.data):
            raise WireError(f"message is cut short at byte {len(self.data)}")
        chunk = self.data[self.position : end]
        self.position = end
        return chunk

    def varint(self) -> int:
        value = 0
        # 64 bits take ten bytes; without a bound a long one costs minutes.
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value <= _LARGEST and (byte or not shift):
                    return value
                break
        raise WireError(
            f"integer ending at byte {self.position} is not 64 bits at their shortest"
        )

    def array(self) -> np.ndarray:
        code = self.take(1)[0]
        if code >= len(_DTYPES):
            raise WireError(f"array type is {code}; allowed is 0..{len(_DTYPES) - 1}")
        dtype = np.dtype(_DTYPES[code])
        raw = self.take(self.varint())
        if len(raw) % dtype.itemsize:
            raise WireError(f"array of {dtype} has {len(raw)} bytes")
        return np.frombuffer(raw, dtype)
