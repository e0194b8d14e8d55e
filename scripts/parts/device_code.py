"""What a CUDA library holds for kinds of GPU that are not to run it, blanked out.

NVIDIA's libraries, and TensorFlow's, hold every kernel once for each generation of GPU.
Of a library that one kind of GPU is to run the rest may be zeros: files keep their
length and every offset, and pack to a fraction.

The layout of fat binaries is not documented by NVIDIA: a header, and entries of a
header each and the code, as machine code (ELF) or as source for the driver (PTX).
"""

import mmap
import pathlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tff_hdp.errors import ArgumentError

# Magic number, version, and the length of what heads a fat binary.
_BEGIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_PTX, _ELF = 1, 2
_LEAST_HEADER = 64


class Entry(NamedTuple):
    """Code for one architecture.

    Attributes:
      kind: 1 for PTX, 2 for machine code; others are left alone.
      architecture: Ten times the compute capability.
      begin: Of the code, in the file.
      end: Of the code.
    """

    kind: int
    architecture: int
    begin: int
    end: int


def architecture(capability: str) -> int:
    """Ten times a compute capability, such as 90 of 9.0.

    Raises:
      ArgumentError: If it is not one.
    """
    if not re.fullmatch(r"[0-9]+\.[0-9]", capability):
        raise ArgumentError("gpu", capability, "a compute capability, such as 9.0")
    return int(capability.replace(".", ""))


def keep_one_gpu(packages: pathlib.Path, gpu: int) -> None:
    """Blanks out what other kinds of GPU would run of installed packages.

    Args:
      packages: The folder that they lie in.
      gpu: Its `architecture`.
    """
    for pattern in ("nvidia/*/lib/*.so*", "tensorflow/*.so*"):
        for library in packages.glob(pattern):
            if library.stat().st_size:
                keep_for(library, gpu)


def keep_for(library: pathlib.Path, architecture: int) -> int:
    """Blanks out what the driver would not choose for one architecture.

    That is the machine code of the newest architecture of the same generation that is
    not newer, or else the PTX of the newest one that is not newer.

    Args:
      library: Is changed.
      architecture: Ten times the GPU's compute capability.

    Returns:
      How many bytes were blanked out.
    """
    blanked = 0
    with library.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for entries in fat_binaries(content):
            chosen = _chosen(entries, architecture)
            for entry in entries:
                if entry.kind in (_PTX, _ELF) and entry[:2] != chosen:
                    size = entry.end - entry.begin
                    content[entry.begin : entry.end] = bytes(size)
                    blanked += size
    return blanked


def fat_binaries(content: "mmap.mmap | bytes") -> Iterator[list[Entry]]:
    """The entries of every fat binary of a file."""
    at = content.find(_BEGIN)
    while at >= 0:
        (size,) = struct.unpack_from("<Q", content, at + 8)
        begin = at + len(_BEGIN) + 8
        end, rest = begin + size, at + 1
        entries = list(_entries(content, begin, end)) if end <= len(content) else []
        # Else the bytes are there by chance.
        if entries and entries[-1].end == end:
            yield entries
            rest = end
        at = content.find(_BEGIN, rest)


def _entries(content: "mmap.mmap | bytes", at: int, end: int) -> Iterator[Entry]:
    while at + _LEAST_HEADER <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", content, at)
        if header < _LEAST_HEADER:
            return
        (architecture,) = struct.unpack_from("<I", content, at + 28)
        yield Entry(kind, architecture, at + header, at + header + size)
        at += header + size


def _chosen(entries: list[Entry], architecture: int) -> tuple[int, int] | None:
    """Kind and architecture of what the driver takes; None if it can take none."""
    older = [entry[:2] for entry in entries if entry.architecture <= architecture]
    generation = architecture // 10
    ready = [(kind, a) for kind, a in older if kind == _ELF and a // 10 == generation]
    source = [(kind, a) for kind, a in older if kind == _PTX]
    return max(ready or source, default=None)
