"""Masks: vectors that look uniform to whoever lacks their 32-byte seed."""

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    CipherContext,
    algorithms,
    modes,
)

from tff_hdp.errors import ArgumentError

SEED_BYTES = 32
# One block of every stream at a time, so that the sum stays in the cache.
_BLOCK_BYTES = 1 << 17
_ZEROS = memoryview(bytes(_BLOCK_BYTES))


def add_masks(
    values: np.ndarray, *, plus: Sequence[bytes] = (), minus: Sequence[bytes] = ()
) -> None:
    """Adds and subtracts the masks of some seeds, in place.

    A mask is the AES-256-CTR key stream of its seed, read as little-endian
    integers. Arithmetic is modulo the range of the type; a smaller power of two
    may be reduced afterwards.

    Args:
      values: [d] unsigned integers, contiguous; changed.
      plus: Seeds of the masks to add.
      minus: Seeds of the masks to subtract.
    """
    streams = [(np.add, _stream(seed)) for seed in plus]
    streams += [(np.subtract, _stream(seed)) for seed in minus]
    block = np.empty(_BLOCK_BYTES // values.itemsize, values.dtype)
    raw = block.view(np.uint8)
    for start in range(0, len(values), len(block)):
        part = values[start : start + len(block)]
        zeros = _ZEROS[: part.nbytes]
        for combine, stream in streams:
            stream.update_into(zeros, raw)
            combine(part, block[: len(part)], out=part)


class SecureRandom:
    """Uniform integers from the key stream of a seed, secret if the seed is."""

    def __init__(self, seed: bytes) -> None:
        """Starts the stream of a 32-byte seed, such as `os.urandom(32)`."""
        self._stream = _stream(seed)

    def uint64(self, count: int) -> np.ndarray:
        """[count] uniform uint64."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), "<u8")

    def below(self, bound: int, count: int) -> np.ndarray:
        """[count] int64, uniform in 0..bound - 1, bound at most 2^62."""
        limit = 2**64 // bound * bound
        found = np.empty(0, np.uint64)
        while len(found) < count:
            drawn = self.uint64(count - len(found))
            if limit < 2**64:
                drawn = drawn[drawn < np.uint64(limit)]
            found = np.concatenate([found, drawn])
        return (found % np.uint64(bound)).astype(np.int64)


def _stream(seed: bytes) -> CipherContext:
    if len(seed) != SEED_BYTES:
        raise ArgumentError("seed", f"of {len(seed)} bytes", f"{SEED_BYTES} bytes")
    return Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
