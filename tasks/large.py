"""Examples that do not fit: in a file without a name, mapped into memory.

What is written there can be put back on the disk by the system when memory is short.
The file lies in the folder for temporary files (`TMPDIR`) and goes with the array.
"""

import math
import tempfile
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

# In bytes, what an array may take of memory itself.
LIMIT = 2**30
# In bytes, how much is copied at a time.
_BLOCK = 2**26


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """An array to be filled, in memory up to `LIMIT` bytes and mapped beyond.

    Raises:
      OSError: If the folder for temporary files has no room for it.
    """
    if math.prod(shape) * np.dtype(dtype).itemsize <= LIMIT:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="tff_hdp_") as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def taken(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`array[rows]`, mapped where it is large.

    Args:
      array: [N, ...].
      rows: [M] integers.
    """
    result = empty((len(rows), *array.shape[1:]), array.dtype)
    for part in blocks(result):
        result[part] = array[rows[part]]
    return result


def blocks(array: np.ndarray) -> Iterator[slice]:
    """Slices of an array's rows that are small together."""
    step = max(1, _BLOCK // max(1, array[:1].nbytes))
    return (slice(start, start + step) for start in range(0, len(array), step))
